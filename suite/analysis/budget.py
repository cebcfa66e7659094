"""The closed budget: where one iteration's wall time goes, from separate passes, residual shown.

All stage seconds of a process are those of one rank, the *critical* one, whose own work
(waiting for input, h2d, forward, backward, update) is the longest: it is the rank the others
wait for, so its stages and the group's wall time belong together. A pass's wall time per
step is that of its slowest rank.

    exposed communication = native - compute_only
    hidden communication  = comm_only - exposed communication, of which no more than `hideable` could be
                            (suite.analysis.overlappable, where the adapter times its layers)
    other = native - (io + h2d + forward + backward + bubble + exposed communication + update)

io is what the native pass waited for input, the mean over its steps, since prefetching
makes single waits uneven; h2d, forward, backward and update are medians over the staged
pass's steps. `other` is signed and never spread: it is negative where the fused native step
is quicker than its stages one by one. Exposed or hidden communication may be negative too,
by noise or because exchanging disturbs computing; they stay as they are.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, median
from typing import Any

from suite.analysis.overlappable import hideable
from suite.results.records import Rank

COMPUTE = ("h2d", "forward", "backward", "update")
# In the order of the closed sum.
STAGES = ("io", "h2d", "forward", "backward", "bubble", "communication", "update", "other")


@dataclass(frozen=True)
class Budget:
    """Seconds per iteration; None where no pass can tell."""

    native: float
    io: float
    h2d: float
    forward: float
    backward: float
    update: float
    bubble: float  # waiting for other parts of the same network; 0.0 where it is not held in parts
    communication: float | None  # exposed; 0.0 on one device, None when compute_only was not run
    other: float  # native less the rest; holds the exposed communication where that is None
    hidden: float | None  # part of comm_only that computing hides
    hideable: float | None  # part of comm_only that computing could hide at most; None without layers' times
    comm_only: float | None
    compute_only: float | None
    io_only: float | None
    staged: float  # wall of the instrumented iteration
    staged_communication: float  # transfer alone, behind a barrier
    skew: float  # the longest median wait at that barrier, over ranks: not counted as communication
    critical_rank: int | None  # None: not the same one in every process

    @property
    def observer_effect(self) -> float:
        """How many times longer the instrumented iteration takes."""
        return self.staged / self.native

    @property
    def hidden_share(self) -> float | None:
        """Hidden communication over what could be hidden; None where there is nothing to hide, or no telling."""
        return None if self.hidden is None or not self.hideable else self.hidden / self.hideable

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready values, the observer's effect and the hidden share among them."""
        return {**asdict(self), "observer_effect": self.observer_effect, "hidden_share": self.hidden_share}


def of_process(ranks: Sequence[Rank], devices: int | None = None) -> Budget | None:
    """One process group's budget, or None when its native or staged pass is missing on a rank.

    `devices` are all of the case's; a rank has one unless told otherwise.
    """
    if not ranks or any(not {"native", "staged"} <= set(rank.passes) for rank in ranks):
        return None
    critical = max(ranks, key=_own_work)
    stages = {name: _stage(critical, name) for name in (*COMPUTE, "bubble")}
    native = wall_per_step(ranks, "native")
    assert native is not None
    compute_only, comm_only = wall_per_step(ranks, "compute_only"), wall_per_step(ranks, "comm_only")
    exposed = 0.0 if (devices or len(ranks)) == 1 else None if compute_only is None else native - compute_only
    io = _waited(critical)
    return Budget(
        native=native,
        io=io,
        **stages,
        communication=exposed,
        other=native - (io + sum(stages.values()) + (exposed or 0.0)),
        hidden=None if exposed is None or comm_only is None else comm_only - exposed,
        hideable=None if comm_only is None else hideable(critical.layers or (), comm_only, stages["update"]),
        comm_only=comm_only,
        compute_only=compute_only,
        io_only=wall_per_step(ranks, "io_only"),
        staged=wall_per_step(ranks, "staged") or 0.0,
        staged_communication=_stage(critical, "communication"),
        skew=max(_stage(rank, "skew") for rank in ranks),
        critical_rank=critical.rank,
    )


def over_processes(budgets: Sequence[Budget]) -> Budget | None:
    """Medians over processes; `other` and `hidden` are then taken anew, so that the sums close again."""
    if not budgets:
        return None
    columns: dict[str, Any] = {
        name: _median([getattr(budget, name) for budget in budgets])
        for name in Budget.__dataclass_fields__
        if name not in ("other", "hidden", "critical_rank")
    }
    rest = [columns[name] for name in ("io", *COMPUTE, "bubble", "communication") if columns[name] is not None]
    exposed, alone = columns["communication"], columns["comm_only"]
    critical = {budget.critical_rank for budget in budgets}
    return Budget(
        **columns,
        other=columns["native"] - sum(rest),
        hidden=None if exposed is None or alone is None else alone - exposed,
        critical_rank=critical.pop() if len(critical) == 1 else None,
    )


def wall_per_step(ranks: Sequence[Rank], name: str) -> float | None:
    """Seconds per step of the slowest rank in a pass; None when a rank lacks it."""
    passes = [rank.passes.get(name) for rank in ranks]
    found = [one.wall_s / len(one.step_s) for one in passes if one and one.step_s]
    return max(found) if found and len(found) == len(passes) else None


def _own_work(rank: Rank) -> float:
    return _waited(rank) + sum(_stage(rank, name) for name in COMPUTE)


def _stage(rank: Rank, name: str) -> float:
    """Median over steps; 0.0 for a stage that the adapter does not tell apart."""
    stages = rank.passes["staged"].stage_s or {}
    return median(stages.get(name) or [0.0])


def _waited(rank: Rank) -> float:
    return fmean(rank.passes["native"].io_s or [0.0])


def _median(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None
