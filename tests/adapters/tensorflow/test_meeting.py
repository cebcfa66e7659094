"""Real sockets, a thread a rank."""

import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from adapters.tensorflow import meeting
from adapters.tensorflow.meeting import Meeting, free_port


@pytest.fixture(autouse=True)
def _place(monkeypatch):
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(free_port()))


def together(world, task):
    with ThreadPoolExecutor(world) as pool:
        return list(pool.map(task, range(world)))


def test_every_rank_learns_the_same_addresses_in_the_ranks_order():
    def task(rank):
        ours = Meeting(rank, 3)
        found = ours.addresses()
        ours.close()
        return found

    first, second, third = together(3, task)
    assert first == second == third
    assert len(set(first)) == 3
    for address in first:
        host, _, port = address.partition(":")
        with socket.socket() as probe:  # free: nobody holds it
            probe.bind((host, int(port)))


def test_the_maximum_is_everybodys_and_asked_again_the_new_one():
    def task(rank):
        ours = Meeting(rank, 3)
        found = ours.maximum(float(rank)), ours.maximum(-float(rank))
        ours.close()
        return found

    assert together(3, task) == [(2.0, 0.0)] * 3


def test_alone_one_meets_oneself():
    ours = Meeting(0, 1)
    assert ours.maximum(3.5) == 3.5
    assert len(ours.addresses()) == 1
    ours.close()


def test_a_rank_that_hangs_up_is_noticed():
    def task(rank):
        ours = Meeting(rank, 2)
        if rank:
            return ours.close()
        with pytest.raises(ConnectionError, match="a rank hung up"):
            ours.maximum(0.0)
        return ours.close()

    together(2, task)


def test_ranks_that_do_not_come_are_named(monkeypatch):
    monkeypatch.setattr(meeting, "PATIENCE", 0.2)
    with pytest.raises(OSError, match=r"ranks \[1, 2\] did not come to 127.0.0.1:\d+ within 0.2 s"):
        Meeting(0, 3)
    with pytest.raises(OSError, match=r"rank 1 found no rank 0 at 127\.0\.0\.1"):
        Meeting(1, 3)
