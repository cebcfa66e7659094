"""Copies on a stream of their own, on a GPU that is played: it runs behind its host, in any order that is allowed."""

import contextlib
from collections import deque
from types import SimpleNamespace

import pytest

from stagebench.adapters.pytorch import machine

BATCHES = 7


@pytest.mark.parametrize("ahead", [1, 2, 3, BATCHES])
@pytest.mark.parametrize("computing_first", [True, False])
def test_each_step_reads_its_own_batch_however_far_the_host_is_ahead(monkeypatch, computing_first, ahead):
    gpu, seen = Gpu(), []
    monkeypatch.setattr(machine, "torch", gpu.torch)
    ours = machine.Copies("cuda:0")
    for batch in range(BATCHES):
        images, labels = ours.batch(Memory(gpu, batch), Memory(gpu, -batch))
        for _ in range(2):  # forward and backward
            gpu.read(images, seen)
        gpu.read(labels, seen)
        if batch % ahead == ahead - 1:
            gpu.run(computing_first)
    gpu.run(computing_first)
    assert seen == [value for batch in range(BATCHES) for value in (batch, batch, -batch)]


def test_a_batch_is_copied_while_the_step_before_computes(monkeypatch):
    gpu, seen = Gpu(), []
    monkeypatch.setattr(machine, "torch", gpu.torch)
    ours = machine.Copies("cuda:0")
    gpu.read(*ours.batch(Memory(gpu, "first")), seen)
    gpu.run(computing_first=True)
    held = Event()
    gpu.computing.wait_event(held)  # a long step
    gpu.read(*ours.batch(Memory(gpu, "second")), seen)
    [(second,)] = [[room for room in rooms if room.value != "first"] for rooms in ours._places.values()]
    for stream in gpu.others:
        stream.run()
    assert second.value == "second"
    assert seen == ["first"]
    held.reached = True
    gpu.run(computing_first=True)
    assert seen == ["first", "second"]


class Event:
    """Reached when its stream comes to where it was recorded."""

    reached = False


class Stream:
    """What is queued runs when `Gpu.run` is called, in its order."""

    def __init__(self):
        self.queue = deque()

    def record_event(self):
        """An event behind all that is queued so far."""
        event = Event()
        self.queue.append((None, lambda: setattr(event, "reached", True)))
        return event

    def wait_event(self, event):
        """Nothing of what is queued from now on runs before the event."""
        self.queue.append((event, lambda: None))

    def wait_stream(self, other):
        """Nor before what is queued on the other one so far."""
        self.wait_event(other.record_event())

    def run(self):
        """As far as it can; whether it did anything."""
        before = len(self.queue)
        while self.queue and (self.queue[0][0] is None or self.queue[0][0].reached):
            self.queue.popleft()[1]()
        return len(self.queue) < before


class Memory:
    """Of one tensor; it holds a value, which a copy brings when the stream comes to it."""

    dtype, shape, value = "uint8", (1,), None

    def __init__(self, gpu, value=None):
        self._gpu, self.value = gpu, value

    def copy_(self, other, non_blocking):
        assert non_blocking
        self._gpu.now().queue.append((None, lambda: setattr(self, "value", other.value)))


class Gpu:
    """One, with what the adapter takes of `torch`, as `torch`."""

    def __init__(self):
        self.computing, self.others, self._entered = Stream(), [], []
        cuda = SimpleNamespace(Stream=self._stream, current_stream=lambda _: self.now(), stream=self._enter)
        self.torch = SimpleNamespace(cuda=cuda, empty_like=lambda host, device: self._given_out())

    def now(self):
        """The stream on which the host queues."""
        return self._entered[-1] if self._entered else self.computing

    def read(self, memory, into):
        """Queue a kernel that reads it, and notes what it saw."""
        self.now().queue.append((None, lambda: into.append(memory.value)))

    def run(self, computing_first):
        """All that is queued; a stream goes as far as its waits let it before another one does anything."""
        streams = [self.computing, *self.others] if computing_first else [*self.others, self.computing]
        while any(stream.run() for stream in streams):
            pass
        assert not any(stream.queue for stream in streams), "streams that wait for each other"

    def _given_out(self):
        """Memory of the current stream, on which what is queued already may still write to it for its former owner."""
        memory = Memory(self)
        self.now().queue.append((None, lambda: setattr(memory, "value", "its former owner's")))
        return memory

    def _stream(self, device):
        self.others.append(Stream())
        return self.others[-1]

    @contextlib.contextmanager
    def _enter(self, stream):
        self._entered.append(stream)
        yield
        self._entered.pop()
