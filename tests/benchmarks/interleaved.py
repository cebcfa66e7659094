"""Ways of taking the same training step, timed in alternating short blocks; Python 3.6 and newer.

Whatever else the machine does hits all ways alike; a ratio is a figure a round, its median
and bootstrap 95 % interval are told. CPU seconds of the process stand beside wall time: a
busy machine disturbs them less.
"""

import random
import statistics
import time

BLOCK_SECONDS = 0.25


def compared(ways, ours, rounds):
    """Milliseconds of every way, and the ratio of each other way to ours: above 1, ours is faster.

    `ways` maps names to functions that take one step and have done it when they return.
    """
    for step in ways.values():
        step()
    usual = max(block(step, 2)[0] for step in ways.values())
    steps = max(1, int(round(BLOCK_SECONDS / usual)))
    timed = {name: [] for name in ways}
    for number in range(rounds):
        for name in sorted(ways, reverse=bool(number % 2)):
            timed[name].append(block(ways[name], steps))
    result = {"steps_per_block": steps, "rounds": rounds, "ms": {}, "cpu_ms": {}, "ratio": {}, "cpu_ratio": {}}
    for name, blocks in timed.items():
        result["ms"][name] = statistics.median(wall for wall, _ in blocks) * 1e3
        result["cpu_ms"][name] = statistics.median(cpu for _, cpu in blocks) * 1e3
        if name != ours:
            for which, key in ((0, "ratio"), (1, "cpu_ratio")):
                ratios = [theirs[which] / own[which] for theirs, own in zip(blocks, timed[ours])]
                result[key][name] = (statistics.median(ratios),) + interval(ratios)
    return result


def block(step, steps):
    """(wall, CPU) seconds of one step."""
    begin, cpu = time.perf_counter(), time.process_time()
    for _ in range(steps):
        step()
    return (time.perf_counter() - begin) / steps, (time.process_time() - cpu) / steps


def interval(ratios, draws=2000):
    """Bootstrap 95 % interval of the median."""
    chance = random.Random(1)
    medians = sorted(statistics.median(chance.choices(ratios, k=len(ratios))) for _ in range(draws))
    return medians[draws // 40], medians[-draws // 40]
