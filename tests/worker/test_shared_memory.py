"""What is written into shared memory is seen; what is a process's own is not."""

import mmap
import os
import sys

import pytest

from suite.worker.network import changed_since, shared_pages

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@pytest.mark.parametrize("backed", [False, True], ids=["anonymous", "file"])
def test_bytes_that_another_process_can_read_are_counted(backed, tmp_path):
    with (tmp_path / "segment").open("w+b") as file:
        file.truncate(4 * mmap.PAGESIZE)
        with mmap.mmap(file.fileno() if backed else -1, 4 * mmap.PAGESIZE) as memory:
            memory[:3] = b"old"
            before = shared_pages()
            assert changed_since(before) == 0
            memory[:3] = b"new"
            memory[2 * mmap.PAGESIZE :] = b"g" * 2 * mmap.PAGESIZE  # not touched before
            assert changed_since(before) == 3 + 2 * mmap.PAGESIZE


def test_a_process_s_own_memory_is_not():
    with mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        before = shared_pages()
        memory[:] = os.urandom(mmap.PAGESIZE)
        assert changed_since(before) == 0
