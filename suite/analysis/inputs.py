"""The cost of reading: cases that differ only in their input, side by side, and the bottleneck of each."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from stagebench.suite.analysis.rows import Row
from stagebench.suite.analysis.stats import Interval, Rates, rates_of, ratio
from stagebench.suite.contracts.case import Case
from stagebench.suite.text import grouped
from stagebench.suite.worker.case_parts import Input

MODES = ("synthetic", "memory", "disk")
NOTICED = 0.05  # of the iteration: a shorter wait is no bottleneck


@dataclass(frozen=True)
class Fed:
    """A case of a group."""

    row: Row
    mode: str
    gap: Interval | None  # its speed over that of the group's first row; None for that row itself
    takes: float  # samples/s of the network if it need not wait
    ahead: Interval | None  # the reader's speed alone over the network's; None without io_only

    @property
    def delivers(self) -> float | None:
        """Samples/s of its reader alone."""
        return self.row.reader.value if self.row.reader else None

    @property
    def waits(self) -> bool | None:
        """True if waiting takes a noticeable part of its iteration; None if the interval leaves that open."""
        share = self.row.waited_share
        if share is None or share.low <= NOTICED < share.high:
            return None
        return share.low > NOTICED

    @property
    def bottleneck(self) -> str | None:
        """The bottleneck: `reader`, `network` or `neither` (no detectable difference); None: no pass measures it.

        `cores`: the reader is faster than the network alone, and slower when both run. `open`: the intervals admit more
        than one of these.
        """
        if self.mode == "synthetic" or self.row.waited_share is None:
            return None
        if self.ahead and self.ahead.high < 1.0:
            return "reader"
        if self.ahead and self.ahead.low <= 1.0:
            return "neither"
        if self.waits is None:
            return "open"
        if not self.waits:
            return "network"
        return "cores" if self.ahead else "reader"


@dataclass(frozen=True)
class Group:
    """Cases that differ only in their input; synthetic data first, then memory, then disk."""

    cases: Sequence[Fed]

    @property
    def modes(self) -> list[str]:
        return list(dict.fromkeys(fed.mode for fed in self.cases))


def mode_of(case: Case) -> str:
    return "synthetic" if case.data == "synthetic" else case.input.mode


def groups(rows: Iterable[Row]) -> list[Group]:
    """Return all sets of two or more cases with a speed that differ only in their input and their passes."""
    by_case = grouped((row for row in rows if row.rates), lambda row: fed_alike(row.case).id)
    found = []
    for members in by_case.values():
        members.sort(key=lambda row: MODES.index(mode) if (mode := mode_of(row.case)) in MODES else len(MODES))
        first = members[0]
        if len(members) < 2:
            continue
        synthetic = first.rates if mode_of(first.case) == "synthetic" else None
        cases = []
        for row in members:
            gap = ratio(row.rates, first.rates) if row.rates and first.rates and row is not first else None
            takes = (synthetic or unhindered(row)).value
            ahead = ratio(row.reader, synthetic) if row.reader and synthetic else None
            if row.reader and not synthetic:  # uncertainty of the wait is uncertainty of the network's speed
                middle, slow, fast = (ratio(row.reader, unhindered(row, end)) for end in ("value", "low", "high"))
                ahead = replace(middle, low=fast.low, high=slow.high)
            cases.append(Fed(row, mode_of(row.case), gap, takes, ahead))
        found.append(Group(cases))
    return found


def fed_alike(case: Case) -> Case:
    """Return the case with everything about its input removed."""
    return case.on(data="", input=Input(), readers=0, passes=())


def unhindered(row: Row, end: str = "value") -> Rates:
    """Return samples/s with the wait taken out of every step: the network's speed, as far as the case itself shows it.

    `end`: `low` or `high` for the least or the most waiting that a lone process leaves possible.
    """
    # Only some processes run the pass that measures the wait.
    known = [process for process in row.measured if process.input_wait and process.input_wait.share]
    steps = {}
    for process in known or row.measured:
        wait, share = process.input_wait, 0.0
        if wait and wait.share:
            share = getattr(wait.share, end if len(known) == 1 else "value")
        steps[process.round] = process.step_seconds * (1.0 - min(share, 0.99))
    rates = rates_of(steps, row.case.global_batch)
    assert rates is not None
    return rates
