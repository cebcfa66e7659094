"""What one thing adds to a step, from blocks of steps with and without it in turns: a mean of paired differences.

Means, not medians: an iteration's wall time is the sum of what its steps took, and only means add up.

The closed budget: where one iteration's wall time goes, from separate passes, residual shown.

All stage seconds of a process are those of one rank, the *critical* one, whose own work
(h2d, forward, backward, update) is the longest: it is the rank the others
wait for, so its stages and the group's wall time belong together. A pass's wall time per
step is that of its slowest rank.

    exposed input         = native - resident, in turns: h2d as far as the staged pass explains it, the rest io
    exposed communication = native - compute_only, in turns, both on resident batches
    hidden communication  = comm_only - exposed communication, in the same turns, of which no more than `overlappable`
                            could be (suite.analysis.overlappable, where the adapter times its layers)
    other = native - (io + h2d + forward + backward + bubble + exposed communication + update)

Of exposed communication, `waiting` is the part that no faster link would spare: each exchange waits for the last rank
to arrive, and that is not always the same one. A rank's wait is its time in the staged pass's barrier, less that of the
last rank to come; what the rank that waits least waits is the group's. The staged pass may wait longer than the native
one: `waiting` is no more than the exposed part, of which the rest is transfer.

So a step that reads is explained from the inside out: computing, then what exchanging adds to it, then what reading
adds to both. All are means, over steps and over processes, since only means add up. `other` is signed and never spread:
it is negative where the fused native step is quicker than its stages one by one. Differences may be negative too, by
noise or because exchanging disturbs computing; they stay as they are.

Records of methods before 8 keep theirs: `comm_only` was a pass by itself, after the turns. In those of method 1, io is
the host's wait for input, exposed communication the difference of two passes one after the other, both of them reading;
stages are medians over steps, and a row's values medians over processes.

What input adds to a native step, and how fast input comes when nothing else runs.
"""

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, median
from typing import Any

import numpy as np

from suite.analysis.overlappable import in_order, overlappable
from suite.analysis.stats import Values, determined, student_t
from suite.results.rank_report import Rank
from suite.results.records import METHOD


@dataclass(frozen=True)
class Difference:
    """Seconds per step, and the ends of their 95 % interval (Student's t); below zero by noise, or where it helps."""

    value: float
    low: float
    high: float
    of: int  # values that the interval is from: pairs of blocks, or processes

    def scaled(self, factor: float) -> "Difference":
        """The interval of `factor` times the quantity; the factor is positive."""
        return Difference(self.value * factor, self.low * factor, self.high * factor, self.of)


def pairs(ranks: Sequence[Rank], name: str) -> list[tuple[float, float]] | None:
    """(native, other) seconds per step of every pair of blocks, each block's the slowest rank's; None without them."""
    found = [one.pairs_s for one in (rank.passes.get(name) for rank in ranks) if one and one.pairs_s]
    if not found or len(found) < len(ranks):
        return None
    if len(found) == 1:
        return list(found[0])
    turns = (zip(*blocks, strict=True) for blocks in zip(*found, strict=False))
    return [(max(native), max(other)) for native, other in turns]


def difference(of: Sequence[tuple[float, float]]) -> Difference:
    """Native less the other one, from the pairs of one process."""
    return mean_difference([native - other for native, other in of])


def mean_difference(values: Sequence[float], more: float = 0.0) -> Difference:
    """Of two values or more; `more` is a variance that something else adds to that of their mean."""
    middle, count = fmean(values), len(values)
    reach = student_t(0.975, count - 1) * math.sqrt(variance(values, middle) / count + more)
    return Difference(middle, middle - reach, middle + reach, count)


def variance(values: Sequence[float], middle: float) -> float:
    """Around their mean; as `statistics.variance`, which counts in fractions and takes twenty times as long."""
    return sum([(value - middle) ** 2 for value in values]) / (len(values) - 1)


def joined_differences(found: Sequence[Difference]) -> Difference:
    """Over processes: from three on, a value each; of two, whose scatter is one number, the pairs of both.

    The latter's error is no less than half of what they disagree by.
    """
    if len(found) == 1:
        return found[0]
    if len(found) > 2:
        return mean_difference([one.value for one in found])
    values, count = [one.value for one in found], sum(one.of for one in found)
    errors = [(one.high - one.value) / student_t(0.975, one.of - 1) for one in found]
    reach = student_t(0.975, count - 2) * max(math.hypot(*errors) / 2, abs(values[0] - values[1]) / 2)
    return Difference(fmean(values), fmean(values) - reach, fmean(values) + reach, count)


