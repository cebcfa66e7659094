"""What reading costs: cases that are equal but for their input, side by side, and what holds them up."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from suite.analysis.measured import Process
from suite.analysis.rows import Row
from suite.analysis.stats import Interval, Rates, rates_of, ratio
from suite.contracts.case import Case, Input
from suite.groups import grouped

MODES = ("synthetic", "memory", "disk")
NOTICED = 0.05  # of the iteration: less waiting holds nothing up


@dataclass(frozen=True)
class Fed:
    """One case of a group."""

    row: Row
    mode: str
    gap: Interval | None  # its speed over that of the group's first row; None for that row itself
    takes: float  # samples/s of the network when it need not wait
    ahead: Interval | None  # what its reader delivers alone over what the network takes; None without io_only

    @property
    def delivers(self) -> float | None:
        """Samples/s of its reader alone."""
        return self.row.reader.value if self.row.reader else None

    @property
    def waits(self) -> bool | None:
        """Whether waiting takes a part of its iteration that is noticed; None where the interval leaves it open."""
        found = self.row.waited_interval
        if found is None or found.low <= NOTICED < found.high:
            return None
        return found.low > NOTICED

    @property
    def bottleneck(self) -> str | None:
        """What holds it up: `reader`, `network` or `neither` (no detectable difference); None: no pass can tell.

        `cores`: alone the reader is quicker than the network, beside it it is not. `open`: within the intervals it may
        be the one or the other.
        """
        if self.mode == "synthetic" or self.row.waited_share is None:
            return None
        if self.ahead and self.ahead.high < 1.0:
            return "reader"
        if self.ahead and self.ahead.low <= 1.0:
            return "neither"
        if self.waits is None:
            return "open"
        waiting = "cores" if self.ahead else "reader"
        return waiting if self.waits else "network"


@dataclass(frozen=True)
class Group:
    """Cases that are equal but for their input; synthetic data first, then memory, then disk."""

    cases: tuple[Fed, ...]

    @property
    def modes(self) -> list[str]:
        return list(dict.fromkeys(fed.mode for fed in self.cases))


def mode_of(case: Case) -> str:
    return "synthetic" if case.data == "synthetic" else case.input.mode


def groups(rows: Iterable[Row]) -> list[Group]:
    """Every two or more cases with a speed that differ in nothing but how they are fed, and by which passes."""
    found = grouped((row for row in rows if row.rates), lambda row: fed_alike(row.case).id)
    return [_group(members) for members in found.values() if len(members) > 1]


def fed_alike(case: Case) -> Case:
    """The case with everything about its input forgotten."""
    return replace(case, data="", input=Input(), readers=0, passes=())


def _group(members: list[Row]) -> Group:
    ordered = sorted(members, key=lambda row: MODES.index(mode_of(row.case)))
    first = ordered[0]
    reference = first.rates if mode_of(first.case) == "synthetic" else None
    return Group(tuple(_fed(row, first, reference) for row in ordered))


def _fed(row: Row, first: Row, reference: Rates | None) -> Fed:
    assert row.rates
    assert first.rates
    return Fed(
        row=row,
        mode=mode_of(row.case),
        gap=None if row is first else ratio(row.rates, first.rates),
        takes=(reference or unhindered(row)).value,
        ahead=_ahead(row, row.reader, reference) if row.reader else None,
    )


def _ahead(row: Row, reader: Rates, reference: Rates | None) -> Interval:
    """What is not known of the waiting is not known of the network without it."""
    if reference:
        return ratio(reader, reference)
    middle, slow, quick = (ratio(reader, unhindered(row, end)) for end in ("value", "low", "high"))
    return replace(middle, low=quick.low, high=slow.high)


def unhindered(row: Row, end: str = "value") -> Rates:
    """Samples/s with the waiting taken out of every step: what the network takes, as far as the case itself tells.

    `end`: `low` or `high` for the least or the most waiting that one process, which has no others beside it, leaves
    possible.
    """
    # Only some processes run the pass that tells.
    known = [one for one in row.measured if one.input_wait and one.input_wait.share is not None]
    alone = end if len(known) == 1 else "value"
    steps = {one.round: one.step_seconds * (1.0 - min(_share(one, alone), 0.99)) for one in known or row.measured}
    found = rates_of(steps, row.case.global_batch)
    assert found is not None
    return found


def _share(process: Process, end: str) -> float:
    """Of its native step, what it waits for input."""
    waits = process.input_wait
    if waits is None:
        return 0.0
    return (waits.share or 0.0) if waits.interval is None else float(getattr(waits.interval, end))
