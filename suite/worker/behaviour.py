"""The behaviour that no oracle can show: dropout, a step without an exchange, work that is put off, threads.

A network that is made for them shows the first two in its numbers: ones -> dense (every output 1) -> dropout -> dense
(the identity). The logits of a sample of ones are its mask. Each device gets one such sample, and others that are zero,
all with a label of the device's own. In the last weights, the movement of that label's row is the mask that a native
step drew; the rows of other labels show the gradients that other devices sent. In the first weights, the rows move that
some device kept. NumPy 1.19 or newer.
"""

import os
import time
from contextlib import suppress
from typing import Any, Callable, Dict, Iterator, Optional

import numpy as np

from stagebench.suite.worker.contract import Batch, Call, Unsupported
from stagebench.suite.worker.feed import synthetic
from stagebench.suite.worker.job import Behave
from stagebench.suite.worker.messages import Phase
from stagebench.suite.worker.network import changed_since, sent_bytes, shared_pages, since
from stagebench.suite.worker.noise import SYSTEM, TICK, USER
from stagebench.suite.worker.ranks import Outbox
from stagebench.suite.worker.trainer import Arrays, Trainer
from stagebench.workloads.build import Builder
from stagebench.workloads.graph import Graph
from stagebench.workloads.weights import for_proof

TASKS = "/proc/self/task"
TRY_S = 0.5  # of processor time: the system counts it in hundredths of a second
LIMIT_S = 10.0  # in which several threads may show that they are


def busy_threads(work: Call, enough: float, limit_s: float) -> Optional[float]:
    """Return all threads' processor time over the busiest one's: 1 for one thread, 2 for two that are equally busy.

    `work` is repeated for tries within `limit_s`, of which the largest counts; one that is `enough` is the last. A busy
    machine does not disturb it: threads that wait for a core use no time. None if the system does not count.
    """
    if not os.path.isdir(TASKS):
        return None
    work()
    found = 0.0
    deadline = time.monotonic() + limit_s
    while found < enough and time.monotonic() < deadline:
        before = _seconds()
        begin = time.process_time()
        while time.process_time() - begin < TRY_S:
            work()
        spent = [now - before.get(thread, 0.0) for thread, now in _seconds().items()]
        found = max(found, sum(spent) / max(*spent, 1.0 / TICK))
    return found


