"""How long one process group's native pass waited for input, and how fast input comes when nothing else runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from suite.analysis.stats import Values
from suite.results.records import Rank


@dataclass(frozen=True)
class InputWait:
    """Seconds of one process group."""

    # Per native step, on the rank that waits longest: the mean, since reading ahead makes single waits uneven.
    waited: float
    share: float  # of that rank's native wall time
    alone: Values  # of every io_only step, on the slowest rank; empty when the pass was not run


def of_process(ranks: Sequence[Rank]) -> InputWait | None:
    """None when a rank lacks its native pass, or did not clock its waiting."""
    native = [rank.passes.get("native") for rank in ranks]
    clocked = [(fmean(one.io_s), one) for one in native if one and one.io_s and one.wall_s]
    if not clocked or len(clocked) < len(native):
        return None
    waited, longest = max(clocked, key=lambda pair: pair[0])
    return InputWait(waited, waited * len(longest.step_s) / longest.wall_s, _alone(ranks))


def _alone(ranks: Sequence[Rank]) -> Values:
    found = [one for one in (rank.passes.get("io_only") for rank in ranks) if one and one.step_s]
    if len(found) < len(ranks):
        return np.array([], dtype=np.float64)
    slowest = max(found, key=lambda one: one.wall_s / len(one.step_s))
    steps = np.array(slowest.step_s, dtype=np.float64)
    # Steps are clocked between marks, and a batch that lay ready takes no time that the clock knows.
    return np.maximum(steps, 1e-9) * (slowest.wall_s / max(float(steps.sum()), 1e-9))
