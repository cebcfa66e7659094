"""Ranks where they were not asked to be, and bytes that did not take the wire."""

from dataclasses import replace
from typing import Any

import pytest

from suite.analysis.measured import wire
from suite.case import Placement
from suite.whereabouts import Told, busiest, misplaced, pinned, unwired

TWO = Placement(nodes=2, ranks_per_node=2, launcher="mpiexec", hosts=("a", "b"))


def on(*hosts: str) -> list[Told]:
    return [Told(rank, host, {}, 0) for rank, host in enumerate(hosts)]


@pytest.mark.parametrize(
    ("placement", "hosts"),
    [
        (TWO, "aabb"),
        (TWO, "abab"),
        (TWO, ("node1.cluster", "node1.cluster", "n2", "n2")),  # other names of the same hosts
        (replace(TWO, hosts=()), "xxyy"),
        (replace(TWO, hosts=("a", "a")), "aaaa"),
        (Placement(ranks_per_node=3), "aaa"),
    ],
)
def test_ranks_where_they_belong(placement: Placement, hosts: Any) -> None:
    assert misplaced(placement, on(*hosts)) is None


@pytest.mark.parametrize(
    ("placement", "hosts", "words"),
    [
        (
            TWO,
            "aaaa",
            "2 hosts (a, b) with 2 ranks each were asked for, the launcher 'mpiexec' started ranks 0, 1, 2, 3 on a;",
        ),
        (TWO, "aaab", "started ranks 0, 1, 2 on a; ranks 3 on b; is it"),
        (TWO, "aabc", "ranks 0, 1 on a; ranks 2 on b; ranks 3 on c"),
        (Placement(ranks_per_node=2), "ab", "1 host with 2 ranks each were asked for"),
    ],
)
def test_ranks_elsewhere_are_told_with_their_hosts(placement: Placement, hosts: str, words: str) -> None:
    assert words in str(misplaced(placement, on(*hosts)))


def told(host: str, eth: int, lo: int = 0, steps: int = 10) -> Told:
    return Told(0, host, {"eth0": eth, "lo": lo}, steps)


def test_bytes_that_took_the_wire_are_enough_and_one_host_needs_none() -> None:
    assert unwired([told("a", 5_000_000), told("b", 4_000_000)], 400_000.0, 1.0) is None
    assert unwired([told("a", 0), told("a", 0)], 400_000.0, 1.0) is None
    assert unwired([told("a", 0), told("b", 0)], 400_000.0, 0.0) is None


def test_a_host_that_sent_too_little_is_named_with_its_interface() -> None:
    words = unwired([told("a", 5_000_000), told("b", 20_000, lo=10**9)], 400_000.0, 1 / 64)
    assert words is not None
    assert words.startswith(
        "gradients of 0.4 MB were exchanged in 10 steps between hosts, but the busiest interface of b, "
    )
    assert "eth0, sent 0.02 MB meanwhile: they did not take the wire" in words


def test_who_cannot_tell_is_not_judged() -> None:
    assert unwired([Told(0, "a", {}, 10), Told(1, "b", {}, 10)], 400_000.0, 1.0) is None
    assert busiest([Told(0, "a", {"lo": 7}, 10)]) == {}


def test_the_steps_of_the_exchanging_passes_count() -> None:
    def measured(name: str) -> dict[str, Any]:
        return {"type": "pass", "record": {"pass": name, "warmup_s": [1.0, 1.0], "step_s": [1.0]}}

    messages = [
        {"type": "hello", "host": "a"},
        *(measured(name) for name in ("native", "staged", "compute_only", "comm_only", "io_only")),
        {"type": "wire", "interfaces": {"eth0": {"received": 1, "sent": 2}}},
    ]
    assert Told.of(3, messages) == Told(3, "a", {"eth0": 2}, 9)


def test_the_steps_of_a_training_count_and_so_do_the_bytes_of_comm() -> None:
    trained = {"type": "training", "record": {"epochs": [{"steps": 20}, {"steps": 21}]}}
    assert Told.of(0, [trained]).steps == 41
    rows = [
        {"kind": "single", "bytes": 1000, "seconds": [0.1, 0.2]},
        {"kind": "overlap", "bytes": 1000},
        {"kind": "left out", "bytes": [4000, 16000]},
    ]
    assert Told.of(0, [{"type": "comm", "row": row} for row in rows]).moved == 2000


def test_messages_that_were_timed_must_have_left_some_host() -> None:
    def moved(host: str, sent: int) -> Told:
        return Told(0, host, {"eth0": sent}, 0, 6_400_000.0)

    assert unwired([moved("a", 0), moved("b", 100_000)], 400_000.0, 1.0) is None, "a broadcast has one sender"
    assert unwired([moved("a", 0), moved("a", 0)], 400_000.0, 1.0) is None
    words = str(unwired([moved("a", 10_000), moved("b", 90_000)], 400_000.0, 1.0))
    assert words.startswith("messages of 6.4 MB were timed between hosts, but the busiest interface of b, eth0, sent ")
    assert "they did not take the wire" in words


def test_a_rank_with_fewer_cores_than_threads_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda process: set(range(8)))
    four = replace(TWO, threads=2, devices=2)
    assert pinned(four, [[0, 1, 2, 3], [4, 5, 6, 7]]) is None
    assert pinned(four, [[], []]) is None, "who cannot tell is not judged"
    words = str(pinned(four, [[0, 1, 2, 3], [4]]))
    assert words.startswith("rank 1 may use 1 core (4) and is to run 4 threads: the launcher 'mpiexec', or ")
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {0})
    assert pinned(four, [[0], [0]]) is None, "this machine has no more"


def test_a_record_tells_which_interface_carried_how_much() -> None:
    ranks = [
        {"rank": rank, "hello": {"host": host}, "wire": {"eth0": {"received": 1, "sent": sent}}}
        for rank, (host, sent) in enumerate([("a", 5), ("a", 6), ("b", 7)])
    ]
    assert wire(ranks) == {"a": {"interface": "eth0", "sent": 6}, "b": {"interface": "eth0", "sent": 7}}
    assert wire(ranks[:2]) is None
