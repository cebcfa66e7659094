"""Message sizes as people write them: "4:256M" is every power of 4 times 4 bytes up to 256 MiB."""

import re

from suite.errors import RequestError

UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}  # binary, as the powers of 4 are
FACTOR = 4
ITEMSIZE = 4  # every size is a multiple of it: a number of float32, two of the smaller types
LARGEST = 1 << 33  # bytes; beyond it counts no longer fit the libraries' integers


def sizes_from(option: str) -> tuple[int, ...]:
    """Read "LOW:HIGH" as low, 4 x low, ... up to high, in bytes, and "SIZE" as one size.

    RequestError for another form, a size that is no multiple of 4 bytes, or HIGH below LOW.
    """
    low, colon, high = option.partition(":")
    begin = _bytes(low, option)
    end = _bytes(high, option) if colon else begin
    if end < begin:
        raise RequestError(f"--sizes {option!r} ends below its beginning; write LOW:HIGH, such as 4:64M")
    sizes = [begin]
    while sizes[-1] * FACTOR <= end:
        sizes.append(sizes[-1] * FACTOR)
    return tuple(sizes)


def _bytes(text: str, option: str) -> int:
    match = re.fullmatch(r"(\d+)\s*([KMG]?)I?B?", text.strip().upper())
    size = int(match.group(1)) * UNITS[match.group(2)] if match else 0
    if not 0 < size <= LARGEST or size % ITEMSIZE:
        raise RequestError(
            f"--sizes {option!r}: {text!r} is no message size; write bytes in multiples of {ITEMSIZE} with K, M or G, "
            "at most 8G: 4:64M, 1K:1M, 16M"
        )
    return size


def written(size: int) -> str:
    """Write 4 B, 1 KiB, 97.5 MiB; exact for whole numbers of a unit."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size / unit:.4g} {name}"
    return f"{size} B"
