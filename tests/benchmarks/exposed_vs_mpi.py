"""Exposed communication, as the suite measures it, against a clock around the exchange and MPI's own seconds.

    PYTHONPATH=. .tox/caffempi/bin/python tests/benchmarks/exposed_vs_mpi.py mnist_large:2 alexnet:1

Two ranks on this machine. Our figure is native less compute_only, the slowest rank's of each, from blocks in turns. The
other is taken in the same native blocks: how long the training thread was in the exchange, from handing a layer over
until a piece has arrived; a library that is loaded before MPI (mpi_seconds.c) counts how much of that was inside MPI or
given away while it waited. On one machine nobody else brings messages forward, so nothing is hidden: what is neither
computing nor updating is this. Of the ranks the one that waits least counts, since the others wait for it.
"""

import ctypes
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from alternating import interval
from figures import figure, told

from adapters.caffempi.worker import trainer
from suite.worker.job import Sampling
from suite.worker.loop import BLOCK_STEPS, Loop, Side
from tests.support import processes, rank
from workloads import weights
from workloads.networks import by_name

WORLD = 2
BOUND = 5.0  # percent
SAMPLING = Sampling(warmup_steps=6, warmup_limit_s=10.0, steps=60, seconds=20.0)
WARMUP = 5


def main():
    figures = []
    for case in sys.argv[1:]:
        name, batch = case.split(":")
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            tokens = processes.rank_tokens(
                Path(__file__), "exposed", folder, by_name()[name].graph().without_dropout(), batch=int(batch)
            )
            environ = processes.mpi_variables(LD_PRELOAD=preloaded(folder))
            processes.run_together([([*processes.mpiexec(), "-n", WORLD, *tokens], environ)], limit=600)
            figures += compared(name, processes.found_by(folder, WORLD))
    return told(figures)


def preloaded(folder):
    """The library that counts, compiled against the MPI of the interpreter's environment."""
    source, library = Path(__file__).with_name("mpi_seconds.c"), folder / "mpi_seconds.so"
    beside = Path(sys.executable).with_name("mpicc")
    compiler = str(beside) if beside.exists() else "mpicc"
    subprocess.run([compiler, "-shared", "-fPIC", "-O2", "-o", library, source, "-ldl"], check=True)
    return library


def exposed(ours, graph, folder):
    """A rank's task: [native, compute_only] seconds a step of every pair of blocks, and of its exchange, in MPI."""
    counter = ctypes.CDLL(None).communicating_seconds
    counter.restype = ctypes.c_double
    ours.build(graph, dict(weights.initial(graph)))
    batch = rank.placed(ours, graph)
    for _ in range(WARMUP):
        ours.step(batch)
    exchange = ours._exchange = Timed(ours._exchange)
    found = []

    def step():
        before = exchange.seconds, counter()
        ours.step(batch)
        found.append([exchange.seconds - before[0], counter() - before[1]])

    loop = Loop(ours, SAMPLING, lambda **_: None)
    _, pairs = loop.in_turns("compute_only", Side(step), Side(lambda: ours.step_alone(batch)))
    blocks = np.reshape(found[BLOCK_STEPS:], (len(pairs), -1, 2))  # in_turns begins with steps that no block holds
    return {"pairs": pairs, "exchanging": blocks.mean(axis=1).tolist()}


class Timed:
    """An exchange, and the seconds that the training thread spent in it."""

    def __init__(self, exchange):
        self._exchange, self.seconds = exchange, 0.0

    def __getattr__(self, name):
        return getattr(self._exchange, name)

    def layer_done(self, layer):
        self._timed(lambda: self._exchange.layer_done(layer))

    def finish(self):
        arriving = self._exchange.finish()
        yield from iter(lambda: self._timed(lambda: next(arriving, None)), None)

    def _timed(self, work):
        begin = time.perf_counter()
        found = work()
        self.seconds += time.perf_counter() - begin
        return found


def compared(name, ranks):
    """The figures of one network."""
    pairs = np.max([each["pairs"] for each in ranks], axis=0)
    exchanging, in_mpi = np.min([each["exchanging"] for each in ranks], axis=0).T
    native, exposed_s, whole, inside = np.median([pairs[:, 0], pairs[:, 0] - pairs[:, 1], exchanging, in_mpi], axis=1)
    apart = (100.0 * (pairs[:, 0] - pairs[:, 1] - exchanging) / whole).tolist()
    value, ends = statistics.median(apart), interval(apart)
    print(
        f"{name}: iteration {1e3 * native:.1f} ms, exposed {1e3 * exposed_s:.2f} ms, exchanging {1e3 * whole:.2f} ms "
        f"({1e3 * inside:.2f} ms in MPI); {value:+.1f} % ({ends[0]:+.1f} to {ends[1]:+.1f}), {len(pairs)} pairs of blocks"
    )
    what = f"Caffe-MPI, {name}: exposed communication"
    interval_ = round(ends[0], 2), round(ends[1], 2)
    return [
        figure(what + ", apart from the time in the exchange", round(abs(value), 2), "%", interval_, at_most=BOUND),
        figure(what, round(1e3 * exposed_s, 2), "ms"),
        figure(what + ": the time in the exchange", round(1e3 * whole, 2), "ms"),
        figure(what + ": of that in MPI", round(1e3 * inside, 2), "ms"),
    ]


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] == "exposed":
        rank.main(trainer, {"exposed": exposed}, strategy="data_parallel", tuning="tuned")
    else:
        sys.exit(main())
