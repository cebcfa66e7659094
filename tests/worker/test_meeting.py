"""Real sockets, a thread a rank."""

import socket
import threading
from contextlib import closing

import pytest
from toy import together

from stagebench.suite.worker.meeting import Meeting, greeted, listening
from stagebench.suite.worker.rendezvous import free_port
from tests.support.errors import raising


@pytest.fixture
def place():
    """An address where nobody listens."""
    return "127.0.0.1", free_port()


def maximum(rank, world, place, *more, **limits):
    """The largest number of a rank."""
    with closing(Meeting(rank, world, place, *more, **limits)) as ours:
        return ours.maximum(float(rank))


def test_every_rank_learns_everybodys_value_in_the_ranks_order_and_the_maximum_asked_again_the_new_one(place):
    def task(rank):
        with closing(Meeting(rank, 3, place)) as ours:
            found = ours.exchange("rank %d's \u00e9" % rank), ours.exchange(ours.host)
            return (*found, ours.maximum(float(rank)), ours.maximum(-float(rank)))

    values = ["rank %d's \u00e9" % rank for rank in range(3)]
    assert together(3, task) == [(values, ["127.0.0.1"] * 3, 2.0, 0.0)] * 3


def test_rank_0_may_bring_its_listener_and_alone_one_meets_oneself():
    door = listening(("127.0.0.1", 0))
    place = ("127.0.0.1", door.getsockname()[1])
    assert together(2, lambda rank: maximum(rank, 2, place, None if rank else door)) == [1.0, 1.0]
    assert door.fileno() == -1
    with closing(Meeting(0, 1, place)) as ours:
        assert (ours.maximum(3.5), ours.exchange("me")) == (3.5, ["me"])


@pytest.mark.parametrize("words", [b"", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"?"])
def test_strangers_are_sent_away_and_do_not_hold_up_the_ranks(place, monkeypatch, words):
    monkeypatch.setattr(greeted, "__defaults__", (0.1,))
    door = listening(place)
    with socket.create_connection(place) as stranger:
        stranger.sendall(words)
        found = together(2, lambda rank: maximum(rank, 2, place, None if rank else door, patience=120.0))
    assert found == [1.0, 1.0]


def test_a_rank_of_another_run_is_a_stranger(place):
    def task(rank):
        with pytest.raises(OSError, match="others came from 127.0.0.1" if rank == 0 else "no rank 0 of 3 ranks"):
            Meeting(rank, 2 if rank == 0 else 3, place, patience=2.0)

    together(2, task)


def test_a_rank_that_comes_twice_is_said(place):
    def task(number):
        if number == 0:
            with raising(OSError, "127.0.0.1", 1):
                Meeting(0, 3, place, patience=120.0)
        else:
            with pytest.raises(OSError, match="rank 0"):
                maximum(1, 3, place, patience=3.0)

    together(3, task)


def test_a_rank_that_hangs_up_is_named(place):
    def task(rank):
        with closing(Meeting(rank, 2, place)) as ours:
            if rank == 0:
                with pytest.raises(ConnectionError, match=r"rank 1 hung up \(.*127\.0\.0\.1:\d+"):
                    ours.maximum(0.0)

    together(2, task)


def test_a_rank_that_says_nothing_is_named_when_its_time_is_up(place):
    heard = threading.Event()

    def task(rank):
        with closing(Meeting(rank, 2, place, limit=0.3)) as ours:
            if rank:
                assert heard.wait(120.0)
                return
            with pytest.raises(ConnectionError, match=r"rank 1 sent nothing for 0\.3 s while rank 0 waited"):
                ours.maximum(0.0)
            heard.set()

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
