"""What the stage clock costs: seconds per border, and as a share of a 10 ms stage.

    python tests/validation/stage_clock.py

Must stay at or below 1 %. On a CPU `synchronize` costs nothing; on a device its cost is
the instrumentation overhead, which every report shows beside the breakdown.
"""

import sys
import time

from figures import figure, told

from stagebench.adapters.reference.base import ReferenceTrainer
from stagebench.suite.worker.clock import STAGES, StageClock
from tests.support.trainers import setup

STAGE = 0.010  # seconds
LIMIT = 0.01
ROUNDS = 2000


def border_costs() -> "list[float]":
    """Seconds of a lap, averaged over an iteration's borders, for every round, fastest first."""
    clock = StageClock(ReferenceTrainer(setup(precision="float64")))
    costs = []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        clock.begin()
        for _ in STAGES:
            clock.lap()
        costs.append((time.perf_counter() - begin) / len(STAGES))
    return sorted(costs)


def main() -> int:
    """Print the figures; 1 when the median is beyond the limit."""
    costs = border_costs()
    median, high = costs[ROUNDS // 2], costs[ROUNDS * 99 // 100]
    for name, cost in (("median", median), ("99th percentile", high)):
        print(f"{name}: {cost * 1e6:.2f} us a border, {cost / STAGE:.4%} of a {STAGE * 1e3:.0f} ms stage")
    share = 100 / STAGE
    return told(
        [
            figure("a border, of a stage of 10 ms", median * share, "%", at_most=100 * LIMIT),
            figure("the same, 99th percentile", high * share, "%"),
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
