import socket

import pytest

from suite.worker.messages import Traffic
from suite.worker.network import counters, growth

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


def test_infiniband_counts_words(tmp_path):
    folder = tmp_path / "mlx5_0" / "ports" / "1" / "counters"
    folder.mkdir(parents=True)
    (folder / "port_rcv_data").write_text("25\n")
    (folder / "port_xmit_data").write_text("50\n")
    assert counters(str(tmp_path / "none"), str(tmp_path / "*/ports/*/counters")) == {"mlx5_0:1": (100, 200)}


@pytest.mark.parametrize("lacking", ["N/A (no PMA)\n", None])
def test_a_port_that_does_not_tell_is_left_out_and_the_others_are_read(tmp_path, lacking):
    for device, text in (("mlx4_0", lacking), ("mlx5_0", "25\n")):
        folder = tmp_path / device / "ports" / "1" / "counters"
        folder.mkdir(parents=True)
        (folder / "port_rcv_data").write_text("25\n")
        if text is not None:
            (folder / "port_xmit_data").write_text(text)
    assert counters(str(tmp_path / "none"), str(tmp_path / "*/ports/*/counters")) == {"mlx5_0:1": (100, 100)}


def test_real_bytes_over_the_loopback_are_seen():
    before = counters()
    with socket.socket() as door, socket.socket() as caller:
        door.bind(("127.0.0.1", 0))
        door.listen(1)
        caller.connect(door.getsockname())
        peer, _ = door.accept()
        with peer:
            peer.settimeout(10)
            caller.sendall(bytes(100000))
            left = 100000
            while left:
                left -= len(peer.recv(left))
    grown = growth(before, counters())
    assert grown["lo"].received_bytes >= 100000
    assert grown["lo"].sent_bytes >= 100000


def test_an_interface_that_came_in_between_is_left_out():
    assert growth({"a": (1, 2)}, {"a": (4, 8), "b": (1, 1)}) == {"a": Traffic(3, 6)}
