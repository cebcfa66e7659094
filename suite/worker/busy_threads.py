"""How many threads do the work, by each one's processor time: the same where others keep the machine's cores busy.

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
    """All threads' processor time over the busiest one's while work is repeated: 1 for one thread, 2 for two in step.

    The most of several tries, as one that is `enough` is the last. None where the system does not count.
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
    """Of processor time so far, by thread."""
    found = {}
    for thread in os.listdir(TASKS):
        try:
            with open("%s/%s/stat" % (TASKS, thread)) as stream:
                fields = stream.read().rpartition(")")[2].split()
        except OSError:  # it has ended meanwhile
            continue
        found[thread] = (int(fields[USER]) + int(fields[SYSTEM])) / float(TICK)
    return found
