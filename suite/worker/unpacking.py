"""The size that a packed file may unpack to: a few bytes can promise terabytes, and hold gigabytes of zeros."""

import os

FREE = 1 << 28  # bytes that any file may become
DENSE = 100  # how many times its own size beyond them: pictures and measurements grow to less than ten times


def refuse_bomb(path: str, size: int) -> None:
    """Raise ValueError for a file that promises more bytes than its own size lets one expect."""
    most = max(FREE, DENSE * os.path.getsize(path))
    if size > most:
        raise ValueError("%s promises %d bytes, and a file of its size unpacks to %d at most; write it again unpacked"
                         % (path, size, most))  # fmt: skip
