"""Little memory, for what must not ask for more.

Oldest Python: 3.6.
"""

import resource
from contextlib import contextmanager


@contextmanager
def little_memory(spare=1 << 28):
    """Within it this process gets so many bytes more than it has; MemoryError beyond them. Only Linux keeps to it."""
    before = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (held() + spare, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


def held():
    """Bytes of writable memory that is this process's alone, used or not: what RLIMIT_DATA counts."""
    with open("/proc/self/status") as stream:
        return next(1024 * int(line.split()[1]) for line in stream if line.startswith("VmData:"))
