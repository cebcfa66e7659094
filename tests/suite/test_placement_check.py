"""Ranks where they were not asked to be, and bytes that did not take the wire."""

import socket
from dataclasses import replace

import pytest

from stagebench.suite.analysis.measured import Carrier, carriers
from stagebench.suite.contracts.case import Placement
from stagebench.suite.processes.placement_check import (
    RankReport,
    binding_problem,
    busiest,
    devices_problem,
    hosts_problem,
    threads_problem,
    transport_problem,
)
from stagebench.suite.results.rank_report import Rank
from stagebench.suite.worker import messages
from stagebench.suite.worker.network import boot
from tests.support.sent import hello

TWO = Placement(nodes=2, ranks_per_node=2, launcher="mpiexec", hosts=("a", "b"))


def on(*hosts: str) -> list[RankReport]:
    return [RankReport(rank, host, {}, 0) for rank, host in enumerate(hosts)]


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
def test_ranks_where_they_belong(placement, hosts):
    assert hosts_problem(placement, on(*hosts)) is None


@pytest.mark.parametrize(
    ("placement", "hosts", "words"),
    [
        (TWO, "aaaa", "2 hosts (a, b) with 2 ranks each, in a row, were asked for, the launcher 'mpiexec' started ra"),
        (TWO, "aabc", "ranks 0, 1 on a; ranks 2 on b; ranks 3 on c"),
        (Placement(ranks_per_node=2), "ab", "1 host with 2 ranks each, in a row, were asked for"),
        (TWO, "abab", "started ranks 0, 2 on a; ranks 1, 3 on b;"),
        (replace(TWO, hosts=()), "abba", "started ranks 0, 3 on a; ranks 1, 2 on b;"),
        (TWO, ("b.cluster", "b.cluster", "z", "z"), "started ranks 0, 1 on b.cluster; ranks 2, 3 on z;"),
    ],
)
def test_ranks_elsewhere_are_told_with_their_hosts(placement, hosts, words):
    assert words in str(hosts_problem(placement, on(*hosts)))
    assert hosts_problem(TWO, on(*"bbaa"), in_order=False) is None, "a launcher may number the nodes as it likes"
    assert "ranks 0, 2 on b" in str(hosts_problem(TWO, on(*"baba"), in_order=False)), "and never deal out the ranks"


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
def test_ranks_on_this_machine_where_another_was_asked_for_are_found_out(monkeypatch, asked, address, own_kernel, fits):
    def known(host):
        if address is None:
            raise OSError("unknown")
        return address

    monkeypatch.setattr(socket, "gethostbyname", known)
    monkeypatch.setattr(socket, "gethostname", lambda: "own")
    placement = Placement(ranks_per_node=2, launcher="mpiexec", hosts=(asked,))
    ranks = [replace(one, boot=boot() if own_kernel else "another") for one in on("own", "own")]
    assert (hosts_problem(placement, ranks) is None) == fits


def sending(host: str, eth: int, lo: int = 0, steps: int = 10) -> RankReport:
    return RankReport(0, host, {"eth0": eth, "lo": lo}, steps)


def test_a_host_that_sent_too_little_is_named_where_that_can_be_told():
    words = transport_problem([sending("a", 5_000_000), sending("b", 20_000, lo=10**9)], 400_000.0, 1 / 64)
    assert words is not None
    assert words.startswith("gradients of 0.4 MB were exchanged in 10 steps between hosts, but the busiest interface")
    assert "eth0, sent 0.02 MB meanwhile: they did not take the wire" in words
    assert transport_problem([sending("a", 5_000_000), sending("b", 4_000_000)], 400_000.0, 1.0) is None
    assert transport_problem([sending("a", 0), sending("a", 0)], 400_000.0, 1.0) is None
    assert transport_problem([sending("a", 0), sending("b", 0)], 400_000.0, 0.0) is None
    assert transport_problem([RankReport(0, "a", {}, 10), RankReport(1, "b", {}, 10)], 400_000.0, 1.0) is None
    assert busiest([RankReport(0, "a", {"lo": 7}, 10)]) == {}


