"""Ranks are matched by both ends of a connection; what nobody's other end is belongs to another process."""

import pytest

from stagebench.suite.analysis.measured import Worker, workers_of
from stagebench.suite.results.invariants import broken
from stagebench.suite.results.rank_report import Rank, is_end
from stagebench.suite.results.records import Record
from tests.reports.made_run import case_of, record_of
from tests.support.sent import hello


def rank(number: int, host: str, *pairs: tuple[str, str]) -> Rank:
    connections = [{"own": one, "other": other} for one, other in pairs]
    return Rank.model_validate({"rank": number, "hello": hello(host=host), "connections": connections})


def test_ranks_that_share_a_connection_know_each_other():
    ranks = [
        rank(0, "a", ("10.0.0.1:50", "10.0.0.2:70"), ("10.0.0.1:51", "[fe80::9]:80"), ("127.0.0.1:9", "127.0.0.1:8")),
        rank(1, "b", ("10.0.0.2:70", "10.0.0.1:50"), ("127.0.0.1:8", "127.0.0.1:9")),  # its own host's loopback
        rank(2, "b"),
    ]
    assert workers_of(ranks) == (
        Worker(0, "a", ("10.0.0.1", "127.0.0.1"), (1,), ("127.0.0.1", "fe80::9")),
        Worker(1, "b", ("10.0.0.2", "127.0.0.1"), (0,), ("127.0.0.1",)),
        Worker(2, "b", (), (), ()),
    )


def test_a_rank_s_own_connection_one_rank_and_ranks_without_any_are_nobody_s_peers():
    assert workers_of([rank(0, "a", ("10.0.0.1:50", "10.0.0.2:70"))]) == ()
    assert workers_of([rank(0, "a"), rank(1, "b")]) == ()
    ranks = [rank(0, "a", ("127.0.0.1:1", "127.0.0.1:2"), ("127.0.0.1:2", "127.0.0.1:1")), rank(1, "a")]
    assert [(one.addresses, one.peers, one.others) for one in workers_of(ranks)] == [((), (), ())] * 2


@pytest.mark.parametrize(
    "end",
    [
        *("10.0.0.1", "lab1:80", "10.0.0.1:http", "10.0.0.1:65536", "::1:80"),
        *("[::1%a]:80", "10.0.0.1: 8_0", "]]10.0.0.1[[:80", "x" * 5000),
    ],
)
def test_an_end_without_address_and_port_breaks_a_record(end):
    assert not is_end(end)
    record = Record.model_validate(record_of(case_of(), 0, ranks=[rank(0, "a", (end, "10.0.0.2:70"))]))
    assert "which is no address and port" in str(broken(record))
