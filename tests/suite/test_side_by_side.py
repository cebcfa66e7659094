"""Proofs side by side: as many as there is room for, each begun once, all ended by what one raises."""

from dataclasses import replace

import pytest

from stagebench.suite.contracts.case import Case, Placement
from stagebench.suite.proofs.side_by_side import ALL, Proving, Share, room, share, side_by_side
from stagebench.workloads.networks import by_name

WHOLE = Share(cores=4, memory=100)


class Making:
    """Generators that note who is at work beside whom."""

    def __init__(self) -> None:
        self.at_work: set[str] = set()
        self.seen: list[set[str]] = []

    def one(self, name: str, looks: int = 3) -> Proving[str]:
        self.at_work.add(name)
        try:
            for _ in range(looks):
                self.seen.append(set(self.at_work))
                yield True
        finally:
            self.at_work.remove(name)
        return name

    def failing(self) -> Proving[str]:
        yield True
        raise ValueError("no")


@pytest.mark.parametrize(
    ("shares", "most"),
    [
        ([Share(1, 10)] * 6, 4),
        ([Share(1, 40)] * 6, 2),
        ([Share(3, 10)] * 3, 1),
        ([Share(9, 10)] * 3, 1),  # more than there is: alone
        ([ALL] * 3, 1),
    ],
)
def test_so_many_work_at_a_time_as_have_cores_and_memory(shares, most):
    making = Making()
    wanted = [(own, making.one(str(at))) for at, own in enumerate(shares)]
    assert sorted(side_by_side(wanted, WHOLE)) == [str(at) for at in range(len(shares))]
    assert max(map(len, making.seen)) == most
    assert making.at_work == set()


def test_who_takes_all_is_alone_and_who_is_done_is_told_while_the_others_work():
    making = Making()
    wanted = [(Share(1, 1), making.one("a")), (ALL, making.one("b")), (Share(1, 1), making.one("c"))]
    assert list(side_by_side(wanted, WHOLE)) == ["a", "b", "c"]
    assert {frozenset(each) for each in making.seen} == {frozenset("a"), frozenset("b"), frozenset("c")}
    making = Making()

    def wanted():
        for name, looks in (("long", 9), ("short", 1), ("next", 1)):
            yield Share(2, 0), making.one(name, looks)

    assert list(side_by_side(wanted(), WHOLE)) == ["short", "next", "long"]
    assert {"long", "short", "next"} not in making.seen


def test_what_one_raises_ends_all():
    making = Making()
    wanted = [(Share(1, 1), making.one("a", 99)), (Share(1, 1), making.failing())]
    with pytest.raises(ValueError, match="no"):
        list(side_by_side(wanted, WHOLE))
    assert making.at_work == set()


def test_a_share_grows_with_the_network_and_the_devices_and_is_all_where_nobody_knows():
    small, large = (by_name()[name].graph() for name in ("mnist_small", "alexnet"))
    one = Case("a", "single", "mnist_small", placement=Placement(threads=2))
    two = replace(one, placement=Placement(ranks_per_node=2, threads=2))
    assert (share(one, small, here=True).cores, share(two, small, here=True).cores) == (2, 4)
    assert share(two, small, here=True).memory == 2 * share(one, small, here=True).memory
    assert 4.5e9 < share(one, large, here=True).memory < 8e9, "JAX takes 4.5 GB"
    assert share(one, small, here=False) == ALL
    assert share(replace(one, placement=Placement(device="cuda")), small, here=True) == ALL
    assert room().cores >= 1
    assert room().memory > 1 << 20
