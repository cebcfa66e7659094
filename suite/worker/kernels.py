"""The kernels of staged iterations: from a framework's profile to the rows of a record.

A trainer runs WARMUP iterations, then PROFILED ones under its framework's profiler, and reports every kernel's call as
an `Activity` of the stage in which it ran. A stage's seconds are those in which any kernel ran: streams and devices may
work side by side. A kernel's own seconds are the sum of its calls.
"""

import gzip
from bisect import bisect_right
from statistics import median
from typing import Dict, Iterable, List, NamedTuple, Tuple

from stagebench.suite.worker.contract import KernelTimes
from stagebench.suite.worker.messages import Kernels

STAGES = ("h2d", "forward", "backward", "communication", "update")
WARMUP, PROFILED = 3, 5  # iterations: the first ones under a profiler pay for its start
MOST = 200  # rows; the others are summed up
OTHERS = "others"
TRACE, LARGEST = "kernels-0.json.gz", 8 << 20  # rank 0's file next to its messages; bytes at most, compressed


class Activity(NamedTuple):
    """A call of a kernel; seconds on any clock."""

    stage: str
    iteration: int  # of the profiled ones, from 0
    name: str
    kind: str  # as of KernelTimes
    begin: float
    end: float


class Ranges:
    """The stages of all profiled iterations on the host's time line, in any unit; none of them overlap."""

    def __init__(self, spans: Iterable[Tuple[str, float, float]]) -> None:
        """`spans` are each stage's name, begin and end."""
        ordered = sorted(spans, key=lambda span: span[1])
        seen: Dict[str, int] = {}
        self._begins = [begin for _, begin, _ in ordered]
        self._ends = [end for _, _, end in ordered]
        self._named: List[Tuple[str, int]] = []
        for stage, _, _ in ordered:
            self._named.append((stage, seen.setdefault(stage, 0)))
            seen[stage] += 1
        self.begin = self._begins[0] if self._begins else 0.0

    def of(self, begin: float, end: float) -> Tuple[str, int]:
        """Return a call's (stage, iteration from 0), by the middle of the call: a device's clock may differ.

        A call outside all stages: ("", 0).
        """
        middle = begin + (end - begin) / 2.0
        index = bisect_right(self._begins, middle) - 1
        return self._named[index] if index >= 0 and middle <= self._ends[index] else ("", 0)


def summed(activities: Iterable[Activity], profiler: str, trace: str = "") -> Kernels:
    """Return all calls of the PROFILED iterations as a message."""
    spans: Dict[str, List[List[Tuple[float, float]]]] = {stage: [[] for _ in range(PROFILED)] for stage in STAGES}
    taken: Dict[Tuple[str, str, str], List[List[float]]] = {}
    for each in activities:
        if each.iteration >= PROFILED:  # the profiler recorded more than it was asked for
            continue
        spans[each.stage][each.iteration].append((each.begin, each.end))
        called = taken.setdefault((each.stage, each.name, each.kind), [[] for _ in range(PROFILED)])
        called[each.iteration].append(each.end - each.begin)
    rows = [
        KernelTimes(stage, name, kind, sum(map(len, calls)) / PROFILED, median(map(sum, calls)))
        for (stage, name, kind), calls in taken.items()
    ]
    busy = {stage: median(map(union, found)) for stage, found in spans.items()}
    return Kernels(busy, longest(rows), profiler, trace)


def union(spans: Iterable[Tuple[float, float]]) -> float:
    """Return the seconds that are within any of the spans."""
    total = 0.0
    last = float("-inf")
    for begin, end in sorted(spans):
        if end > last:
            total += end - max(begin, last)
            last = end
    return total


def longest(rows: Iterable[KernelTimes]) -> List[KernelTimes]:
    """Return MOST rows, the longest first, and after them the sums of the others."""
    ordered = sorted(rows, key=lambda row: -row.seconds)
    sums: Dict[Tuple[str, str], KernelTimes] = {}
    for row in ordered[MOST:]:
        so_far = sums.get((row.stage, row.kind), row._replace(name=OTHERS, calls=0.0, seconds=0.0))
        sums[row.stage, row.kind] = so_far._replace(
            calls=so_far.calls + row.calls, seconds=so_far.seconds + row.seconds
        )
    return ordered[:MOST] + list(sums.values())


def keep(trace: bytes, path: str) -> bool:
    """Write a trace's JSON text to the file, gzipped; return False, and write nothing, if it is too large."""
    packed = gzip.compress(trace, 6)
    if len(packed) > LARGEST:
        return False
    with open(path, "wb") as stream:
        stream.write(packed)
    return True