def test_the_steps_of_exchanging_passes_and_trainings_count_and_the_bytes_of_comm():
    passes = ("native", "staged", "compute_only", "comm_only", "io_only")
    sent = [
        hello(rank=3),
        *(messages.Pass(name, 8, True, [1.0, 1.0], [1.0], 1.0) for name in passes),
        messages.Wire({"eth0": messages.Traffic(1, 2)}),
    ]
    assert RankReport.of(3, sent) == RankReport(3, "a", {"eth0": 2}, 9)
    epochs = [messages.Epoch(1.0, 1.0, 8, steps, 0.5, 0.5) for steps in (20, 21)]
    assert RankReport.of(0, [hello(), messages.Training(epochs, [], [], [])]).steps == 41
    rows = [
        messages.ExchangeTimes("single", "all-reduce", 1000, 1, [0.1, 0.2], []),
        messages.OverlapTimes("all-reduce", 1000, [0.1], [0.1], [0.1], [0.1], 1),
        messages.SkippedSizes([4000, 16000]),
    ]
    assert RankReport.of(0, [hello(), *rows]).moved == 2000


def test_messages_that_were_timed_must_have_left_some_host():
    def moved(host, sent):
        return RankReport(0, host, {"eth0": sent}, 0, 6_400_000.0)

    assert transport_problem([moved("a", 0), moved("b", 100_000)], 400_000.0, 1.0) is None, "a broadcast has one sender"
    assert transport_problem([moved("a", 0), moved("a", 0)], 400_000.0, 1.0) is None
    words = str(transport_problem([moved("a", 10_000), moved("b", 90_000)], 400_000.0, 1.0))
    assert words.startswith("messages of 6.4 MB were timed between hosts, but the busiest interface of b, eth0, sent ")
    assert "they did not take the wire" in words


def having(*cores: list[int], host_cores: int) -> list[RankReport]:
    return [RankReport(rank, "a", {}, 0, cores=tuple(each), host_cores=host_cores) for rank, each in enumerate(cores)]


def test_a_rank_with_fewer_cores_than_threads_is_named():
    four = replace(TWO, threads=2, devices=2)
    assert binding_problem(four, having([0, 1, 2, 3], [4, 5, 6, 7], host_cores=8)) is None
    assert binding_problem(four, having([], [], host_cores=8)) is None, "who cannot tell is not judged"
    words = str(binding_problem(four, having([0, 1, 2, 3], [4], host_cores=8)))
    assert words.startswith("rank 1 may use 1 core (4) of the 8 of a and is to run 4 threads: the launcher 'mpiexec', ")
    assert binding_problem(four, having([0], [0], host_cores=1)) is None, "this host has no more"


def test_ranks_on_the_same_cores_of_a_host_that_has_more_are_named():
    def bound(*cores, host_cores=4, threads=((), (), ())):
        pairs = zip(cores, threads, strict=False)
        sent = [messages.Joined(0, 1, "none", {}, 1, {}, cores=one, bound=list(more)) for one, more in pairs]
        found = [RankReport.of(rank, [hello(cores=[0, 1, 2, 3]), one]) for rank, one in enumerate(sent)]
        return [replace(each, host_cores=host_cores) for each in found]

    assert binding_problem(Placement(ranks_per_node=2), bound([0], [1])) is None
    assert binding_problem(Placement(ranks_per_node=3), bound([0, 1], [0, 1], [0, 1], host_cores=2)) is None, "no more"
    assert binding_problem(Placement(ranks_per_node=2), bound([0, 1], [0, 1])) is None, "each can have one"
    words = str(binding_problem(Placement(ranks_per_node=3), bound([0], [2], [0])))
    assert words.startswith("threads of ranks 0, 2 share 1 core (0) of the 4 of a: the launcher 'auto', what started ")
    two, free = Placement(ranks_per_node=2), ([0, 1, 2, 3], [0, 1, 2, 3])
    assert binding_problem(two, bound(*free, threads=([0, 1], [2, 3]))) is None
    assert "of ranks 0, 1 share 1 core (1)" in str(binding_problem(two, bound(*free, threads=([0, 1], [1]))))
    assert "of ranks 1 share 1 core (2)" in str(binding_problem(two, bound(*free, threads=([0], [2, 2]))))
    assert binding_problem(two, bound([0, 1], [0, 1], host_cores=2, threads=([0, 1], [0, 1]))) is None


