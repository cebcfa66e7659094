"""Files in and out of the page cache."""

import ctypes
import mmap
import os

import pytest

from suite.worker.view import page_cache

SIZE = 1 << 22


def test_files_leave_the_page_cache_and_come_back(tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.write_bytes(os.urandom(1 << 20))
    advice = []
    monkeypatch.setattr(os, "posix_fadvise", lambda *what: advice.append(what[1:]))
    page_cache([str(path)], "as is")
    page_cache([str(path)], "warm")
    assert advice == []
    page_cache([str(path)], "cold")
    assert advice == [(0, 0, os.POSIX_FADV_DONTNEED)]
    with pytest.raises(OSError, match="nowhere"):
        page_cache([str(tmp_path / "nowhere")], "cold")


def test_a_mapped_file_leaves_it_too(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(os.urandom(SIZE))
    os.sync()  # what is not written yet cannot be dropped
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        page_cache([str(path)], "cold")
        if there(path) > SIZE // 2:
            pytest.skip("this file system keeps its files in memory")
        content = bytes(mapped)
        assert there(path) == SIZE
        page_cache([str(path)], "cold")
        assert there(path) < SIZE // 2
        assert bytes(mapped) == content == path.read_bytes()


def there(path):
    """Bytes of a file that are in the page cache, as mincore(2) tells."""
    with path.open("r+b") as stream, mmap.mmap(stream.fileno(), 0) as mapped:
        pages = (ctypes.c_ubyte * (SIZE // mmap.PAGESIZE))()
        held = ctypes.c_char.from_buffer(mapped)
        failed = ctypes.CDLL(None).mincore(ctypes.c_void_p(ctypes.addressof(held)), ctypes.c_size_t(SIZE), pages)
        del held
        assert not failed
        return sum(page & 1 for page in pages) * mmap.PAGESIZE
