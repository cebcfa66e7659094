"""Exposed communication, as the suite measures it, against clocks around what exchanging adds, and MPI's seconds.

    PYTHONPATH=. .tox/caffempi/bin/python tests/benchmarks/exposed_vs_mpi.py mnist_large:2 alexnet:1

Two ranks on this machine. Our figure is native less compute_only, the slowest rank's of each, from blocks in turns. The
other is taken in the same blocks by clocks around two of the trainer's parts. The training thread is in the exchange
from handing a layer over until a piece has arrived; on one machine nobody else brings messages forward, so nothing is
hidden. And the native step updates piece by piece, each while a cache holds it, where compute_only updates all at once:
what that takes more or less belongs to exchanging, too. Of the ranks the one that waits least counts, since the others
wait for it. A library that is loaded before MPI (mpi_seconds.c) counts how much of the exchange is inside MPI, or given
away while it waits.
"""

import ctypes
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np
from alternating import interval
from figures import figure, told

from adapters.caffempi.worker import trainer
from suite.worker.job import Sampling
from suite.worker.loop import BLOCK_STEPS, FIRST, Loop, Side
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
    """A rank's task: seconds a step of every pair of blocks: [native, compute_only], added by exchanging, in MPI."""
    counter = ctypes.CDLL(None).communicating_seconds
    counter.restype = ctypes.c_double
    ours.build(graph, dict(weights.initial(graph)))
    batch = rank.placed(ours, graph)
    for _ in range(WARMUP):
        ours.step(batch)
    exchange, solver = Timed(ours._exchange), Timed(ours._solver)
    ours._exchange, ours._solver = exchange, solver
    native, alone = [], []

    def timed(step, found):
        before = exchange.seconds, solver.seconds, counter()
        step(batch)
        found.append(np.subtract((exchange.seconds, solver.seconds, counter()), before))

    sides = Side(lambda: timed(ours.step, native)), Side(lambda: timed(ours.step_alone, alone))
    [(_, pairs)] = Loop(ours, SAMPLING, lambda **_: None).in_turns("compute_only", *sides)
    # in_turns begins with steps that no block holds.
    native, alone = (
        np.reshape(found[first:], (len(pairs), -1, 3)).mean(axis=1)
        for found, first in ((native, BLOCK_STEPS), (alone, FIRST))
    )
    added = native[:, 0] + native[:, 1] - alone[:, 1]
    return {"pairs": pairs, "added": added.tolist(), "in_mpi": native[:, 2].tolist()}


class Timed:
    """A part of a trainer, and the seconds that its methods took."""

    def __init__(self, part):
        self._part, self.seconds = part, 0.0

    def __getattr__(self, name):
        found = getattr(self._part, name)
        return partial(self._timed, found) if callable(found) else found

    def finish(self):
        """An exchange's pieces: while one is updated, no time is counted."""
        arriving = self._part.finish()
        yield from iter(lambda: self._timed(next, arriving, None), None)

    def _timed(self, work, *given):
        begin = time.perf_counter()
        found = work(*given)
        self.seconds += time.perf_counter() - begin
        return found


def compared(name, ranks):
    """The figures of one network."""
    pairs = np.max([each["pairs"] for each in ranks], axis=0)
    added, in_mpi = (np.min([each[name] for each in ranks], axis=0) for name in ("added", "in_mpi"))
    exposed_s = pairs[:, 0] - pairs[:, 1]
    native, ours, theirs, inside = 1e3 * np.median([pairs[:, 0], exposed_s, added, in_mpi], axis=1)
    apart = (1e5 * (exposed_s - added) / theirs).tolist()
    value, low, high = round(statistics.median(apart), 2), *np.round(interval(apart), 2).tolist()
    print(
        f"{name}: iteration {native:.1f} ms, exposed {ours:.2f} ms, by the clocks {theirs:.2f} ms, {inside:.2f} ms in "
        f"MPI; {value:+.1f} % ({low:+.1f} to {high:+.1f}) apart, {len(pairs)} pairs of blocks"
    )
    what = f"Caffe-MPI, {name}: exposed communication"
    return [
        figure(what + ", apart from the clocks'", abs(value), "%", (low, high), at_most=BOUND),
        figure(what, round(ours, 2), "ms"),
        figure(what + " by the clocks", round(theirs, 2), "ms"),
        figure(what + ": inside MPI", round(inside, 2), "ms"),
    ]


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] == "exposed":
        rank.main(trainer, {"exposed": exposed}, strategy="data_parallel", tuning="tuned")
    else:
        sys.exit(main())