def apart(ours: Sequence[float], theirs: Sequence[float]) -> Difference | None:
    """The mean of ours less that of theirs, from a value of each process; None of fewer than three in all."""
    free = len(ours) + len(theirs) - 2
    if not ours or not theirs or free < 1:
        return None
    middles = fmean(ours), fmean(theirs)
    squares = sum((one - middle) ** 2 for side, middle in zip((ours, theirs), middles, strict=True) for one in side)
    reach = student_t(0.975, free) * math.sqrt(squares / free * (1 / len(ours) + 1 / len(theirs)))
    value = middles[0] - middles[1]
    return Difference(value, value - reach, value + reach, free + 2)


COMPUTE = ("h2d", "forward", "backward", "update")
# In the order of the closed sum.
STAGES = ("io", "h2d", "forward", "backward", "bubble", "communication", "update", "other")


@dataclass(frozen=True)
class Budget:
    """Seconds per iteration; None where no pass can tell."""

    method: int
    native: float
    io: float | None  # exposed; None when the pass `resident` was not run on data that are read
    h2d: float | None  # this one and those below: None where it happens inside another stage
    forward: float | None
    backward: float | None
    update: float | None
    bubble: float | None  # waiting for other parts of the same network; 0.0 where it is not held in parts
    communication: float | None  # exposed; 0.0 on one device, None when compute_only was not run
    other: float  # native less the rest; holds what is None of the above
    hidden: float | None  # part of comm_only that computing hides
    overlappable: float | None  # part of comm_only that computing could hide at most; None: see overlappable
    comm_only: float | None
    compute_only: float | None
    io_only: float | None
    staged: float  # wall of the instrumented iteration
    staged_communication: float  # transfer alone, behind a barrier
    skew: float  # the longest median time in that barrier, over ranks: not counted as communication
    critical_rank: int | None  # None: not the same one in every process
    # Intervals, where blocks in turns gave them: of exposed input (io + h2d), exposed and hidden communication.
    exposed_input: Difference | None = None
    exposed_communication: Difference | None = None
    hidden_communication: Difference | None = None
    barrier: Difference | None = None  # the wait for the last rank, of the rank that waits least; None with one rank
    waits: tuple[float, ...] = ()  # for the last rank, of every rank, in the ranks' order

    @property
    def instrumentation_overhead(self) -> float:
        """How many times longer the instrumented iteration takes."""
        return self.staged / self.native

    @property
    def exposed_share(self) -> float | None:
        """Exposed communication as a share of the iteration."""
        return None if self.communication is None else self.communication / self.native

    @property
    def waiting(self) -> Difference | None:
        """For the last rank, as a part of exposed communication, where that is known."""
        found, whole = self.barrier, self.communication
        if found is None or whole is None:
            return found
        most = max(whole, 0.0)
        return Difference(min(found.value, most), min(found.low, most), min(found.high, most), found.of)

    @property
    def hidden_share(self) -> float | None:
        """Hidden communication over what could be hidden; None where there is nothing to hide, or no telling."""
        return self.hidden_of(self.overlappable)

    def hidden_of(self, whole: float | None) -> float | None:
        """Hidden communication as a share of something; None where it is not determined."""
        if self.hidden is None or not whole:
            return None
        found = self.hidden_communication
        return determined(self.hidden / whole, (found.high - found.low) / 2 / whole if found else None)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready values, with those that follow from them."""
        derived = {"instrumentation_overhead": self.instrumentation_overhead, "hidden_share": self.hidden_share}
        return {**asdict(self), **derived, "waiting": asdict(self.waiting) if self.waiting else None}


# What is averaged over processes; of the rest, intervals are joined, and `other` and `hidden` follow.
AVERAGED = tuple(
    name
    for name, field in Budget.__dataclass_fields__.items()
    if "float" in str(field.type) and name not in ("other", "hidden", "waits")
)


def budget_of(
    ranks: Sequence[Rank],
    devices: int | None = None,
    reads: bool = False,
    method: int = METHOD,
    separable: Collection[str] = STAGES,
    in_parts: bool = False,
) -> Budget | None:
    """One process group's budget, or None when its native or staged pass is missing on a rank.

    `devices` are all of the case's; a rank has one where none are given. `reads`: its data are not synthetic.
    `separable`: the stages that the strategy tells apart; what happens inside another one has no figure of its own.
    `in_parts`: several devices hold one network; without a bubble of its own their waiting is in other stages.
    """
    if not ranks or any(not {"native", "staged"} <= set(rank.passes) for rank in ranks):
        return None
    old = method == 1
    staged = [_stages(rank, old) for rank in ranks]
    critical, timed = max(zip(ranks, staged, strict=True), key=lambda pair: _own_work(pair[0], pair[1], old))
    stages = {name: timed.get(name, 0.0) for name in COMPUTE}
    native = wall_per_step(ranks, "native")
    assert native is not None
    compute_only, comm_only = wall_per_step(ranks, "compute_only"), _comm_only(ranks)
    several = (devices or len(ranks)) > 1
    exchange, reading = (pairs(ranks, "compute_only") if several else None), pairs(ranks, "resident")
    exposed = difference(exchange) if exchange else None
    added = difference(reading) if reading else None
    communication = exposed.value if exposed else None
    if old and compute_only is not None:
        communication = native - compute_only
    if not several:
        communication = 0.0
    io: float | None = None if reads else 0.0
    if old:
        io = waited(critical)
    elif added:
        stages["h2d"] = min(stages["h2d"], max(added.value, 0.0))
        io = added.value - stages["h2d"]
    if reads and "io" not in separable:
        io = None  # it stands in the stage that takes the batch
    apart = {name: stages[name] if name in separable else None for name in COMPUTE}
    bubble = timed.get("bubble", None if in_parts else 0.0)
    waits = _waits(ranks)
    return Budget(
        method=method,
        native=native,
        io=io,
        **apart,
        bubble=bubble,
        communication=communication,
        other=native - sum(known for known in (io, *apart.values(), bubble, communication) if known is not None),
        hidden=None if communication is None or comm_only is None else comm_only - communication,
        overlappable=None if comm_only is None else _overlappable(critical, comm_only, stages, method),
        comm_only=comm_only,
        compute_only=compute_only,
        io_only=wall_per_step(ranks, "io_only"),
        staged=wall_per_step(ranks, "staged") or 0.0,
        staged_communication=timed.get("communication", 0.0),
        skew=max(each.get("skew", 0.0) for each in staged),
        critical_rank=critical.rank,
        exposed_input=added,
        exposed_communication=exposed,
        hidden_communication=_hidden(ranks, exchange, comm_only) if exchange and comm_only is not None else None,
        barrier=min((mean_difference(each) for each in waits), key=lambda one: one.value, default=None),
        waits=tuple(map(fmean, waits)),
    )


def over_processes(budgets: Sequence[Budget]) -> Budget | None:
    """Means over processes (of method 1 medians); `other` and `hidden` are then taken anew, so that the sums close."""
    if not budgets:
        return None
    center = median if budgets[0].method == 1 else fmean
    columns: dict[str, Any] = {name: _center([getattr(one, name) for one in budgets], center) for name in AVERAGED}
    rest = [columns[name] for name in ("io", *COMPUTE, "bubble", "communication") if columns[name] is not None]
    exposed, alone = columns["communication"], columns["comm_only"]
    critical = {budget.critical_rank for budget in budgets}
    return Budget(
        method=budgets[0].method,
        **columns,
        exposed_input=_joined([budget.exposed_input for budget in budgets]),
        exposed_communication=_joined([budget.exposed_communication for budget in budgets]),
        hidden_communication=_joined([budget.hidden_communication for budget in budgets]),
        barrier=_joined([budget.barrier for budget in budgets]),
        waits=tuple(map(fmean, zip(*(budget.waits for budget in budgets), strict=False))),
        other=columns["native"] - sum(rest),
        hidden=None if exposed is None or alone is None else alone - exposed,
        critical_rank=critical.pop() if len(critical) == 1 else None,
    )


def wall_per_step(ranks: Sequence[Rank], name: str) -> float | None:
    """Seconds per step of the slowest rank in a pass; None when a rank lacks it."""
    passes = [rank.passes.get(name) for rank in ranks]
    found = [one.wall_s / len(one.step_s) for one in passes if one and one.step_s]
    return max(found) if found and len(found) == len(passes) else None


def waited(rank: Rank) -> float:
    """How long the host waited for the batch of a native step, the mean: prefetching makes single waits uneven."""
    return fmean(rank.passes["native"].io_s or [0.0])


def _own_work(rank: Rank, stages: dict[str, float], old: bool) -> float:
    return (waited(rank) if old else 0.0) + sum(stages.get(name, 0.0) for name in COMPUTE)


def _stages(rank: Rank, old: bool) -> dict[str, float]:
    """Over steps, by stage; without those that the adapter does not tell apart."""
    center = median if old else fmean
    return {name: center(seconds) for name, seconds in (rank.passes["staged"].stage_s or {}).items() if seconds}


def _waits(ranks: Sequence[Rank]) -> list[list[float]]:
    """Seconds that every rank waited for the last one, a step each: its time in the barrier less the shortest one.

    The last rank's is what a barrier itself takes. Nothing with one rank, or where a rank has fewer than two steps.
    """
    barriers = [(rank.passes["staged"].stage_s or {}).get("skew") or () for rank in ranks]
    if len(ranks) < 2 or min(map(len, barriers)) < 2:
        return []
    shortest = list(map(min, zip(*barriers, strict=False)))
    return [[own - least for own, least in zip(barrier, shortest, strict=False)] for barrier in barriers]


def _overlappable(rank: Rank, comm_only: float, stages: dict[str, float], method: int) -> float | None:
    if method < 3:
        return overlappable(in_order(rank.layers or ()), comm_only, stages["update"])
    return overlappable(rank.layers or (), comm_only, stages["update"], stages["backward"])


def _comm_only(ranks: Sequence[Rank]) -> float | None:
    """Seconds of the exchange alone: of each block the slowest rank's, where it took turns."""
    blocks = pairs(ranks, "comm_only")
    return fmean(alone for _, alone in blocks) if blocks else wall_per_step(ranks, "comm_only")


