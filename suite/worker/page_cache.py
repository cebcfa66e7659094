"""The state of the page cache before a pass: files in it, or out of it."""

import ctypes
import os
from typing import List

MADV_DONTNEED = 4  # Linux' number; Python knows it from 3.8


def page_cache(paths: List[str], wanted: str) -> None:
    """Bring files into the page cache ("warm") or out of it ("cold"); "as is" leaves them.

    Dropping clean pages needs no rights; OSError names a file that cannot be opened.
    """
    if wanted == "as is":
        return
    if wanted == "cold":
        let_go(paths)
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            if wanted == "cold":
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            else:
                while os.read(descriptor, 1 << 20):
                    pass
        finally:
            os.close(descriptor)


def let_go(paths: List[str]) -> None:
    """Release the pages of files that this process has mapped (LMDB's): the kernel drops none that are in use.

    The next access fetches them again, so only mappings that share the file's own pages are released.
    """
    wanted = {os.path.realpath(path) for path in paths}
    system = ctypes.CDLL(None)
    with open("/proc/self/maps", errors="surrogateescape") as stream:
        lines = [line.rstrip("\n").split(None, 5) for line in stream]
    for line in lines:
        if len(line) == 6 and line[1].endswith("s") and line[5] in wanted:
            begin, end = (int(word, 16) for word in line[0].split("-"))
            system.madvise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), MADV_DONTNEED)
