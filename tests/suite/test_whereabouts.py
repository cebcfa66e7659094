"""Ranks where they were not asked to be, and bytes that did not take the wire."""

import socket
from dataclasses import replace
from typing import Any

import pytest

from suite.analysis.measured import wire
from suite.contracts.case import Placement
from suite.launching.placement_check import Told, busiest, misplaced, pinned, unthreaded, unwired
from suite.worker.wire import boot

TWO = Placement(nodes=2, ranks_per_node=2, launcher="mpiexec", hosts=("a", "b"))


def on(*hosts: str) -> list[Told]:
    return [Told(rank, host, {}, 0) for rank, host in enumerate(hosts)]


@pytest.mark.parametrize(
    ("placement", "hosts"),
    [
        (TWO, "aabb"),
        (TWO, ("a.cluster", "a.cluster", "B", "B")),
        (TWO, ("node1.cluster", "node1.cluster", "n2", "n2")),  # other names of the same hosts
        (replace(TWO, hosts=()), "xxyy"),
        (replace(TWO, hosts=("a", "a")), "aaaa"),
        (replace(TWO, hosts=("a", "b", "a"), nodes=3, ranks_per_node=1), "aba"),
        (replace(TWO, hosts=("10.0.0.1", "10.0.0.2")), ("10", "10", "b", "b")),
        (replace(TWO, hosts=("localhost", "b")), "aabb"),
        (replace(TWO, hosts=("localhost", "b")), ("a", "a", "localhost", "localhost")),
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
            "2 hosts (a, b) with 2 ranks each, in a row, were asked for, the launcher 'mpiexec' "
            "started ranks 0, 1, 2, 3 on a;",
        ),
        (TWO, "aaab", "started ranks 0, 1, 2 on a; ranks 3 on b; is it"),
        (TWO, "aabc", "ranks 0, 1 on a; ranks 2 on b; ranks 3 on c"),
        (Placement(ranks_per_node=2), "ab", "1 host with 2 ranks each, in a row, were asked for"),
        (TWO, "abab", "started ranks 0, 2 on a; ranks 1, 3 on b;"),
        (replace(TWO, hosts=()), "abba", "started ranks 0, 3 on a; ranks 1, 2 on b;"),
        (TWO, "bbaa", "started ranks 0, 1 on b; ranks 2, 3 on a;"),
        (TWO, ("b.cluster", "b.cluster", "z", "z"), "started ranks 0, 1 on b.cluster; ranks 2, 3 on z;"),
    ],
)
def test_ranks_elsewhere_are_told_with_their_hosts(placement: Placement, hosts: str, words: str) -> None:
    assert words in str(misplaced(placement, on(*hosts)))


def test_a_launcher_may_number_the_nodes_as_it_likes_and_never_deal_out_the_ranks() -> None:
    assert misplaced(TWO, on(*"bbaa"), in_order=False) is None
    assert "ranks 0, 2 on b" in str(misplaced(TWO, on(*"baba"), in_order=False))


@pytest.mark.parametrize(
    ("asked", "address", "own_kernel", "fits"),
    [
        ("far", "192.0.2.7", True, False),
        ("far", "192.0.2.7", False, True),  # a namesake of this machine
        ("alias", "127.0.1.1", True, True),
        ("unknown", None, True, True),
        ("192.0.2.7", "192.0.2.7", True, True),  # this machine's perhaps, behind a translation
    ],
)
def test_ranks_on_this_machine_where_another_was_asked_for_are_found_out(
    monkeypatch: pytest.MonkeyPatch, asked: str, address: str | None, own_kernel: bool, fits: bool
) -> None:
    def known(host: str) -> str:
        if address is None:
            raise OSError("unknown")
        return address

    monkeypatch.setattr(socket, "gethostbyname", known)
    monkeypatch.setattr(socket, "gethostname", lambda: "own")
    placement = Placement(ranks_per_node=2, launcher="mpiexec", hosts=(asked,))
    ranks = [replace(one, boot=boot() if own_kernel else "another") for one in on("own", "own")]
    assert (misplaced(placement, ranks) is None) == fits


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


def having(*cores: list[int], host_cores: int) -> list[Told]:
    return [Told(rank, "a", {}, 0, cores=tuple(each), host_cores=host_cores) for rank, each in enumerate(cores)]


def test_a_rank_with_fewer_cores_than_threads_is_named() -> None:
    four = replace(TWO, threads=2, devices=2)
    assert pinned(four, having([0, 1, 2, 3], [4, 5, 6, 7], host_cores=8)) is None
    assert pinned(four, having([], [], host_cores=8)) is None, "who cannot tell is not judged"
    words = str(pinned(four, having([0, 1, 2, 3], [4], host_cores=8)))
    assert words.startswith("rank 1 may use 1 core (4) of the 8 of a and is to run 4 threads: the launcher 'mpiexec', ")
    assert pinned(four, having([0], [0], host_cores=1)) is None, "this host has no more"


@pytest.mark.parametrize("here", [2, 64])
def test_cores_are_those_of_the_rank_s_host_not_of_this_machine(monkeypatch: pytest.MonkeyPatch, here: int) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda process: set(range(here)))
    sixteen, eight = replace(TWO, threads=16), list(range(8))
    assert pinned(sixteen, having(eight, host_cores=8)) is None
    assert "rank 0 may use 8 cores" in str(pinned(sixteen, having(eight, host_cores=32)))


def test_a_cpuset_of_this_process_is_no_launcher_s_doing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {0, 1})
    four, rank = Placement(threads=4), Told(0, socket.gethostname(), {}, 0, boot=boot(), cores=(0, 1), host_cores=64)
    assert pinned(four, [rank]) is None
    assert "of the 2 of" in str(pinned(four, [replace(rank, cores=(0,))]))
    assert "of the 64 of" in str(pinned(four, [replace(rank, host="another")]))


def test_a_rank_that_saw_other_numbers_of_threads_is_named_with_the_remedy() -> None:
    given = {"OMP_NUM_THREADS": "4", "MKL_NUM_THREADS": "1"}
    ranks = [Told(rank, "a", {}, 0, threads=seen) for rank, seen in enumerate([given, {"OMP_NUM_THREADS": "4"}])]
    assert unthreaded(TWO, ranks[:1], given) is None
    words = str(unthreaded(TWO, ranks, given))
    assert words.startswith("rank 1 on a was to see MKL_NUM_THREADS=1 and saw none: the launcher 'mpiexec' did not ")
    assert words.endswith("take that setting away, or ask for as many threads")
    other = [replace(ranks[0], threads={**given, "OMP_NUM_THREADS": "1"})]
    assert "was to see OMP_NUM_THREADS=4 and saw 1:" in str(unthreaded(TWO, other, given))


def test_a_record_tells_which_interface_carried_how_much() -> None:
    ranks = [
        {"rank": rank, "hello": {"host": host}, "wire": {"eth0": {"received": 1, "sent": sent}}}
        for rank, (host, sent) in enumerate([("a", 5), ("a", 6), ("b", 7)])
    ]
    assert wire(ranks) == {"a": {"interface": "eth0", "sent": 6}, "b": {"interface": "eth0", "sent": 7}}
    assert wire(ranks[:2]) is None
