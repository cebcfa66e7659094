"""The pass `kernels` beside the staged pass: how much of each stage the framework's kernels were at work.

Both are one rank's, in one process, and medians over iterations.
"""

from dataclasses import dataclass
from statistics import median

from suite.results.rank_report import Kernel
from suite.results.records import Record


@dataclass(frozen=True)
class StageUse:
    """One stage by both clocks."""

    stage: str
    busy: float  # seconds in which any kernel ran
    staged: float | None  # what the stage took; None: no staged pass in this process

    @property
    def idle_share(self) -> float | None:
        """The share of the stage in which no kernel ran; below 0 where the profiler itself took time."""
        return 1 - self.busy / self.staged if self.staged else None


@dataclass(frozen=True)
class Profile:
    """What one process's first rank reported."""

    profiler: str
    stages: tuple[StageUse, ...]  # those in which a kernel ran
    rows: tuple[Kernel, ...]  # the longest first
    trace: str  # its file within the run folder; "": not kept

    @property
    def seconds(self) -> float:
        """Of all kernels of an iteration, one after the other."""
        return sum(row.seconds for row in self.rows)


def of_process(record: Record) -> Profile | None:
    """None where no rank has any."""
    for rank in record.ranks:
        found = rank.kernels
        if found is None:
            continue
        staged = rank.passes.get("staged")
        times = {name: median(seconds) for name, seconds in ((staged and staged.stage_s) or {}).items() if seconds}
        uses = tuple(StageUse(stage, busy, times.get(stage)) for stage, busy in found.stages.items() if busy)
        trace = f"attempts/{record.case_id}-r{record.repeat}/{found.trace}" if found.trace else ""
        return Profile(found.profiler, uses, found.rows, trace)
    return None
