"""How often `compare` and `history` are wrong, and how often they find what is there, as JSON.

    python tests/validation/comparing.py RUN...

The noise is that of real records: processes deviate from their case's median as those of the runs do. They are drawn
with replacement and smoothed, since equal values do not happen (B. W. Silverman, G. A. Young, "The bootstrap: to smooth
or not to smooth?", 1987). Processes that something else disturbed are left out of a case that has five others. Give
runs with ten processes a case or more. `drawn_from` has the scatter of each case; the rest are shares of simulated
comparisons:

- `equal`: of runs without any change that end as faster or slower (a false verdict), by cases and processes; the same
  where runs differ by as much as processes do, with and without a history of so many runs;
- `planted`: of slow-downs of 3 % that are found with the number of processes that a pilot comparison suggests, on
  machines whose noise is of the real shape and of a given size;
- `slow_downs`: of histories with such a slow-down, of runs with that number of processes, in which it was found within
  one run of its place; those in which nothing else was found; and steady histories with a change;
- `changes`: the same of normal values, whose change is so many of their standard deviations.
"""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from stagebench.suite.analysis.compare_runs import MOST, SAME, SLOWER, Sides, judged
from stagebench.suite.analysis.rows import Row
from stagebench.suite.analysis.stats import Rates, Values
from stagebench.suite.analysis.summary import summarise
from stagebench.suite.analysis.trend import change_points, noise
from stagebench.suite.results.run_folder import RunFolder

THRESHOLD = 0.03
SLOW_DOWN = -float(np.log1p(THRESHOLD))  # of a speed's logarithm
FEW = 5  # processes of a case whose median says little: it is not drawn from
SMOOTHING = 0.3  # of their standard deviation


class Drawn(NamedTuple):
    """A case that noise is drawn from."""

    label: str
    deviations: Values  # logarithms of its processes' rates over their median, spread as those of as many draws
    left_out: int  # processes that were disturbed


def case_of(row: Row) -> Drawn | None:
    """None of a case of few processes; the disturbed ones are left out where enough others remain."""
    every = [process.rate for process in row.measured if process.rate]
    quiet = [process.rate for process in row.measured if process.rate and not process.noise.disturbed]
    chosen = np.array(quiet if len(quiet) >= FEW else every)
    if chosen.size < FEW:
        return None
    own = np.log(chosen / np.median(chosen)) * np.sqrt(chosen.size / (chosen.size - 1))
    return Drawn(row.case.label, own, len(every) - chosen.size)


def drawn_from(runs: Sequence[Path]) -> list[Drawn]:
    return [found for run in runs for row in summarise(RunFolder.open(run)) if (found := case_of(row))]


def rates(random: np.random.Generator, own: Values, count: int, level: float = 0.0) -> Rates:
    smoothed = random.choice(own, count) + random.normal(0, SMOOTHING * own.std(), count)
    return Rates(dict(enumerate(map(float, 100 * np.exp(level + smoothed / np.hypot(1, SMOOTHING))))))


def equal(random: np.random.Generator, real: list[Values], cases: int, count: int, trials: int) -> float:
    false = 0
    for _ in range(trials):
        own = [real[at] for at in random.integers(len(real), size=cases)]
        sides = {at: Sides(rates(random, each, count), rates(random, each, count)) for at, each in enumerate(own)}
        false += any(one.verdict != SAME for one in judged(sides, THRESHOLD).values())
    return false / trials


def drifting(random: np.random.Generator, real: list[Values], history: int, trials: int) -> float:
    """One case of five processes; runs scatter normally, by as much as its processes do."""
    false = 0
    for _ in range(trials):
        own = real[random.integers(len(real))]
        levels = random.normal(0, own.std(ddof=1), history + 2)
        runs = [rates(random, own, 5, level) for level in levels]
        known = noise([float(np.log(run.value)) for run in runs[:-1]]) if history else None
        false += judged({0: Sides(runs[-2], runs[-1], known)}, THRESHOLD)[0].verdict != SAME
    return false / trials


def suggested(random: np.random.Generator, own: Values, pilot: int) -> int:
    """Processes, by two equal runs of `pilot` processes."""
    first = judged({0: Sides(rates(random, own, pilot), rates(random, own, pilot))}, THRESHOLD)[0]
    return first.needs or MOST


