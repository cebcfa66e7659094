"""The data sent through memory that processes share, as MPI sends them on one host, whatever library maps it.

They are found by the memory's contents, before and after: the kernel counts none of them. Data that another process
copies out of this one's own memory are not seen. Linux only; elsewhere nothing is counted. Standard library only.
"""

import contextlib
import os
import struct
from typing import Dict, Iterator, Tuple

PAGE = os.sysconf("SC_PAGE_SIZE")
TOUCHED = 1 << 63  # in a word of /proc/PID/pagemap: the page is in this process's memory
MEMORY = ("/dev/shm/", "/dev/zero")  # the names below /dev that are no device's


def shared_pages() -> Dict[int, bytes]:
    """Return, by address, the pages that this process may write, shares, and has touched."""
    found = {}
    with contextlib.suppress(OSError), open("/proc/self/mem", "rb", 0) as memory:
        with open("/proc/self/pagemap", "rb", 0) as table:
            for begin, end in _shared():
                table.seek(begin // PAGE * 8)
                words = table.read((end - begin) // PAGE * 8)
                for number, (word,) in enumerate(struct.iter_unpack("Q", words)):
                    if word & TOUCHED:
                        address = begin + number * PAGE
                        memory.seek(address)
                        found[address] = memory.read(PAGE)
    return found


def changed_since(before: Dict[int, bytes]) -> int:
    """Return the number of bytes that differ from `before`; a page that was not touched then held zeros."""
    fresh, count = bytes(PAGE), 0
    for address, now in shared_pages().items():
        then = before.get(address, fresh)
        if now != then:
            count += sum(new != old for new, old in zip(now, then))
    return count


def _shared() -> Iterator[Tuple[int, int]]:
    """Yield the first address, and the one beyond the last, of each mapping that is writable, shared, and memory."""
    with open("/proc/self/maps") as stream:
        for line in stream:
            place, permissions, _, _, _, *name = line.split(None, 5)
            path = name[0] if name else ""
            if (
                permissions[1] == "w"
                and permissions[3] == "s"
                and (not path.startswith("/dev/") or path.startswith(MEMORY))
            ):
                begin, end = (int(each, 16) for each in place.split("-"))
                yield begin, end
