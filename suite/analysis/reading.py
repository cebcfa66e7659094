"""What the input took of one process group's native pass, and how fast it comes when nothing else runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np

from suite.analysis.stats import Values


@dataclass(frozen=True)
class Reading:
    """Seconds of one process group."""

    # Per native step, on the rank that waits longest: the mean, since reading ahead makes single waits uneven.
    waited: float
    share: float  # of that rank's native wall time
    alone: Values  # of every io_only step, on the slowest rank; empty when the pass was not run


def of_process(ranks: Sequence[dict[str, Any]]) -> Reading | None:
    """None when a rank lacks its native pass, or did not clock its waiting."""
    native = [rank["passes"].get("native") for rank in ranks]
    if not native or any(not one or not one.get("io_s") or not one["wall_s"] for one in native):
        return None
    longest = max(native, key=lambda one: fmean(one["io_s"]))
    waited = fmean(longest["io_s"])
    return Reading(waited, waited * len(longest["step_s"]) / float(longest["wall_s"]), _alone(ranks))


def _alone(ranks: Sequence[dict[str, Any]]) -> Values:
    found = [rank["passes"].get("io_only") for rank in ranks]
    if any(one is None or not one["step_s"] for one in found):
        return np.array([], dtype=np.float64)
    slowest = max(found, key=lambda one: float(one["wall_s"]) / len(one["step_s"]))
    steps = np.array(slowest["step_s"], dtype=np.float64)
    # Steps are clocked between marks, and a batch that lay ready takes no time that the clock knows.
    return np.maximum(steps, 1e-9) * (float(slowest["wall_s"]) / max(float(steps.sum()), 1e-9))
