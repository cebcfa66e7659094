"""The open connections of this process are read from the kernel's tables; others' and closed ones are not."""

import os
import socket
import sys

import pytest

from suite.worker.network import connections

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"


@pytest.fixture
def row():
    """A function that writes a line of a table for a socket of this process, or for one of nobody's."""
    with socket.socket() as own:
        inode = os.readlink("/proc/self/fd/%d" % own.fileno()).strip("socket:[]")

        def line(one, other, state="01", nobody=False):
            return " 0: %s %s %s 0:0 00:0 0 0 0 %s 1 0\n" % (one, other, state, "0" if nobody else inode)

        yield line


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
