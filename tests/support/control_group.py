"""A control group with little memory, in which the kernel ends who takes more; as root, with the controller."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

PLACES = (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max"))  # version 1, 2


@contextmanager
def small_group(size: int) -> Iterator[Path]:
    """Its folder; `size` are bytes. Where none can be made, the test is skipped and says so."""
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