def spread(work: Call) -> Optional[float]:
    """Return what `busy_threads` does, of a usual piece of `work`: a thread may hand over to another between two.

    None if the system does not count threads' nanoseconds.
    """
    if not os.path.exists(f"{TASKS}/{os.getpid()}/schedstat"):
        return None
    work()
    found, until = [], time.process_time() + TRY_S
    while time.process_time() < until:
        before = _nanoseconds()
        work()
        spent = [now - before.get(thread, 0) for thread, now in _nanoseconds().items()]
        found.append(sum(spent) / max(*spent, 1))
    return sorted(found)[len(found) // 2]


def _nanoseconds() -> Dict[str, int]:
    """Return each thread's nanoseconds on a processor so far."""
    found = {}
    for thread in os.listdir(TASKS):
        with suppress(OSError):  # the thread has ended
            with open(f"{TASKS}/{thread}/schedstat") as stream:
                found[thread] = int(stream.read().split()[0])
    return found


def _seconds() -> Dict[str, float]:
    """Return each thread's CPU seconds so far."""
    found = {}
    for thread in os.listdir(TASKS):
        try:
            with open(f"{TASKS}/{thread}/stat") as stream:
                fields = stream.read().rpartition(")")[2].split()
        except OSError:  # the thread has ended
            continue
        found[thread] = (int(fields[USER]) + int(fields[SYSTEM])) / TICK
    return found


FEATURES = 256
RATE = 0.25  # far from 1 - RATE: a framework's "keep" and "drop" are mixed up easily
ROUNDS = 8  # 2048 draws: their share's deviation is 0.0096
SHARE_OFF = 0.05
SCALE_OFF = 0.05  # relative; the weights move by less than a hundredth on the way
QUIET = 8192  # bytes that engines may send in a step without an exchange, as a sign of life; a gradient is larger
TOGETHER = 1.3  # busy threads, at least, if the case has several
ALONE = 1.5  # ... and at most, if it has one: next to MXNet's, which computes, 0.27 of a thread issue its work
LAZY_ROUNDS = 6  # of which the least time of each call counts
# Shares of a staged iteration's time: the most that a first question may take beyond a second one, and the least that
# a stage takes which does something. On the network `work`, whose results are small, both are far from any right one.
PUT_OFF, IDLE = 0.1, 0.02
LATER = 4.0  # times its own, what the first question after a stage as small as `update` may take beyond a second one


def work() -> Graph:
    """Return a network that is nearly all one convolution, large enough for several threads."""
    b = Builder("work", (3, 32, 32), 10)
    x = b.conv("first", "input", 32, 3, pad=1)
    x = b.conv("wide", x, 32, 3, pad=1)
    x = b.max_pool("pool", x, 4, 4)
    x = b.flatten("flat", x)
    b.head(b.dense("fc", x, 10))
    return b.graph


def graph() -> Graph:
    """Return the network whose logits are dropout's masks."""
    found = Graph("behaviour", (1, 2, 2), FEATURES)
    x = found.add("flat", "flatten", ("input",))
    x = found.add("ones", "dense", (x,), out=FEATURES)
    x = found.add("drop", "dropout", (x,), rate=RATE)
    found.add_head(found.add("mask", "dense", (x,), out=FEATURES))
    return found


def weights() -> Arrays:
    """Return the weights of `graph`: outputs of 1 before the dropout, the identity after it."""
    zeros = np.zeros(FEATURES, np.float32)
    # Zeros where movements are looked for: added to a 1, float32 would round them away.
    return {
        "ones.weight": np.eye(1, 4, dtype=np.float32).repeat(FEATURES, axis=0),
        "ones.bias": zeros,
        "mask.weight": np.eye(FEATURES, dtype=np.float32),
        "mask.bias": zeros.copy(),
    }


class Look:
    """A check of one trainer, with the batch that shows its masks.

    The case must have plain SGD, without momentum or decay.
    """

    def __init__(self, trainer: Trainer, task: Behave, outbox: Outbox) -> None:
        setup, shares = trainer.setup, task.shares
        self._trainer, self._task, self._outbox = trainer, task, outbox
        self._share = task.samples // shares  # samples of a device
        self._labels = [setup.replica * shares + device for device in range(shares)]
        self._devices = setup.replicas * shares  # of all ranks

    def problems(self) -> Iterator[str]:
        """Yield every problem, with the name of the call that shows it."""
        trainer = self._trainer
        trainer.build(graph(), weights())
        inputs = np.zeros((self._task.samples, 1, 2, 2), np.float32)
        inputs[:: self._share] = 1.0
        labels = np.repeat(np.array(self._labels, np.int64), self._share)
        self._batch = trainer.to_device(Batch(inputs, labels))
        for name in self._task.looks:
            self._outbox.send(Phase(f"the check of {name} (its first calls may compile)"))
            found = list(getattr(self, f"_{name}")())
            yield from found
            if found and name == "laziness":  # steps that are only queued would pile up
                return

    def _staged(self) -> Iterator[str]:
        trainer = self._trainer
        masks = []
        passed, early = True, False
        for _ in range(ROUNDS):
            before = trainer.parameters()["ones.weight"]
            trainer.forward(self._batch)
            rows = trainer.logits()[:: self._share]
            trainer.backward()
            trainer.communicate()
            early = early or bool((trainer.parameters()["ones.weight"] != before).any())
            trainer.update()
            moved = (trainer.parameters()["ones.weight"] != before).any(axis=1)
            masks.append(rows)
            passed = passed and bool((moved == (rows[0] > 0.5)).all())
        yield from mask_problems("forward", np.array(masks))
        if early and "update" in self._task.stages:
            yield "backward: the parameters move before update is called, whose work this is"
        if self._devices == 1 and not passed:
            yield "backward: dropout passes gradients where forward dropped, or none where it kept"

    def _native(self) -> Iterator[str]:
        found = []
        passed = True
        for _ in range(ROUNDS):
            moved = self._moved(self._trainer.step)
            masks = moved["mask.weight"][: self._devices] * self._share * self._devices
            found.append(masks)
            kept = (masks > 0.5).any(axis=0)
            passed = passed and bool((moved["ones.weight"].any(axis=1) == kept).all())
        yield from mask_problems("step", np.array(found))
        if not passed:
            yield "step: dropout passes gradients where it dropped, or none where it kept"

    def _predict(self) -> Iterator[str]:
        answers = self._trainer.predict(self._batch)[:: self._share]
        off = float(np.abs(answers - 1.0).max())
        if not off < SCALE_OFF:
            yield f"predict: without dropout these logits are 1; one is off by {off:.2g}"

    def _step_alone(self) -> Iterator[str]:
        trainer = self._trainer
        if self._devices == 1:
            return
        start = weights()
        trainer.build(graph(), start)
        try:
            moved = self._moved(trainer.step_alone)
        except Unsupported:
            return
        others = [label for label in range(self._devices) if label != self._labels[0]]
        if not any(found.any() for found in moved.values()):
            yield "step_alone: the step trains nothing"
        # A sample pushes its label's row up and all others down, in every tensor where the start is zero.
        rows = [np.where(start[name] == 0.0, found, 0.0)[others] for name, found in moved.items()]
        arrived = any((row > 0.1 / self._share / self._devices).any() for row in rows)
        if arrived:
            yield "step_alone: gradients of other devices arrived"
        trainer.maximum(0.0)
        # The others wait, and send nothing to it; a step that is known to need them would never end.
        if trainer.setup.model_parallel_size == 1 and trainer.setup.rank == 0 and not arrived:
            yield from self._sent()
        trainer.maximum(0.0)

    def _laziness(self) -> Iterator[str]:
        """Yield the calls whose work is done later, by another call or by the question for their results."""
        trainer, batch = self._trainer, self._at_work()
        # Processor time is this process's own, however busy the machine is; a device's work is none of it.
        clock = time.process_time if trainer.setup.device == "cpu" else time.perf_counter

        def backward() -> None:
            trainer.backward()
            trainer.communicate()

        calls = {
            "forward": (lambda: trainer.forward(batch), "loss and logits", lambda: (trainer.loss(), trainer.logits())),
            "backward": (backward, "gradients", trainer.gradients),
            "update": (trainer.update, "parameters", trainer.parameters),
            "step": (lambda: trainer.step(batch), "parameters", trainer.parameters),
        }  # type: Dict[str, Any]

        def seconds(call: Call) -> float:
            trainer.maximum(0.0)  # ranks that wait for others may spin
            begin = clock()
            call()
            trainer.synchronize()
            return clock() - begin

        rounds = [
            {name: [seconds(call) for call in (run, ask, ask)] for name, (run, _, ask) in calls.items()}
            for _ in range(1 + LAZY_ROUNDS)
        ]
        least = {name: [min(times) for times in zip(*(one[name] for one in rounds[1:]))] for name in calls}
        whole = sum(sum(least[name][:2]) for name in ("forward", "backward", "update"))
        for name, (_, results, _) in calls.items():
            own, first, again = (each / max(whole, 1e-9) for each in least[name])
            small = name == "update" and name in self._task.stages
            if first - again > (min(PUT_OFF, LATER * own) if small else PUT_OFF):
                yield (
                    f"{name}: its work is put off until its {results} are asked for; do all of it in {name}, or "
                    "wait for it in synchronize"
                )
            elif name in self._task.stages and not small and own < IDLE:
                yield f"{name}: does nothing, and another call does its work"

    def _threads(self) -> Iterator[str]:
        trainer, batch = self._trainer, self._at_work()

        def step() -> None:
            trainer.step(batch)
            trainer.synchronize()

        if trainer.setup.threads == 1:
            shared = spread(step)
            if shared is not None and shared > ALONE:
                yield f"step: 1 thread was asked for, and {shared:.1f} share the work; look at how start sets them"
            return
        found = busy_threads(step, TOGETHER, LIMIT_S)
        if found is not None and found < TOGETHER:
            threads = f"{trainer.setup.threads} threads were asked for, and {found:.1f} share the work"
            yield f"step: {threads}; look at how start sets them"

    def _at_work(self) -> Any:
        """Build the network `work`; return a batch for it."""
        trainer = self._trainer
        trainer.build(work(), for_proof(work()))
        return trainer.to_device(synthetic(work(), self._task.samples, trainer.setup.seed))

    def _sent(self) -> Iterator[str]:
        """Yield a problem if two steps of this rank send data while the other ranks wait.

        A step that needs the other ranks never ends.
        """
        self._outbox.send(Phase("step_alone of rank 0, while the others stand still"))
        on_cpu = self._trainer.setup.device == "cpu"  # a GPU's driver shares memory with its processes
        before = sent_bytes()
        pages = shared_pages() if on_cpu else {}
        for _ in range(2):
            self._trainer.step_alone(self._batch)
        self._trainer.synchronize()
        sent = since(before)
        shared = changed_since(pages) if on_cpu else 0
        if sent > QUIET:
            yield f"step_alone: {sent} bytes were sent to other processes in two steps"
        if shared > QUIET:
            yield f"step_alone: {shared} bytes shared with other processes changed in two steps"

    def _moved(self, step: Callable[[Any], None]) -> Arrays:
        """Return the change of each parameter in one step, divided by the learning rate."""
        before = {name: found.copy() for name, found in self._trainer.parameters().items()}
        step(self._batch)
        rate = self._trainer.setup.optimiser.lr
        return {name: (found - before[name]) / rate for name, found in self._trainer.parameters().items()}


def mask_problems(call: str, masks: np.ndarray) -> Iterator[str]:
    """Yield the problems of masks (rounds, devices, FEATURES), whose numbers should be 0 or 1 / (1 - RATE)."""
    kept = masks > 0.5
    wanted = 1.0 / (1.0 - RATE)
    dropped = 1.0 - kept.mean()
    if abs(dropped - RATE) > SHARE_OFF:
        yield f"{call}: dropout of rate {RATE:g} drops {dropped:.3f} of all numbers"
    if kept.any():
        scale = float(np.median(masks[kept]))
        if abs(scale / wanted - 1.0) > SCALE_OFF:
            yield f"{call}: what dropout keeps is scaled by {scale:.3f}, not by 1 / (1 - {RATE:g}) = {wanted:.3f}"
    if dropped and (kept[1:] == kept[:-1]).all(axis=2).any():
        yield f"{call}: a step drops the same numbers as the step before"
    if dropped and (kept[:, 1:] == kept[:, :-1]).all(axis=2).any():
        yield f"{call}: two devices drop the same numbers"
