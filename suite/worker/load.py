"""A real load on a rank's cores: a process per core takes a known share of its time, to make the rank a straggler.

Each process computes until it has had its share, by its own processor time, and continues when time has passed. Linux
shares a core by priority (sched(7), "The nice value"); the load's is the higher one: it takes its share even from a
rank that always computes. The load's priority is raised if the system allows it (root, or RLIMIT_NICE); otherwise the
rank's is lowered, and then anything else on the core slows the rank further. The share that was taken is reported.
"""

import contextlib
import math
import os
import resource
import subprocess
import sys
import time
from typing import Collection, Dict, List

SLICE_S = 0.002  # of computation between two looks at the clock
LEVEL = 1.25  # times as much of a core for each nice level
LOOK_BACK_S = 1.0  # a share missed longer ago is not made up for: no burst after a time without the core


class Load:
    """A load that takes a share of the time of each core until `end`; it ends with this process, too."""

    def __init__(self, share: float, cores: Collection[int]) -> None:
        """`share` is above 0 and below 1."""
        self._asked, self._cores, self._began = share, len(cores), time.perf_counter()
        self._processes: List["subprocess.Popen[bytes]"] = []
        for core in sorted(cores):
            words = [sys.executable, "-I", os.path.abspath(__file__), str(os.getpid()), str(core), repr(share)]
            self._processes.append(subprocess.Popen(words))
        levels = above(share)
        own = os.getpriority(os.PRIO_PROCESS, 0)
        try:
            for process in self._processes:
                os.setpriority(os.PRIO_PROCESS, process.pid, own - levels)
        except PermissionError:
            for thread in os.listdir("/proc/self/task"):  # each has a nice value of its own
                with contextlib.suppress(ProcessLookupError):
                    os.setpriority(os.PRIO_PROCESS, int(thread), own + levels)

    def end(self) -> Dict[str, float]:
        """Stop the load; return the share asked for and the share that was taken on average, for the record."""
        before = _children_s()
        for process in self._processes:
            process.terminate()
            process.wait()
        wall = time.perf_counter() - self._began
        return {"asked": self._asked, "taken": (_children_s() - before) / (wall * self._cores)}


def above(share: float) -> int:
    """Return the nice levels that give the load its share against a rank that always computes, and one more.

    There are no more: if other programs keep the load from its share, it leaves the rank its part of the rest.
    """
    return max(0, int(math.ceil(math.log(share / (1.0 - share), LEVEL)))) + 1


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
