"""A trainer without a network: sleeps as it is told and writes down what was called.

Oldest Python: 3.6. Its knobs: "sleep" (seconds by method), "world" (what the engine
claims), "loss" (or by method), "raises" (method -> name of a built-in error), "tells"
(variables that it sets to join), "binds" and "binds_thread" (cores of its first thread, the core of another, as a
framework's library binds them), "binds_later" (the core of a thread and of a process that begin in `build`), "computes"
(a file of messages: it builds until a sign of life is there).
"""

import builtins
import errno
import os
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from subprocess import Popen

import numpy as np

from stagebench.suite.worker.contract import Batch, Joined, LayerTimes, Unsupported
from stagebench.suite.worker.feed import StreamFeed
from stagebench.suite.worker.kernels import PROFILED, Activity, keep, summed
from stagebench.suite.worker.loop import Loop
from stagebench.suite.worker.passes import Passes
from stagebench.suite.worker.ranks import Outbox
from stagebench.suite.worker.sources import Source
from stagebench.suite.worker.trainer import Trainer
from stagebench.workloads.catalogue import PHOTOGRAPHS


class ToyTrainer(Trainer):
    """Every method notes its name in `calls`."""

    def __init__(self, setup):
        super().__init__(setup)
        self.calls = []

    def _called(self, name):
        self.calls.append(name)
        if name in self.setup.knobs.get("raises", {}):
            raise getattr(builtins, self.setup.knobs["raises"][name])("told to in " + name)
        time.sleep(self.setup.knobs.get("sleep", {}).get(name, 0.0))

    def start(self):
        self._called("start")
        os.environ.update(self.setup.knobs.get("tells", {}))
        os.sched_setaffinity(0, self.setup.knobs.get("binds", os.sched_getaffinity(0)))
        if "binds_thread" in self.setup.knobs:
            self._bind_thread(self.setup.knobs["binds_thread"])
        Outbox.LOOK_EVERY, Outbox.WORK_S = 0.05, 0.005
        os.write(1, b"the toy says hello on its standard output\n")
        return Joined(self.setup.rank, self.setup.knobs.get("world", self.setup.world), "toy", {"toy": "1"})

    def _bind_thread(self, core):
        self.library = ThreadPoolExecutor(1)
        self.library.submit(os.sched_setaffinity, 0, [core]).result()

    def build(self, graph, weights):
        self._called("build")
        if "binds_later" in self.setup.knobs:
            core = self.setup.knobs["binds_later"]
            self._bind_thread(core)
            self.reader = Popen(["sleep", "1000"], preexec_fn=lambda: os.sched_setaffinity(0, [core]))
        path, deadline = self.setup.knobs.get("computes"), time.time() + 240
        while path and time.time() < deadline:
            sum(range(1 << 16))
            with open(path) as stream:
                path = None if "at work" in stream.read() else path

    def synchronize(self):
        pass

    def close(self):
        self._called("close")
        if "binds_later" in self.setup.knobs:
            self.reader.kill()

    def next_batch(self):
        self._called("next_batch")
        return Batch(np.zeros((self.setup.batch, 1)), np.zeros(self.setup.batch, dtype=np.int64))

    def to_device(self, batch):
        self._called("to_device")
        return batch

    def forward(self, batch):
        self._called("forward")

    def backward(self):
        self._called("backward")

    def communicate(self):
        self._called("communicate")

    def update(self):
        self._called("update")

    def step(self, batch):
        self._called("step")

    def step_alone(self, batch):
        self._called("step_alone")

    def loss(self):
        loss = self.setup.knobs.get("loss", 0.5)
        if isinstance(loss, dict):  # by the methods that trained: once it is no number it stays so
            loss = ([loss[call] for call in self.calls if loss.get(call) == "nan"] or [0.5])[-1]
        return float(loss)

    def logits(self):
        return np.zeros((self.setup.batch, 2), dtype=np.float32)

    def gradients(self):
        return {}

    def parameters(self):
        return {}

    def parameter_count(self):
        return 0

    def macs(self):
        return 0

    def maximum(self, value):
        self.calls.append("maximum")
        return value

    def yardstick(self):
        self._called("yardstick")
        return super().yardstick()


class Unread:
    """Stands for the reading of a data set that nobody asks about."""

    def prepare(self):
        pass

    def notes(self):
        return {}


def streamed(trainer):
    return StreamFeed(trainer, Unread())


def loop_of(trainer, sampling, **rule):
    """Its measuring loop, which reports to nobody."""
    return Loop(trainer, sampling._replace(**rule), lambda **_: None)


def passes_of(trainer, sampling, feed=streamed, names=(), **rule):
    """Its passes, which report to nobody."""
    return Passes(trainer, feed(trainer), loop_of(trainer, sampling, **rule), names)


def together(world, work):
    """`work(rank)` on every rank at once, each a thread; results by rank."""
    with ThreadPoolExecutor(world) as pool:
        return list(pool.map(work, range(world)))


