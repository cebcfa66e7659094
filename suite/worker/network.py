"""The traffic between processes as the system shows it: of interfaces, InfiniBand too; of a process's connections.

From proc(5), sysfs, and TCP_INFO of tcp(7). Processes of one host also share memory, as MPI sends there, whatever
library maps it: the kernel counts none of that, so its contents are compared, before and after. Data that another
process copies out of this one's own memory are not seen.
"""

import contextlib
import glob
import ipaddress
import os
import socket
import struct
from typing import Dict, Iterator, List, Set, Tuple

from stagebench.suite.worker.machine import text_of
from stagebench.suite.worker.messages import Connection, Traffic

NETWORK = "/proc/net/dev"  # of this process's network namespace
INFINIBAND = "/sys/class/infiniband/*/ports/*/counters"  # its traffic bypasses the system's network
BOOT = "/proc/sys/kernel/random/boot_id"
WORD = 4  # bytes; their counters count words

Counters = Dict[str, Tuple[int, int]]  # by interface: bytes received, bytes sent


def counters(network: str = NETWORK, infiniband: str = INFINIBAND) -> Counters:
    """Return the current counters; empty, or without a port, if the system does not report them."""
    found: Counters = {}
    if os.path.exists(network):
        with open(network) as stream:
            for line in stream.readlines()[2:]:
                name, _, numbers = line.partition(":")
                found[name.strip()] = (int(numbers.split()[0]), int(numbers.split()[8]))
    for folder in glob.glob(infiniband):
        device, _, port = folder.split(os.sep)[-4:-1]
        # An adapter without management counts nothing: "N/A (no PMA)". Others may be read by root alone.
        with contextlib.suppress(OSError, ValueError):
            with open(f"{folder}/port_rcv_data") as received, open(f"{folder}/port_xmit_data") as sent:
                found[f"{device}:{port}"] = (int(received.read()) * WORD, int(sent.read()) * WORD)
    return found


def boot() -> str:
    """Return an id of the running kernel; "" if the system has none."""
    return text_of(BOOT).strip()


def growth(before: Counters, after: Counters) -> Dict[str, Traffic]:
    """Return the traffic between two readings, without interfaces that appeared or disappeared."""
    return {
        name: Traffic(received - before[name][0], sent - before[name][1])
        for name, (received, sent) in sorted(after.items())
        if name in before
    }


TABLES = ("/proc/self/net/tcp", "/proc/self/net/tcp6")
OPEN = "01"  # TCP_ESTABLISHED
MOST_CONNECTIONS = 1000  # that a record holds


def connections(tables: Tuple[str, ...] = TABLES) -> List[Connection]:
    """Return the TCP connections that this process has open; none if the system does not report them."""
    found: Set[Connection] = set()
    with contextlib.suppress(OSError, ValueError, IndexError):
        sockets = {called for _, called in _sockets()}
        for path in filter(os.path.exists, tables):
            with open(path) as table:
                for line in table.readlines()[1:]:
                    fields = line.split()
                    if fields[3] == OPEN and f"socket:[{fields[9]}]" in sockets:
                        found.add(Connection(_address(fields[1]), _address(fields[2])))
    return sorted(found)[:MOST_CONNECTIONS]


def _sockets() -> Iterator[Tuple[int, str]]:
    """Yield (descriptor, "socket:[inode]") of each of this process's sockets."""
    for name in os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else ():
        with contextlib.suppress(OSError):  # closed since
            called = os.readlink(f"/proc/self/fd/{name}")
            if called.startswith("socket:"):
                yield int(name), called


def _address(written: str) -> str:
    """Convert `0100007F:1F90`, 32-bit words in the machine's byte order and a port, to 127.0.0.1:8080."""
    words, port = written.split(":")
    packed = b"".join(struct.pack("=I", int(words[at : at + 8], 16)) for at in range(0, len(words), 8))
    address = ipaddress.ip_address(packed)
    if isinstance(address, ipaddress.IPv6Address):
        address = address.ipv4_mapped or address
    shown = "[%s]" if address.version == 6 else "%s"
    return f"{shown % address}:{int(port, 16)}"


BYTES_SENT = struct.Struct("200xQ")  # tcpi_bytes_sent in <linux/tcp.h>


def sent_bytes() -> Dict[str, int]:
    """Return the bytes sent on each open TCP connection, by the kernel's name of its socket.

    Linux 4.19 or newer; elsewhere nothing is counted.
    """
    found = {}
    for descriptor, called in _sockets():
        with contextlib.suppress(OSError, struct.error):  # closed since, no TCP, an old kernel
            with socket.socket(fileno=os.dup(descriptor)) as opened:
                about = opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
            found[called] = BYTES_SENT.unpack_from(about)[0]
    return found


def since(before: Dict[str, int]) -> int:
    """Return the bytes sent since `sent_bytes` returned `before`, on connections that are still open."""
    return sum(now - before.get(called, 0) for called, now in sent_bytes().items())


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
    fresh = bytes(PAGE)
    count = 0
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