def scaled(random: np.random.Generator, real: list[Values], scatter: float) -> Values:
    shape = real[random.integers(len(real))]
    return shape * (scatter / shape.std())


def planted(
    random: np.random.Generator, real: list[Values], scatter: float, pilot: int, trials: int
) -> dict[str, float]:
    """A slow-down of the threshold."""
    found, asked = 0, []
    for _ in range(trials):
        own = scaled(random, real, scatter)
        count = suggested(random, own, pilot)
        slower = rates(random, own, count, SLOW_DOWN)
        found += judged({0: Sides(rates(random, own, count), slower)}, THRESHOLD)[0].verdict == SLOWER
        asked.append(count)
    return {"found": found / trials, "median_processes": float(np.median(asked))}


def slow_downs(
    random: np.random.Generator, real: list[Values], scatter: float, runs: int, trials: int
) -> dict[str, float]:
    """Of the threshold, in a history of runs with as many processes as a pilot of five suggests."""

    def series(at: int) -> list[float]:
        own = scaled(random, real, scatter)
        count = suggested(random, own, 5)
        levels = [SLOW_DOWN * (run >= at) for run in range(runs)]
        return [float(np.log(rates(random, own, count, level).value)) for level in levels]

    return changes(random, runs, series, trials, float(np.log1p(THRESHOLD)))


def deviating(random: np.random.Generator, runs: int, size: float, trials: int) -> dict[str, float]:
    """`size` in standard deviations of a run."""
    return changes(random, runs, lambda at: list(random.normal(0, 1, runs) + size * (np.arange(runs) >= at)), trials)


def changes(
    random: np.random.Generator, runs: int, series: Callable[[int], list[float]], trials: int, least: float = 0.0
) -> dict[str, float]:
    """`series` with a change at a random place, five runs at each side where there are so many, or at the end: none."""
    margin, near, alone = min(5, runs // 3), 0, 0
    for _ in range(trials):
        at = int(random.integers(margin, runs - margin + 1))
        found = change_points(series(at), least)
        near += any(abs(each - at) <= 1 for each in found)
        alone += len(found) == 1
    false = sum(bool(change_points(series(runs), least)) for _ in range(trials))
    return {"within_one_run": near / trials, "only_one": alone / trials, "steady_with_a_change": false / trials}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, help="run folders to draw from")
    parser.add_argument("--trials", type=int, default=1000)
    asked = parser.parse_args()
    drawn = drawn_from(asked.runs)
    if not drawn:
        parser.error(f"no case of these runs has the speeds of {FEW} processes; measure with --processes 10 or more")
    real = [case.deviations for case in drawn]
    random, trials = np.random.default_rng(16), asked.trials
    found = {
        "trials": trials,
        "cases_drawn_from": len(real),
        "median_scatter": float(np.median([each.std(ddof=1) for each in real])),
        "drawn_from": [
            {
                "case": case.label,
                "processes": case.deviations.size,
                "disturbed_left_out": case.left_out,
                "scatter": float(case.deviations.std(ddof=1)),
            }
            for case in drawn
        ],
        "equal": {
            f"cases: {cases}, processes: {count}": equal(random, real, cases, count, trials)
            for cases, count in ((1, 3), (1, 5), (1, 10), (8, 5), (30, 5))
        },
        "equal_while_runs_differ": {
            f"history of {history} runs": drifting(random, real, history, trials) for history in (0, 5, 10, 20)
        },
        "planted": {
            f"noise of {scatter:.0%}, pilot of {pilot} processes": planted(random, real, scatter, pilot, trials)
            for scatter in (0.01, 0.02, 0.05)
            for pilot in (5, 10)
        },
        "slow_downs": {
            f"noise of {scatter:.0%}, {runs} runs": slow_downs(random, real, scatter, runs, trials)
            for scatter in (0.01, 0.02)
            for runs in (10, 20, 40)
        },
        "changes": {
            f"{size:g} deviations, {runs} runs": deviating(random, runs, size, trials)
            for runs in (10, 20, 40)
            for size in (3.0, 5.0)
        },
    }
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
