"""Several ways of doing the same, timed in alternating short blocks: whatever else the machine does hits all alike.

Oldest Python: 3.6.
"""

import random
import statistics
import time

BLOCK_SECONDS = 0.25


def alternated(ways, rounds, base):
    """{way: [(wall, CPU) seconds a step, a figure a round]}; blocks are as long as a quarter second of `base`."""
    usual = min(block(ways[base], 3)[0] for _ in range(2))
    steps = max(1, round(BLOCK_SECONDS / usual))
    timed = {name: [] for name in ways}
    for number in range(rounds):
        names = sorted(ways)
        for name in names[number % len(names) :] + names[: number % len(names)]:
            timed[name].append(block(ways[name], steps))
    return timed


def block(step, steps):
    """(wall, CPU) seconds of one step."""
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(steps):
        step()
    return (time.perf_counter() - wall) / steps, (time.process_time() - cpu) / steps


def ratio(theirs, ours):
    """Theirs over ours (more: ours is faster): median, bootstrap 95 % interval, and the median of CPU seconds."""
    walls = [a / b for (a, _), (b, _) in zip(theirs, ours)]
    low, high = interval(walls)
    cpu = statistics.median(a / b for (_, a), (_, b) in zip(theirs, ours))
    return {"ratio": statistics.median(walls), "low": low, "high": high, "cpu_ratio": cpu, "ratios": walls}


def interval(values, draws=2000):
    """Bootstrap 95 % interval of the median."""
    stream = random.Random(1)
    medians = sorted(statistics.median(stream.choices(values, k=len(values))) for _ in range(draws))
    return medians[int(0.025 * draws)], medians[int(0.975 * draws)]
