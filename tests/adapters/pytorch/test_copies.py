"""Copies on a stream of their own, on a GPU that is played: it runs behind its host, in any order that is allowed."""

import pytest

from adapters.pytorch import machine
from tests.support.played_streams import Event, Gpu, Memory

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
