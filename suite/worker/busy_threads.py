"""The number of busy threads, by each thread's processor time: other programs on the cores do not change it.

Linux only. Standard library only.
"""

import os
import time
from typing import Callable, Dict, Optional

from suite.worker.noise import SYSTEM, TICK, USER

TASKS = "/proc/self/task"
TRY_S = 0.5  # of processor time: the system counts it in hundredths of a second
LIMIT_S = 10.0


def busy_threads(work: Callable[[], None], enough: float) -> Optional[float]:
    """Return all threads' processor time over the busiest one's: 1 for one thread, 2 for two that are equally busy.

    `work` is repeated for several tries, of which the largest counts; a try that is `enough` is the last. None if the
    system does not count.
    """
    if not os.path.isdir(TASKS):
        return None
    work()
    found, deadline = 0.0, time.monotonic() + LIMIT_S
    while found < enough and time.monotonic() < deadline:
        before, begin = _seconds(), time.process_time()
        while time.process_time() - begin < TRY_S:
            work()
        spent = [now - before.get(thread, 0.0) for thread, now in _seconds().items()]
        found = max(found, sum(spent) / max(*spent, 1.0 / TICK))
    return found


def _seconds() -> Dict[str, float]:
    """Return each thread's CPU seconds so far."""
    found = {}
    for thread in os.listdir(TASKS):
        try:
            with open("%s/%s/stat" % (TASKS, thread)) as stream:
                fields = stream.read().rpartition(")")[2].split()
        except OSError:  # the thread has ended
            continue
        found[thread] = (int(fields[USER]) + int(fields[SYSTEM])) / float(TICK)
    return found
