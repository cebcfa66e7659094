"""What a process may allocate. `memory_limit.py BYTES FILE ARGUMENT...` limits itself and becomes FILE."""

import os
import resource
import sys


def limit_memory(most: int) -> None:
    """Let this process, and each that it starts, allocate no more bytes of its own than this; 0: no limit.

    RLIMIT_DATA (Linux, 4.7 and newer): writable memory that is shared with nobody, whether it is used yet or not. What
    lies on a device does not count. An allocation beyond it fails, and the framework says so in its own words.
    """
    if most:
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))


if __name__ == "__main__":
    limit_memory(int(sys.argv[1]))
    # Not by runpy: Python's path would begin with suite/worker.
    os.execv(sys.executable, [sys.executable, "-B", "-u"] + sys.argv[2:])
