"""What `stagebench check-hosts` says of figures and results that are known."""

from itertools import combinations

import numpy as np
import pytest

from stagebench.suite.cli.check_hosts import OF_HOST, OF_LINK, Checked, name_slow, name_wrong, rounds


def hosts(**speeds):
    return [Checked(name, {"GB/s": value}) for name, value in speeds.items()]


def problems(rows):
    return {row.name: row.problems for row in rows if row.problems}


@pytest.mark.parametrize(
    ("speeds", "slow"),
    [
        ({"a": 10.0, "b": 10.2, "c": 9.9, "d": 8.0}, ["d"]),
        ({"a": 10.0, "b": 9.2, "c": 9.9}, []),  # less than a tenth
        ({"a": 10.0, "b": 14.0, "c": 7.0, "d": 8.6}, []),  # they all scatter
        ({"a": 10.0, "b": 5.0}, ["b"]),
        ({"a": 10.0}, []),
    ],
)
def test_a_host_that_is_slower_than_the_others_is_named_with_their_scatter(speeds, slow):
    rows = hosts(**speeds)
    name_slow(rows, OF_HOST)
    assert list(problems(rows)) == slow
    assert all("GB/s" in problem and "scatter by" in problem for row in rows for problem in row.problems)


def test_a_link_is_slow_if_it_takes_longer():
    rows = [Checked(f"a {name}", {"µs": value}) for name, value in (("b", 10.0), ("c", 10.1), ("d", 20.0), ("e", 5.0))]
    name_slow(rows, OF_LINK)
    assert list(problems(rows)) == ["a d"]


@pytest.mark.parametrize(
    ("off", "wrong", "words"),
    [
        ({"a": (0.0, "X"), "b": (1e-12, "X"), "c": (0.0, "X")}, ["b"], "COMPUTES WRONGLY"),
        ({"a": (0.0, "X"), "b": (0.5, "X")}, ["a", "b"], "one of the two COMPUTES WRONGLY: 5.0e-01 from "),
        # Another processor may round otherwise, but not compute otherwise.
        ({"a": (0.0, "X"), "b": (0.0, "X"), "c": (1e-9, "Y"), "d": (1e-3, "Y")}, ["d"], ""),
    ],
)
def test_results_that_differ_from_most_hosts_are_wrong_and_of_two_hosts_either_may_be(tmp_path, off, wrong, words):
    """How far each host's results are from the right ones, and its processor."""
    rows, places = [], {name: tmp_path / name for name in off}
    for name, (by, cpu) in off.items():
        places[name].mkdir()
        np.save(places[name] / "movement.npy", np.ones(8) * (1 + by))
        rows.append(Checked(name, {}, cpu, str(by)))
    name_wrong(rows, places)
    found = problems(rows)
    assert list(found) == wrong
    assert all(one[0].startswith(words) for one in found.values())


@pytest.mark.parametrize("count", [0, 1, 2, 5, 6])
def test_each_pair_is_measured_once_and_no_host_twice_at_a_time(count):
    names = "abcdefgh"[:count]
    every = list(rounds(names))
    found = sorted(tuple(sorted(pair)) for pairs in every for pair in pairs)
    assert found == list(combinations(names, 2))
    assert all(len({host for pair in pairs for host in pair}) == 2 * len(pairs) for pairs in every)
