"""Little memory: for what must not ask for more, and for what the kernel ends when it takes more.

Oldest Python: 3.6.
"""

import os
import resource
from contextlib import contextmanager
from pathlib import Path

import pytest


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


PLACES = (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max"))  # version 1, 2


@contextmanager
def small_group(size):
    """The folder of a control group of `size` bytes; where none can be made, the test is skipped and says so."""
    for place, limit in PLACES:
        folder = Path(place, f"stagebench-test-{os.getpid()}")
        try:
            folder.mkdir()
            if (folder / limit).exists():
                (folder / limit).write_text(str(size))
                break
            folder.rmdir()
        except OSError:
            continue
    else:
        pytest.skip("no control group with a memory limit can be made here (needs root and cgroup's memory controller)")
    yield folder
    folder.rmdir()
