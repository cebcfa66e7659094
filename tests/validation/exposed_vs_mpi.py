"""Exposed communication, as the suite measures it, against MPI's seconds by its profiling interface, part by part.

    PYTHONPATH=. .tox/caffempi/bin/python tests/validation/exposed_vs_mpi.py mnist_large:2 alexnet:1 alexnet:1:layerwise

Two ranks on this machine. Our figure is native less compute_only, the slowest rank's of each, from blocks in turns. The
others are taken in the same blocks, of the rank that waits least, since the others wait for it:

- inside MPI: a library that is loaded before MPI (mpi_seconds.c) counts the training thread's seconds inside MPI's
  functions, or given away while it waits for them. That thread alone brings messages forward, between layers too
  (`layerwise`: each leaves as its backward ends): while it is in MPI it computes nothing.
- the exchange's own work outside of MPI: clocks around its methods, less the seconds inside MPI. Handing layers over,
  cutting them into pieces, looking after what is on its way, all in Python.
- updating: the native step updates piece by piece, each while a cache holds it, where compute_only updates all at once.
  What that takes more, or less, belongs to exchanging, too.

The sum of the three is wanted within 5 % of ours. The seconds inside MPI by themselves have no bound: what is not MPI
took from nothing to two fifths of that, for an exchange of 250 MB, on different days and machines.
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

from stagebench.suite.worker.case_parts import Sampling
from stagebench.suite.worker.loop import BLOCK_STEPS, FIRST, Loop, Side
from stagebench.workloads import weights
from stagebench.workloads.networks import by_name
from tests.support import processes, rank
from tests.support.trainers import by_strategy

trainer = by_strategy("caffempi")

WORLD = 2
BOUND = 5.0  # percent
PARTS = ("inside MPI", "the exchange's own work", "updating by pieces, not at once")
SAMPLING = Sampling(warmup_steps=6, warmup_limit=10.0, steps=60, seconds=40.0)
WARMUP = 5


def main():
    figures = []
    for case in sys.argv[1:]:
        name, batch, *overlap = case.split(":")
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            options = {"batch": int(batch), **({"overlap": overlap[0]} if overlap else {})}
            graph = by_name()[name].graph().without_dropout()
            tokens = processes.rank_tokens(Path(__file__), "exposed", folder, graph, **options)
            environ = processes.mpi_variables(LD_PRELOAD=preloaded(folder))
            processes.run_together([([*processes.mpiexec(), "-n", WORLD, *tokens], environ)], limit=600)
            figures += compared(", ".join([name, *overlap]), processes.found_by(folder, WORLD))
    return told(figures)


def preloaded(folder):
    """The library that counts, compiled against the MPI of the interpreter's environment."""
    source, library = Path(__file__).with_name("mpi_seconds.c"), folder / "mpi_seconds.so"
    beside = Path(sys.executable).with_name("mpicc")
    compiler = str(beside) if beside.exists() else "mpicc"
    subprocess.run([compiler, "-shared", "-fPIC", "-O2", "-o", library, source, "-ldl"], check=True)
    return library


def exposed(ours, graph, folder):
    """A rank's task: seconds a step of every pair of blocks: [native, compute_only], and of the exchange's PARTS."""
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
    parts = native[:, 2], native[:, 0] - native[:, 2], native[:, 1] - alone[:, 1]
    return {"pairs": pairs, "parts": np.transpose(parts).tolist()}


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
    every = np.array([each["parts"] for each in ranks])  # rank, pair of blocks, part
    least = every.sum(axis=2).argmin(axis=0)
    parts = every[least, np.arange(len(pairs))]
    exposed_s, in_mpi, added = pairs[:, 0] - pairs[:, 1], parts[:, 0], parts.sum(axis=1)
    print(f"{name}: iteration {1e3 * np.median(pairs[:, 0]):.1f} ms, {len(pairs)} pairs of blocks")
    what = f"Caffe-MPI, {name}: exposed communication"
    return [
        figure(what, milliseconds(exposed_s), "ms", interval((1e3 * exposed_s).tolist())),
        *(figure(f"{what}: {part}", milliseconds(of), "ms") for part, of in zip(PARTS, parts.T, strict=True)),
        apart(what + ", apart from the sum of these", exposed_s, added, BOUND),
        apart(what + ", apart from the seconds inside MPI", exposed_s, in_mpi, None),
    ]


def milliseconds(found):
    return round(1e3 * float(np.median(found)), 2)


def apart(what, ours, theirs, bound):
    """How much more of ours there is, in per cent of what is usual of theirs, by pairs of blocks."""
    percent = (100.0 * (ours - theirs) / np.median(theirs)).tolist()
    ends = {} if bound is None else {"at_least": -bound, "at_most": bound}
    found = figure(what, round(statistics.median(percent), 2), "%", np.round(interval(percent), 2).tolist(), **ends)
    print(f"{what}: {found['value']:+.1f} % ({found['low']:+.1f} to {found['high']:+.1f})")
    return found


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] == "exposed":
        rank.main(trainer, {"exposed": exposed}, strategy="data_parallel", tuning="tuned")
    else:
        sys.exit(main())
