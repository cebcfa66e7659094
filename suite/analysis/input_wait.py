"""What input adds to a native step, and how fast input comes when nothing else runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from suite.analysis.budget import waited
from suite.analysis.differences import Difference, difference, pairs
from suite.analysis.stats import Values
from suite.results.rank_report import Rank
from suite.results.records import METHOD


@dataclass(frozen=True)
class InputWait:
    """Seconds of one process group."""

    # Native less native on resident batches; None without that pass. Of method 1: the wait for the host's batch on the
    # rank that waits longest.
    waited: float | None
    share: float | None  # of the native step
    interval: Difference | None  # of that share; None of method 1
    alone: Values  # of every io_only step, on the slowest rank; empty when the pass was not run


def of_process(ranks: Sequence[Rank], method: int = METHOD) -> InputWait | None:
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
