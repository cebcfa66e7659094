"""The kernel's counters of traffic, its tables of connections, and memory that processes share."""

import mmap
import os
import socket
import sys

import pytest

from stagebench.suite.worker.messages import Traffic
from stagebench.suite.worker.network import changed_since, connections, counters, growth, shared_pages

TABLE = """\
Inter-|   Receive                            |  Transmit
 face |bytes packets errs drop fifo frame compressed multicast|bytes packets errs drop fifo colls carrier compressed
    lo: 100 1 0 0 0 0 0 0 200 2 0 0 0 0 0 0
enp0s31f6:12345678900 1 0 0 0 0 0 0 98765432100 2 0 0 0 0 0 0
"""


def test_the_system_s_table_is_read(tmp_path):
    (tmp_path / "dev").write_text(TABLE)
    found = counters(str(tmp_path / "dev"), str(tmp_path / "none"))
    assert found == {"lo": (100, 200), "enp0s31f6": (12345678900, 98765432100)}


@pytest.mark.parametrize("lacking", ["N/A (no PMA)\n", None])
def test_infiniband_counts_words_and_a_port_that_does_not_tell_is_left_out(tmp_path, lacking):
    for device, sent in (("mlx4_0", lacking), ("mlx5_0", "50\n")):
        folder = tmp_path / device / "ports" / "1" / "counters"
        folder.mkdir(parents=True)
        (folder / "port_rcv_data").write_text("25\n")
        if sent is not None:
            (folder / "port_xmit_data").write_text(sent)
    assert counters(str(tmp_path / "none"), str(tmp_path / "*/ports/*/counters")) == {"mlx5_0:1": (100, 200)}


def test_real_bytes_over_the_loopback_are_seen_and_an_interface_that_came_in_between_is_left_out():
    before = counters()
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        door.listen(1)
        with socket.create_connection(door.getsockname()) as caller, door.accept()[0] as peer:
            peer.settimeout(10)
            caller.sendall(bytes(100000))
            left = 100000
            while left:
                left -= len(peer.recv(left))
    grown = growth(before, counters())
    assert grown["lo"].received_bytes >= 100000
    assert grown["lo"].sent_bytes >= 100000
    assert growth({"a": (1, 2)}, {"a": (4, 8), "b": (1, 1)}) == {"a": Traffic(3, 6)}


HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"


@pytest.fixture
def row():
    """A function that writes a line of a table for a socket of this process, or for one of nobody's."""
    with socket.socket() as own:
        inode = os.readlink("/proc/self/fd/%d" % own.fileno()).strip("socket:[]")

        def line(one, other, state="01", nobody=False):
            return " 0: %s %s %s 0:0 00:0 0 0 0 %s 1 0\n" % (one, other, state, "0" if nobody else inode)

        yield line


of_linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
linux = pytest.mark.skipif(sys.platform != "linux" or sys.byteorder != "little", reason="reads /proc as x86 writes it")


@linux
def test_addresses_are_read_as_the_kernel_writes_them(tmp_path, row):
    mapped = "0000000000000000FFFF00000200000A"  # ::ffff:10.0.0.2
    local = "00000000000000000000000001000000"  # ::1
    tables = {
        "tcp": row("0100000A:1F90", "0200000A:0050")
        + row("0100000A:1F91", "0200000A:0050", "0A")  # listening
        + row("0100000A:1F92", "0200000A:0050", nobody=True),
        "tcp6": row(mapped + ":0050", mapped + ":0051") + row(local + ":0001", local + ":0002"),
    }
    for name, lines in tables.items():
        (tmp_path / name).write_text(HEAD + lines)
    found = connections(tuple(str(tmp_path / name) for name in ("tcp", "tcp6", "none")))
    pairs = [("10.0.0.1:8080", "10.0.0.2:80"), ("10.0.0.2:80", "10.0.0.2:81"), ("[::1]:1", "[::1]:2")]
    assert [tuple(one) for one in found] == pairs


@linux
@pytest.mark.parametrize(("family", "address"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_both_ends_of_an_own_connection_are_found(family, address):
    with socket.socket(family) as door:
        try:
            door.bind((address, 0))
        except OSError as error:
            pytest.skip("%s is not here: %s" % (address, error))
        door.listen(1)
        before = set(connections())
        with socket.create_connection(door.getsockname()[:2]) as caller, door.accept()[0]:
            new = set(connections()) - before
            ports = {caller.getsockname()[1], door.getsockname()[1]}
            assert {int(end.rpartition(":")[2]) for one in new for end in one} == ports
            assert len(new) == 2
            assert all(end.rpartition(":")[0].strip("[]") == address for one in new for end in one)
        assert not new & set(connections())


@of_linux
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


@of_linux
def test_a_process_s_own_memory_is_not():
    with mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        before = shared_pages()
        memory[:] = os.urandom(mmap.PAGESIZE)
        assert changed_since(before) == 0