def _hidden(ranks: Sequence[Rank], exchange: Sequence[tuple[float, float]], comm_only: float) -> Difference:
    """The exchange alone less its exposed part, in every round; before method 8 both had a noise of their own."""
    blocks = pairs(ranks, "comm_only")
    if blocks:
        return mean_difference(
            [alone - (native - other) for (native, other), (_, alone) in zip(exchange, blocks, strict=True)]
        )
    steps = max((rank.passes["comm_only"].step_s for rank in ranks), key=sum)
    noise = variance(steps, fmean(steps)) / len(steps) if len(steps) > 1 else 0.0
    return mean_difference([comm_only - (native - other) for native, other in exchange], noise)


def _joined(found: Sequence[Difference | None]) -> Difference | None:
    known = [one for one in found if one]
    return joined_differences(known) if known else None


def _center(values: list[float | None], center: Callable[[list[float]], float]) -> float | None:
    known = [value for value in values if value is not None]
    return center(known) if known else None


@dataclass(frozen=True)
class InputWait:
    """Seconds of one process group."""

    # Native less native on resident batches; None without that pass. Of method 1: the wait for the host's batch on the
    # rank that waits longest.
    waited: float | None
    share: float | None  # of the native step
    interval: Difference | None  # of that share; None of method 1
    alone: Values  # of every io_only step, on the slowest rank; empty when the pass was not run


