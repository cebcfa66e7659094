"""Do the verdicts of a noisy machine contradict those of a quiet one?

    python tests/validation/under_load.py                           # ten rows, seven rounds; half an hour
    python tests/validation/under_load.py --plan quick              # what `tox run -m bench` measures

The plan is run twice, alone and beside a load that comes and goes: as many programs as there are cores each keep one
busy for some seconds, then leave it alone for some, at times drawn from fixed seeds. (A single one would hardly meet a
case of one rank and one thread: it finds the other core.) Of every pair of rows that may be compared the two verdicts
are held against each other. It wants: pairs that both runs compare, and none in which both see a difference, in
opposite directions; no row set aside for noise alone; the median half-width of the ratios' intervals, under the load,
at most 6 %.
"""

import argparse
import multiprocessing
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

from figures import figure, told

from stagebench.suite.analysis.leaders import compared
from stagebench.suite.analysis.summary import summarise
from stagebench.suite.results.run_folder import RunFolder

PLAN = Path(__file__).with_suffix(".toml")
WIDEST = 0.06  # the median pair's half-width under the load
BUSY, IDLE = (2.0, 12.0), (4.0, 20.0)  # seconds, each drawn between the two
NOISE = {"trend"}  # marks that noise could cause and must not


def come_and_go(seed):
    """Keep a core busy, and leave it, until killed."""
    draw = random.Random(seed)
    while True:
        until = time.monotonic() + draw.uniform(*BUSY)
        while time.monotonic() < until:
            sum(range(10_000))
        time.sleep(draw.uniform(*IDLE))


@contextmanager
def load(processes):
    started = [multiprocessing.Process(target=come_and_go, args=(seed,), daemon=True) for seed in range(processes)]
    for each in started:
        each.start()
    try:
        yield
    finally:
        for each in started:
            each.kill()


def rows(plan, limit, folder):
    """The rows of a run of the plan."""
    words = [sys.executable, "-m", "stagebench.suite.cli", "run", plan, "--for", limit, "-o", str(folder)]
    done = subprocess.run(words, check=False, stdout=subprocess.DEVNULL)
    if done.returncode not in (0, 1):  # 1: a case failed, and the others stand
        raise SystemExit(f"{' '.join(words)} ended with {done.returncode}")
    return summarise(RunFolder.open(folder))


def verdicts(found):
    """The ratio of every pair of rows that may be compared."""
    groups = {}
    for row in found:
        if row.comparable:
            groups.setdefault(row.group, {})[row.id] = row.rates
    return {pair: ratio for group in groups.values() for pair, ratio in compared(group).items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plan", default=str(PLAN))
    parser.add_argument("--for", dest="limit", default="20min", help="the time of each of the two runs")
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)), help="of the load")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        quiet = rows(asked.plan, asked.limit, Path(scratch) / "quiet")
        with load(asked.processes):
            noisy = rows(asked.plan, asked.limit, Path(scratch) / "noisy")
    labels = {row.id: row.case.label for row in noisy}
    before, after = verdicts(quiet), verdicts(noisy)
    contradicted = [
        f"{labels[pair[0]]} faster than {labels[pair[1]]} alone, slower under the load"
        for pair in before.keys() & after.keys()
        if (before[pair].verdict, after[pair].verdict) == ("faster", "slower")
    ]
    both = len(before.keys() & after.keys()) // 2
    aside = [row.case.label for row in noisy if NOISE & set(row.marks)]
    figures = []
    for title, found in (("alone", before), ("under the load", after)):
        widths = [ratio.high / ratio.value - 1 for ratio in found.values()]
        words = [ratio.verdict for ratio in found.values()]
        decided = sum(verdict in ("faster", "slower") for verdict in words) // 2
        middle = f"median half-width {statistics.median(widths):.1%}" if widths else "nothing to compare"
        print(f"{title}: {len(found) // 2} pairs, {decided} distinguished, {middle}")
        figures.append(figure(f"pairs distinguished {title}, of {len(found) // 2}", decided))
    for title, found in (("contradicted", contradicted), ("set aside for noise", aside)):
        print(f"{title}: {len(found)}", *found, sep="\n    ")
    width = 100 * statistics.median(widths) if widths else None
    return told(
        [
            *figures,
            figure("pairs compared in both runs", both, at_least=1),
            figure("verdicts that contradict each other", len(contradicted), at_most=0),
            figure("rows set aside for noise alone", len(aside), at_most=0),
            figure("half-width of the median pair under the load", width, "%", at_most=100 * WIDEST, why="no pairs"),
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
