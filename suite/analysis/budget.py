"""The closed budget: where one iteration's wall time goes, from separate passes, with the residual shown.

All stage seconds of a process are those of one rank, the *critical* one: the rank whose own stages (h2d, forward,
backward, update) are the longest. The others wait for it, so its stages and the group's wall time belong together. A
pass's wall time per step is that of its slowest rank.

    exposed input         = native - resident, in turns: h2d as far as the staged pass explains it, the rest io
    exposed communication = native - compute_only, in turns, both on resident batches
    hidden communication  = comm_only - exposed communication, in the same turns; at most `overlappable` of it can be
                            hidden (stagebench.suite.analysis.overlappable, if the adapter times its layers)
    other = native - (io + h2d + forward + backward + bubble + exposed communication + update)

`waiting` is the part of exposed communication that no faster link would spare: each exchange waits for the last rank to
arrive, and that rank changes from step to step. A rank's wait is its time in the staged pass's barrier, less that of
the last rank to arrive; the group's wait is the shortest of its ranks' waits. The staged pass may wait longer than the
native one, so `waiting` is at most the exposed part; the rest of that is transfer.

The staged pass takes turns with native steps, too; its seconds are multiplied by the native pass's over theirs. A step
that reads is thus explained from the inside out: computing, then what exchanging adds to it, then what reading
adds to both. All values are means, over steps and over processes, since only means add up. `other` is signed and never
spread: it is negative if the fused native step is faster than its stages one by one. Differences may be negative, too,
by noise or because exchanging disturbs computing; they are not clipped.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from statistics import fmean
from typing import Any

import numpy as np

from stagebench.suite.analysis.overlappable import overlappable
from stagebench.suite.analysis.stats import Values, determined, student_t
from stagebench.suite.results.rank_report import Rank
from stagebench.suite.worker.pass_kinds import COMM_ONLY, COMPUTE_ONLY, IO_ONLY, NATIVE, RESIDENT, STAGED

COMPUTE = ("h2d", "forward", "backward", "update")
# In the order of the closed sum.
STAGES = ("io", "h2d", "forward", "backward", "bubble", "communication", "update", "other")
OVERHEAD = "instrumentation_overhead"


@dataclass(frozen=True, slots=True)
class Difference:
    """Seconds per step, and the ends of their 95 % interval (Student's t); negative by noise, or if something helps.

    The interval comes from processes. With a single process it comes from its rounds, and so it does not hold the
    scatter of processes: words next to it say that.
    """

    value: float
    low: float
    high: float
    of: int  # values behind the interval: processes, or the rounds of one
    processes: int = 1

    def scaled(self, factor: float) -> "Difference":
        """Return the interval of `factor` times the quantity; the factor is positive."""
        return replace(self, value=self.value * factor, low=self.low * factor, high=self.high * factor)


def pairs(ranks: Sequence[Rank], name: str) -> list[tuple[float, float]]:
    """Return (native, other) seconds per step of every pair of blocks, the slowest rank's of each block.

    Empty if a rank lacks the pass, or its pairs.
    """
    by_rank = [rank.passes[name].pairs_s for rank in ranks if name in rank.passes]
    blocks_of_ranks = [blocks for blocks in by_rank if blocks]
    if len(blocks_of_ranks) < len(ranks):
        return []
    slowest = []
    for blocks in zip(*blocks_of_ranks, strict=False):
        native, other = zip(*blocks, strict=True)
        slowest.append((max(native), max(other)))
    return slowest


def difference(blocks: Sequence[tuple[float, float]]) -> Difference | None:
    """Return native less the other pass, from the pairs of blocks of one process; None without any."""
    return mean_difference([native - other for native, other in blocks]) if blocks else None


def mean_difference(values: Sequence[float], processes: int = 1) -> Difference:
    """Return the mean of two or more values."""
    mean, count = fmean(values), len(values)
    # `statistics.variance` counts in fractions and takes twenty times as long.
    variance = sum([(value - mean) ** 2 for value in values]) / (count - 1)
    half = student_t(0.975, count - 1) * math.sqrt(variance / count)
    return Difference(mean, mean - half, mean + half, count, processes)


def joined_differences(differences: Sequence[Difference]) -> Difference:
    """Join the differences of processes: from two on, each is one value, whose scatter holds that within processes."""
    if len(differences) == 1:
        return differences[0]
    return mean_difference([each.value for each in differences], len(differences))


@dataclass(frozen=True, slots=True)
class Budget:
    """Seconds per iteration; None if no pass measures it."""

    native: float
    io: float | None  # exposed; None if the pass `resident` was not run on data that are read
    h2d: float | None  # this one and those below: None if it happens inside another stage
    forward: float | None
    backward: float | None
    update: float | None
    bubble: float | None  # waiting for other parts of the same network; 0.0 if each device holds all of it
    communication: float | None  # exposed; 0.0 on one device, None if compute_only was not run
    overlappable: float | None  # part of comm_only that computing could hide at most; None: see overlappable
    comm_only: float | None
    compute_only: float | None
    io_only: float | None
    staged: float  # wall of the instrumented iteration
    staged_communication: float  # transfer only, behind a barrier
    skew: float  # the longest mean time in that barrier, over ranks: not counted as communication
    critical_rank: int | None  # None: processes differ in it
    # Intervals, if blocks in turns gave them: of exposed input (io + h2d), exposed and hidden communication.
    exposed_input: Difference | None = None
    exposed_communication: Difference | None = None
    hidden_communication: Difference | None = None
    barrier: Difference | None = None  # the wait for the last rank, of the rank that waits least; None with one rank
    waits: tuple[float, ...] = ()  # for the last rank, of every rank, in the ranks' order
    # Of STAGES and OVERHEAD over processes, each one's stages against its own native step; {} of a single process.
    intervals: Mapping[str, Difference] = field(default_factory=dict)

    @property
    def other(self) -> float:
        """The native step less the rest; it includes stages that are None."""
        parts = (self.io, self.h2d, self.forward, self.backward, self.update, self.bubble, self.communication)
        return self.native - sum(part for part in parts if part is not None)

    @property
    def hidden(self) -> float | None:
        """The part of comm_only that computing hides."""
        if self.communication is None or self.comm_only is None:
            return None
        return self.comm_only - self.communication

    def of(self, name: str) -> float | None:
        """Return a stage's seconds, or OVERHEAD."""
        return getattr(self, name)  # type: ignore[no-any-return]

    @property
    def instrumentation_overhead(self) -> float:
        """The instrumented iteration's time over the native one's."""
        return self.staged / self.native

    @property
    def exposed_share(self) -> float | None:
        """Exposed communication as a share of the iteration."""
        return None if self.communication is None else self.communication / self.native

    @property
    def waiting(self) -> Difference | None:
        """The wait for the last rank, limited to exposed communication if that is known."""
        barrier, exposed = self.barrier, self.communication
        if barrier is None or exposed is None:
            return barrier
        most = max(exposed, 0.0)
        return replace(
            barrier, value=min(barrier.value, most), low=min(barrier.low, most), high=min(barrier.high, most)
        )

    @property
    def hidden_share(self) -> float | None:
        """Hidden communication over what could be hidden; None if nothing can be, or if it is not determined."""
        return self.hidden_of(self.overlappable)

    def hidden_of(self, whole: float | None) -> float | None:
        """Return hidden communication as a share of `whole` seconds; None if it is not determined."""
        if self.hidden is None or not whole:
            return None
        interval = self.hidden_communication
        return determined(self.hidden / whole, (interval.high - interval.low) / 2 / whole if interval else None)

    def to_dict(self) -> dict[str, Any]:
        """Return all values, with those derived from them."""
        derived = ("other", "hidden", OVERHEAD, "hidden_share", "waiting")
        return asdict(self) | {name: getattr(self, name) for name in derived}


def budget_of(
    ranks: Sequence[Rank],
    devices: int | None = None,
    reads: bool = False,
    separable: Collection[str] = STAGES,
    in_parts: bool = False,
) -> Budget | None:
    """Return one process group's budget, or None if its native or staged pass is missing on a rank.

    `devices` is the number of all of the case's devices; None: one per rank. `reads`: the data are not synthetic.
    `separable`: the stages that the strategy tells apart; a stage that happens inside another one has no figure.
    `in_parts`: several devices hold one network; without a bubble of its own, their waiting is in other stages.
    """
    native, staged = wall_per_step(ranks, NATIVE), wall_per_step(ranks, STAGED)
    if native is None or staged is None:
        return None
    # The machine is then as fast in all of the budget as in the native pass. Ranks that wait for none do so in turns.
    turns = [] if any(rank.passes[NATIVE].own_pace for rank in ranks) else pairs(ranks, STAGED)
    drift = native / fmean([native_s for native_s, _ in turns]) if turns else 1.0
    steps_of_ranks = [rank.passes[STAGED].stage_s or {} for rank in ranks]
    # Mean seconds by stage, without stages that the adapter does not tell apart.
    stages_of_ranks = [{name: drift * fmean(steps) for name, steps in own.items() if steps} for own in steps_of_ranks]
    own_work = [sum(stages.get(name, 0.0) for name in COMPUTE) for stages in stages_of_ranks]
    critical = own_work.index(max(own_work))
    measured = stages_of_ranks[critical]
    stages = {name: measured.get(name, 0.0) for name in COMPUTE}

    exchanging, alone = pairs(ranks, COMPUTE_ONLY), pairs(ranks, COMM_ONLY)
    comm_only = fmean([seconds for _, seconds in alone]) if alone else wall_per_step(ranks, COMM_ONLY)
    exposed = hidden = possible = None
    communication: float | None = 0.0
    if (devices or len(ranks)) > 1:
        exposed = difference(exchanging)
        communication = exposed.value if exposed else None
        if exchanging and alone:
            rounds = zip(exchanging, alone, strict=True)
            hidden = mean_difference([seconds - (native_s - other) for (native_s, other), (_, seconds) in rounds])
    if comm_only is not None:
        possible = overlappable(ranks[critical].layers or (), comm_only, stages["update"], stages["backward"])

    added = difference(pairs(ranks, RESIDENT))
    io = None if reads else 0.0
    if added:
        stages["h2d"] = min(stages["h2d"], max(added.value, 0.0))
        io = added.value - stages["h2d"]
    if reads and "io" not in separable:
        io = None  # it happens in the stage that takes the batch

    # Of every rank, the seconds of each step that it waited for the last one, whose own are what a barrier takes.
    barriers = [own.get("skew") or () for own in steps_of_ranks]
    waits = []
    if len(ranks) > 1 and min(map(len, barriers)) > 1:
        shortest = list(map(min, zip(*barriers, strict=False)))
        waits = [[seconds - least for seconds, least in zip(barrier, shortest, strict=False)] for barrier in barriers]
    return Budget(
        native=native,
        io=io,
        **{name: stages[name] if name in separable else None for name in COMPUTE},
        bubble=measured.get("bubble", None if in_parts else 0.0),
        communication=communication,
        overlappable=possible,
        comm_only=comm_only,
        compute_only=wall_per_step(ranks, COMPUTE_ONLY),
        io_only=wall_per_step(ranks, IO_ONLY),
        staged=drift * staged,
        staged_communication=measured.get("communication", 0.0),
        skew=max(stages.get("skew", 0.0) for stages in stages_of_ranks),
        critical_rank=ranks[critical].rank,
        exposed_input=added,
        exposed_communication=exposed,
        hidden_communication=hidden,
        barrier=min(map(mean_difference, waits), key=lambda wait: wait.value, default=None),
        waits=tuple(map(fmean, waits)),
        intervals={},
    )


def over_processes(budgets: Sequence[Budget]) -> Budget | None:
    """Average over processes; intervals are joined, and the sums close again."""
    if not budgets:
        return None
    joined: dict[str, Any] = {}
    for part in fields(Budget):
        known = [value for budget in budgets if (value := getattr(budget, part.name)) is not None]
        join: Callable[[list[Any]], Any] = joined_differences if "Difference" in str(part.type) else fmean
        if part.name == "intervals":
            values = {name: [v for each in budgets if (v := each.of(name)) is not None] for name in (*STAGES, OVERHEAD)}
            joined[part.name] = {
                name: mean_difference(several, len(several))
                for name, several in values.items()
                if len(several) == len(budgets) > 1
            }
        elif part.name == "critical_rank":
            joined[part.name] = known[0] if len(known) == len(budgets) and len(set(known)) == 1 else None
        elif part.name == "waits":
            joined[part.name] = tuple(map(fmean, zip(*known, strict=False)))
        else:
            joined[part.name] = join(known) if known else None
    return Budget(**joined)


def wall_per_step(ranks: Sequence[Rank], name: str) -> float | None:
    """Return seconds per step of the slowest rank in a pass; None without ranks, or if one lacks the pass."""
    timed = [rank.passes[name] for rank in ranks if name in rank.passes and rank.passes[name].step_s]
    return max((each.wall_s / len(each.step_s) for each in timed), default=None) if len(timed) == len(ranks) else None


@dataclass(frozen=True, slots=True)
class InputWait:
    """The time that input adds to a native step of a process group, and the speed of input when nothing else runs."""

    waited: float | None  # seconds: native less native on resident batches; None without that pass
    share: Difference | None  # of the native step
    alone: Values  # seconds of every io_only step, on the slowest rank; empty if the pass was not run


def input_wait(ranks: Sequence[Rank]) -> InputWait | None:
    """Return None if a rank lacks both passes that measure input."""
    steps = np.array([], dtype=np.float64)
    if wall_per_step(ranks, IO_ONLY) is not None:
        slowest = max((rank.passes[IO_ONLY] for rank in ranks), key=lambda timed: timed.wall_s / len(timed.step_s))
        steps = np.array(slowest.step_s, dtype=np.float64)
        # Steps are clocked between marks, and a batch that was ready takes no time that the clock shows.
        steps = np.maximum(steps, 1e-9) * (slowest.wall_s / max(float(steps.sum()), 1e-9))
    reading = pairs(ranks, RESIDENT)
    if added := difference(reading):
        return InputWait(added.value, added.scaled(1 / fmean([native for native, _ in reading])), steps)
    return InputWait(None, None, steps) if steps.size else None
