"""A real load beside a rank: processes that take a known share of its cores' time, to make a straggler of it.

The scheduler of Linux shares a core evenly among those who want it. Beside a rank that computes all the time, k
processes could take k/(k+1) of a core; each stops when it has had its part of the share, by its own processor time,
and goes on when time has passed. What they took is reported: it is less where the rank has priority.
"""

import math
import os
import resource
import subprocess
import sys
import time
from typing import Collection, Dict, List

SLICE_S = 0.002  # of computation between two looks at the clock
LOOK_BACK_S = 1.0  # what was missed longer ago is not made up for: no burst after a time without the core


class Load:
    """Takes a share of the time of each core, from the start to `end`; it ends with this process, too."""

    def __init__(self, share: float, cores: Collection[int]) -> None:
        """`share` is above 0 and below 1."""
        self._asked, self._cores, self._began = share, len(cores), time.perf_counter()
        self._processes: List["subprocess.Popen[bytes]"] = []
        per_core = most_even(share)
        for core in sorted(cores):
            for _ in range(per_core):
                words = [sys.executable, "-I", os.path.abspath(__file__), str(os.getpid()), str(core)]
                self._processes.append(subprocess.Popen(words + [repr(share / per_core)]))

    def end(self) -> Dict[str, float]:
        """For the record: the share asked for, and the share that was taken on average."""
        before = _children_s()
        for process in self._processes:
            process.terminate()
            process.wait()
        wall = time.perf_counter() - self._began
        return {"asked": self._asked, "taken": (_children_s() - before) / (wall * self._cores)}


def most_even(share: float) -> int:
    """The fewest processes that get the share of a core beside one that always computes."""
    return max(1, int(math.ceil(share / (1.0 - share) - 1e-9)))


def burn(parent: int, core: int, share: float) -> None:
    """Compute for a share of the time on a core, as long as the parent lives."""
    os.sched_setaffinity(0, {core})
    last, owed = time.perf_counter(), 0.0
    while os.getppid() == parent:
        used = time.process_time()
        while owed > 0.0 and time.process_time() - used < SLICE_S:
            pass
        if owed <= 0.0:
            time.sleep(SLICE_S)
        now = time.perf_counter()
        owed = min(owed + (now - last) * share, LOOK_BACK_S * share) - (time.process_time() - used)
        last = now


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    burn(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