def input_wait(ranks: Sequence[Rank], method: int = METHOD) -> InputWait | None:
    """None when no pass can tell, or a rank lacks it."""
    alone = _alone(ranks)
    seconds, share, interval = (_waited_on_host(ranks) if method == 1 else _exposed(ranks)) or (None, None, None)
    known = seconds is not None or (alone.size and method > 1)
    return InputWait(seconds, share, interval, alone) if known else None


def _exposed(ranks: Sequence[Rank]) -> tuple[float, float, Difference] | None:
    turns = pairs(ranks, "resident")
    if turns is None:
        return None
    native, added = fmean(native for native, _ in turns), difference(turns)
    return added.value, added.value / native, added.scaled(1 / native)


def _waited_on_host(ranks: Sequence[Rank]) -> tuple[float, float, None] | None:
    native = [rank.passes.get("native") for rank in ranks]
    clocked = [(waited(rank), one) for rank, one in zip(ranks, native, strict=True) if one and one.io_s and one.wall_s]
    if not clocked or len(clocked) < len(native):
        return None
    longest, one = max(clocked, key=lambda pair: pair[0])
    return longest, longest * len(one.step_s) / one.wall_s, None


def _alone(ranks: Sequence[Rank]) -> Values:
    found = [one for one in (rank.passes.get("io_only") for rank in ranks) if one and one.step_s]
    if not found or len(found) < len(ranks):
        return np.array([], dtype=np.float64)
    slowest = max(found, key=lambda one: one.wall_s / len(one.step_s))
    steps = np.array(slowest.step_s, dtype=np.float64)
    # Steps are clocked between marks, and a batch that lay ready takes no time that the clock knows.
    return np.maximum(steps, 1e-9) * (slowest.wall_s / max(float(steps.sum()), 1e-9))