@pytest.mark.parametrize("here", [2, 64])
def test_cores_are_those_of_the_rank_s_host_not_of_this_machine(monkeypatch, here):
    monkeypatch.setattr("os.sched_getaffinity", lambda process: set(range(here)))
    sixteen, eight = replace(TWO, threads=16), list(range(8))
    assert binding_problem(sixteen, having(eight, host_cores=8)) is None
    assert "rank 0 may use 8 cores" in str(binding_problem(sixteen, having(eight, host_cores=32)))


def test_a_cpuset_of_this_process_is_no_launcher_s_doing(monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {0, 1})
    four = Placement(threads=4)
    rank = RankReport(0, socket.gethostname(), {}, 0, boot=boot(), cores=(0, 1), host_cores=64)
    assert binding_problem(four, [rank]) is None
    assert "of the 2 of" in str(binding_problem(four, [replace(rank, cores=(0,))]))
    assert "of the 64 of" in str(binding_problem(four, [replace(rank, host="another")]))


def test_ranks_with_other_cores_threads_or_gpus_than_asked_for_are_named():
    given = {"OMP_NUM_THREADS": "4", "MKL_NUM_THREADS": "1"}
    ranks = [RankReport(rank, "a", {}, 0, threads=seen) for rank, seen in enumerate([given, {"OMP_NUM_THREADS": "4"}])]
    assert threads_problem(TWO, ranks[:1], given) is None
    words = str(threads_problem(TWO, ranks, given))
    assert words.startswith("rank 1 on a was to see MKL_NUM_THREADS=1 and saw none: the launcher 'mpiexec' did not ")
    assert words.endswith("take that setting away, or ask for as many threads")
    other = [replace(ranks[0], threads={**given, "OMP_NUM_THREADS": "1"})]
    assert "was to see OMP_NUM_THREADS=4 and saw 1:" in str(threads_problem(TWO, other, given))
    ids = [("GPU-a", "GPU-b"), ("GPU-c", "GPU-a"), ()]
    ranks = [RankReport(rank, "a", {}, 0, device_ids=each) for rank, each in enumerate(ids)]
    assert devices_problem(TWO, ranks[1:]) is None
    assert str(devices_problem(TWO, ranks)).startswith("ranks 0, 1 drove the same GPU, GPU-a: ")
    assert devices_problem(replace(TWO, share_devices=True), ranks) is None
    joined = messages.Joined(0, 1, "none", {}, 1, {}, ["GPU-a"], [0, 1])
    once_more = RankReport.of(0, [hello(), joined, joined._replace(bound=[1])])
    assert (once_more.device_ids, once_more.thread_cores) == (("GPU-a",), ((0, 1), (1,)))


def test_a_record_tells_which_interface_carried_how_much():
    ranks = [
        Rank(rank=rank, hello=hello(host=host), wire={"eth0": messages.Traffic(1, sent)})
        for rank, (host, sent) in enumerate([("a", 5), ("a", 6), ("b", 7)])
    ]
    assert carriers(ranks) == {"a": Carrier("eth0", 6), "b": Carrier("eth0", 7)}
    assert carriers(ranks[:2]) is None
