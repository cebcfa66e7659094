"""Real sockets, a thread a rank."""

import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from suite.worker.meeting import Meeting, greeted, listening
from suite.worker.rendezvous import free_port
from tests.support.errors import raising


@pytest.fixture
def place():
    """An address where nobody listens."""
    return "127.0.0.1", free_port()


def together(world, task):
    with ThreadPoolExecutor(world) as pool:
        return list(pool.map(task, range(world)))


def test_every_rank_learns_everybodys_value_in_the_ranks_order(place):
    def task(rank):
        ours = Meeting(rank, 3, place)
        found = ours.exchange("rank %d's \u00e9" % rank), ours.exchange(ours.host)
        ours.close()
        return found

    values = ["rank %d's \u00e9" % rank for rank in range(3)]
    assert together(3, task) == [(values, ["127.0.0.1"] * 3)] * 3


def test_the_maximum_is_everybodys_and_asked_again_the_new_one(place):
    def task(rank):
        ours = Meeting(rank, 3, place)
        found = ours.maximum(float(rank)), ours.maximum(-float(rank))
        ours.close()
        return found

    assert together(3, task) == [(2.0, 0.0)] * 3


def test_rank_0_may_bring_its_listener_and_alone_one_meets_oneself(place):
    door = listening(("127.0.0.1", 0))
    place = ("127.0.0.1", door.getsockname()[1])

    def task(rank):
        ours = Meeting(rank, 2, place, door if rank == 0 else None)
        found = ours.maximum(float(rank))
        ours.close()
        return found

    assert together(2, task) == [1.0, 1.0]
    assert door.fileno() == -1
    ours = Meeting(0, 1, place)
    assert ours.maximum(3.5) == 3.5
    assert ours.exchange("me") == ["me"]
    ours.close()


@pytest.mark.parametrize("words", [b"", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"?"])
def test_strangers_are_sent_away_and_do_not_hold_up_the_ranks(place, monkeypatch, words):
    monkeypatch.setattr(greeted, "__defaults__", (0.1,))
    door = listening(place)
    with socket.create_connection(place) as stranger:
        stranger.sendall(words)

        def task(rank):
            ours = Meeting(rank, 2, place, door if rank == 0 else None, patience=20.0)
            found = ours.maximum(float(rank))
            ours.close()
            return found

        assert together(2, task) == [1.0, 1.0]


def test_a_rank_of_another_run_is_a_stranger(place):
    def task(rank):
        with pytest.raises(OSError, match="others came from 127.0.0.1" if rank == 0 else "no rank 0 of 3 ranks"):
            Meeting(rank, 2 if rank == 0 else 3, place, patience=0.5)

    together(2, task)


def test_a_rank_that_comes_twice_is_said(place):
    def task(number):
        if number == 0:
            with raising(OSError, "127.0.0.1", 1):
                Meeting(0, 3, place, patience=20.0)
        else:
            with pytest.raises(OSError, match="rank 0"):
                met_and_asked(1, 3, place)

    together(3, task)


def met_and_asked(rank, world, place):
    ours = Meeting(rank, world, place, patience=1.0)
    try:
        ours.maximum(0.0)
    finally:
        ours.close()


def test_a_rank_that_hangs_up_is_named(place):
    def task(rank):
        ours = Meeting(rank, 2, place)
        if rank:
            return ours.close()
        with pytest.raises(ConnectionError, match=r"rank 1 hung up \(.*127\.0\.0\.1:\d+"):
            ours.maximum(0.0)
        return ours.close()

    together(2, task)


def test_a_rank_that_says_nothing_is_named_when_its_time_is_up(place):
    heard = threading.Event()

    def task(rank):
        ours = Meeting(rank, 2, place, limit=0.3)
        if rank == 0:
            with pytest.raises(ConnectionError, match=r"rank 1 sent nothing for 0\.3 s while rank 0 waited"):
                ours.maximum(0.0)
            heard.set()
        else:
            assert heard.wait(20.0)
        ours.close()

    together(2, task)


def test_ranks_that_do_not_come_and_a_port_that_is_taken_are_named(place):
    with raising(OSError, "[1, 2]", "127.0.0.1", 0.2):
        Meeting(0, 3, place, patience=0.2)
    with raising(OSError, 1, "127.0.0.1", "refused"):
        Meeting(1, 3, place, patience=0.2)
    with socket.socket() as other:
        other.bind(place)
        other.listen(1)
        with raising(OSError, "127.0.0.1"):
            Meeting(0, 2, place)


def test_who_leaves_waits_for_everybody(place):
    came = []

    def task(rank):
        ours = Meeting(rank, 2, place)
        ours.exchange("")
        came.append(rank)
        ours.leave()
        return sorted(came)

    assert together(2, task) == [[0, 1]] * 2