class SeveralToy(ToyTrainer):
    """Drives as many devices as it is asked to."""

    def start(self):
        return super().start()._replace(devices=self.setup.devices)


class RefusingToy(ToyTrainer):
    """Finds out on the spot what its adapter could not foresee."""

    def build(self, graph, weights):
        raise Unsupported("%s cannot be cut so often" % graph.name)


class LayeredToy(ToyTrainer):
    """Times one layer: its row says how often each stage ran since the times were forgotten."""

    STAGES = ("forward", "backward", "communicate")

    def __init__(self, setup):
        super().__init__(setup)
        self._forgotten = 0

    def forget_layer_times(self):
        self._forgotten = len(self.calls)

    def layer_times(self, batch):
        since = self.calls[self._forgotten :]
        forward, backward, communication = (float(since.count(stage)) for stage in self.STAGES)
        return [LayerTimes("toy", "dense", forward, backward, communication, bytes=0)]


class SpentToy(ToyTrainer):
    """Fails at everything that follows its passes."""

    def layer_times(self, batch):
        raise RuntimeError("no layers")

    def kernel_times(self, iteration, trace):
        raise RuntimeError("no kernels")

    def parameters(self):
        raise RuntimeError("no parameters")

    def notes(self):
        raise RuntimeError("no notes")


class ProfiledToy(ToyTrainer):
    """Its kernels are the calls within a stage, a second each."""

    def kernel_times(self, iteration, trace):
        seen = []

        @contextmanager
        def within(stage):
            since = len(self.calls)
            yield
            seen.extend((stage, call) for call in self.calls[since:])

        activities = []
        for number in range(PROFILED):
            iteration(within)
            activities += [Activity(stage, number, call, "toy", 0.0, 1.0) for stage, call in seen]
            del seen[:]
        kept = bool(trace) and keep(b"{}", trace)
        return summed(activities, "the toy's own", os.path.basename(trace) if kept else "")


class PackingToy(ToyTrainer):
    """Packs records and reads them back in an order of its own; its knob "slip" says what it gets wrong."""

    def pack(self, form, samples, folder):
        rows = []
        for record in samples:
            self.calls.append("packed")
            if self.calls.count("packed") > self.setup.knobs.get("room", 1 << 30):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), folder)
            encoded = b"" if record.encoded is None else record.encoded
            rows.append((record.number, record.label, record.name, len(encoded), record.image))
        if rows:
            numbers, labels, names, sizes, images = zip(*rows)
            path = os.path.join(folder, "toy.npz")
            np.savez(path, number=numbers, label=labels, name=names, size=sizes, image=np.stack(images))

    def join_parts(self, form, parts, folder):
        if form != "joined":
            return
        assert not os.listdir(folder), "a joined set begins in an empty folder"
        with open(os.path.join(folder, "index.txt"), "w") as stream:
            stream.write("\n".join(os.path.basename(part) for part in parts))

    def open_input(self, source):
        if source.records is None:
            Trainer.open_input(self, source)
            return
        images, labels = [], []
        for path in source.records.paths():
            with np.load(path) as part:
                images.append(part["image"])
                labels.append(part["label"])
        images, labels = np.concatenate(images), np.concatenate(labels)
        order = np.random.RandomState(5).permutation(len(labels))
        self._reader = Batches(images[order], labels[order], self.setup.batch)

    def next_batch(self):
        batch, slip = self._reader.next_batch(), self.setup.knobs.get("slip")
        images, labels = batch.inputs, batch.labels
        if slip == "bgr":  # raw channels in the wrong order, then normalised
            mean, deviation = (
                np.array(x, np.float32).reshape(3, 1, 1) for x in (PHOTOGRAPHS.mean, PHOTOGRAPHS.deviation)
            )
            images = ((images * deviation + mean)[:, ::-1] - mean) / deviation
        elif slip == "order":
            images, labels = images[::-1], labels[::-1]
        elif slip == "floats":
            images = images.astype(np.float32)
        elif slip == "labels":
            labels = labels[..., ::-1]
        elif slip == "raise":
            raise OSError("the reader met a disk that does not answer")
        return Batch(images, labels)

    def notes(self):
        return {"reader": "the toy's"}


class Batches:
    """Endless batches of arrays, always in the same order."""

    def __init__(self, images, labels, size):
        self._images, self._labels, self._size, self._next = images, labels, size, 0

    def next_batch(self):
        chosen = np.arange(self._next, self._next + self._size) % len(self._labels)
        self._next += self._size
        return Batch(self._images[chosen], self._labels[chosen])


class Numbers(Source):
    """Sample i is the number i, of class i modulo `classes`; some cannot be read."""

    name = "numbers"

    def __init__(self, size=10, classes=3, unreadable=()):
        self.size, self.classes, self.unreadable, self.reads = size, classes, unreadable, 0

    def __len__(self):
        return self.size

    def sample(self, index):
        self.reads += 1
        if index in self.unreadable:
            raise OSError("cannot read number %d" % index)
        return np.full((1, 2, 2), index, dtype=np.float32), index % self.classes
