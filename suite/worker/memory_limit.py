"""The limit of the memory that a process may allocate.

`memory_limit.py BYTES FILE ARGUMENT...` limits itself and becomes FILE.
"""

import os
import resource
import sys


def limit_memory(most: int) -> None:
    """Limit the bytes that this process, and each that it starts, may allocate of its own; 0: no limit.

    RLIMIT_DATA (Linux, 4.7 and newer): private writable memory, whether it is used yet or not. Memory on a device does
    not count. An allocation beyond the limit fails, and the framework reports it in its own words.
    """
    if most:
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))


if __name__ == "__main__":
    limit_memory(int(sys.argv[1]))
    # Not by runpy: Python's path would begin with suite/worker.
    os.execv(sys.executable, [sys.executable, "-B", "-u"] + sys.argv[2:])
