"""Measurements side by side: who works when, that one's end is its own, that all end when the session does."""

import contextlib

import pytest

from suite.session import turns
from suite.session.turns import Room, take_turns
from suite.worker.machine import HostMemory

MIB = 1 << 20


def measurement(name, parts, happened):
    """One with so many turns in its pass."""
    happened.append(f"{name} starts")
    try:
        for number in range(parts):
            yield True
            happened.append(f"{name}{number}")
        yield False
        happened.append(f"{name} ends")
    except GeneratorExit:
        happened.append(f"{name} is stopped")


def test_turns_go_forth_and_back_and_the_rest_follows_one_by_one():
    happened = []
    take_turns(measurement(name, 3, happened) for name in "abc")
    assert happened[:3] == ["a starts", "b starts", "c starts"]
    assert happened[3:12] == ["c0", "b0", "a0", "a1", "b1", "c1", "c2", "b2", "a2"]
    assert sorted(happened[12:]) == ["a ends", "b ends", "c ends"]


def test_who_needs_fewer_turns_waits_and_who_ends_before_or_is_alone_holds_nobody_up():
    fewer, alone, left = [], [], []
    take_turns([measurement("a", 1, fewer), measurement("b", 3, fewer)])
    assert fewer.index("a ends") > fewer.index("b2")
    take_turns([measurement("a", 2, alone)])
    assert alone == ["a starts", "a0", "a1", "a ends"]
    take_turns([_ended(), measurement("a", 1, left)])
    assert left[-1] == "a ends"


def _ended():
    return
    yield


def test_what_one_raises_stops_all_even_beside_one_that_cannot_be_stopped():
    happened = []

    def interrupted():
        yield True
        raise KeyboardInterrupt

    def stubborn():
        try:
            yield True
        finally:
            raise OSError("the disk is full")

    with pytest.raises(KeyboardInterrupt):
        take_turns([measurement("a", 2, happened), interrupted(), measurement("b", 2, happened)])
    assert {"a is stopped", "b is stopped"} < set(happened)
    del happened[:]
    with contextlib.suppress(OSError, KeyboardInterrupt):
        take_turns([measurement("a", 2, happened), stubborn(), interrupted()])
    assert "a is stopped" in happened


def test_room_is_twice_what_the_others_took_in_the_mean_and_never_for_more_than_a_comparison_has(monkeypatch):
    free, found = [1000 * MIB], []
    monkeypatch.setattr(turns, "memory", lambda: HostMemory(1 << 60, free[0]))
    room = Room()
    for left in (700, 400, 390):
        free[0] = left * MIB
        found.append(room.for_one_more())
    assert found == [True, False, False]
    room, free[0] = Room(), 1 << 60
    assert [room.for_one_more() for _ in range(turns.MOST)] == [True] * (turns.MOST - 1) + [False]
