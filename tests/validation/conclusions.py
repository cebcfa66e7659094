"""How often a comparison is wrong, and how often it finds what is there: groups of equal rows on noisy machines.

    python tests/validation/conclusions.py

The machines: one whose processes scatter by 2 %; one where rows differ threefold in that, one where a single row is
noisy; one with a background load that comes and goes, and the rows are measured one after the other, or in turns; one
whose processes deviate from their row's median as those of the fixture runs do, 14 tiny measurements on a busy machine;
and two whose processes deviate as those in real_speeds.json do, or in run folders (`--runs`): one row's, dealt out to
equal rows, and each row as another one. Printed of each number of rows and rounds: groups in which
equal rows were called different (5 % at most); how often a row that is 10 % faster is found to lead alone, and to be
faster than another one (half-width: of the median pair's interval, all pairs together). At the end the same for a
measurement that goes on until its questions are answered, as `--until` and `--for` do. That is what finds a difference
under a load that comes and goes: five rounds of it may hold too few that were left alone, and an interval must admit
it. Two settings have figures of their own: those in which more verdicts are known to be false than there should be,
since one row scatters far more than the others and few rounds cannot show it.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from statistics import NormalDist, fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parent))

import real_speeds
from figures import figure, told

from stagebench.suite.analysis.leaders import against_fastest, compared, open_questions
from stagebench.suite.analysis.stats import Interval, Rates
from stagebench.suite.analysis.summary import summarise
from stagebench.suite.results.run_folder import RunFolder
from tests.support.noise import Rounds, dealt, drawn, even, in_turns, mixed, visited, with_one_faster

RUNS = Path(__file__).parents[1] / "fixtures" / "runs"
PLANTED = 1.1
LEAST, LONGEST = 5, 30  # rounds that are measured where it goes on until it is clear
UNTIL = 0.03
FEW = {"2 %": "scatter of 2 %"}  # where five rounds must find 10 %
LOADS = {"visited": "a load that comes and goes", "in turns": "such a load, cases in turns"}
WANTED = {**FEW, "in turns": LOADS["in turns"]}  # where measuring until it is clear must
TOLD = {**FEW, **LOADS}

SIZES = ((2, 5), (4, 3), (4, 5), (8, 5), (2, 10), (4, 10))  # rows, rounds
ONE_ROW = "real, one row"
WORSE = (
    (8, 5, 5.0),
    (4, 3, 13.0),
)  # rows, rounds, how many times as much one row scatters: known to be wrong more often
ADMITTED = 8.5  # % of them: what docs/comparisons.md says of these, and what chance may add

Machine = Callable[[np.random.Generator, int, int], Rounds]
Figure = dict[str, Any]
Settings = list[tuple[float, str]]  # groups with a false verdict, as a share, and where


def deviations() -> NDArray[np.float64]:
    """Logarithms of the fixture runs' rates over their row's median."""
    rows = [row for run in sorted(RUNS.iterdir()) for row in summarise(RunFolder.open(run / "training"))]
    several = [row.rates for row in rows if row.rates and len(row.rates.by_round) > 1]
    return np.concatenate([[], *(np.log(np.array(list(one.by_round.values())) / one.value) for one in several)])


def machines(runs: Sequence[dict[str, Any]]) -> dict[str, Machine]:
    fixtures, real = deviations(), real_speeds.deviations(runs)
    made: dict[str, Machine] = {
        "2 %": even,
        "4.5 %, 1.5 %": lambda random, rows, rounds: even(random, rows, rounds, (0.045, 0.015, 0.015, 0.015)),
        "one 20 %": lambda random, rows, rounds: even(random, rows, rounds, (*[0.015] * (rows - 1), 0.2)),
        "visited": visited,
        "in turns": in_turns,
        "visited often": lambda random, rows, rounds: visited(random, rows, rounds, 0.2),
    }
    if fixtures.size:  # runs of several processes a case
        made["fixtures"] = lambda random, rows, rounds: drawn(random, rows, rounds, fixtures)
    if real:
        made[ONE_ROW] = lambda random, rows, rounds: dealt(random, rows, rounds, real)
        made["real, mixed"] = lambda random, rows, rounds: mixed(random, rows, rounds, real)
    return made


def known(rates: Rounds, first_look: int | None = None) -> dict[str, Rates]:
    return {row: Rates(own, first_look=first_look) for row, own in rates.items()}


def leaders(group: dict[str, Rates]) -> set[str]:
    return {row for row, one in against_fastest(group).items() if one.leads}


def fixed(machine: Machine, rows: int, rounds: int, groups: int) -> tuple[float, float, float, float]:
    """(groups with a false verdict, planted rows leading alone, planted pairs found, the median pair's half-width)."""
    random = np.random.default_rng([rows, rounds])
    false, alone, found, widths = 0, 0, 0, []
    for _ in range(groups):
        rates = machine(random, rows, rounds)
        false += len(leaders(known(rates))) < rows
        pairs = compared(known(with_one_faster(rates, "row 0", PLANTED)))
        won = wins(pairs)
        alone, found = alone + all(won), found + sum(won)
        widths += [one.high / one.value - 1 for one in pairs.values()]
    return false / groups, alone / groups, found / groups / (rows - 1), float(np.median(widths))


def until(machine: Machine, rows: int, factor: float, groups: int) -> tuple[float, float]:
    """(what is found in a group, the mean; rounds of the median group): only open rows are measured on, as in a run.

    Of equal rows (`factor` 1) found is a false verdict; else the pairs in which the faster row is called so.
    """
    random, told, lengths = np.random.default_rng(rows), 0.0, []
    for _ in range(groups):
        every = with_one_faster(machine(random, rows, LONGEST), "row 0", factor)
        rates = {row: {at: own[at] for at in range(LEAST)} for row, own in every.items()}
        rounds = LEAST
        while rounds < LONGEST and (still := open_questions(rates, UNTIL, LEAST)):
            for row in still:
                rates[row][rounds] = every[row][rounds]
            rounds += 1
        group = known(rates, LEAST)
        told += len(leaders(group)) < rows if factor == 1.0 else fmean(wins(compared(group)))
        lengths.append(rounds)
    return told / groups, float(np.median(lengths))


def wins(pairs: dict[tuple[str, str], Interval]) -> list[bool]:
    """Of every other row, whether the first is called faster."""
    return [found.low > 1 for (one, _), found in pairs.items() if one == "row 0"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", type=int, default=2000)
    parser.add_argument("--runs", nargs="+", type=Path, help="run folders, instead of real_speeds.json")
    asked = parser.parse_args()
    groups, few = asked.groups, asked.groups // 5
    runs = real_speeds.of_runs(asked.runs) if asked.runs else real_speeds.kept()
    simulated, real = machines(runs), real_speeds.deviations(runs)
    wrong, found = after_rounds(simulated, max(map(len, real), default=0), groups)
    wrong_until, found_until = until_clear(simulated, few)
    worse = [known_worse(rows, rounds, times, 2 * groups) for rows, rounds, times in WORSE]
    drawn_from = figure("speeds of real processes that were drawn from, besides the fixtures'", sum(map(len, real)))
    return told([worst(wrong, groups), worst(wrong_until, few), *worse, *found, *found_until, drawn_from])


def after_rounds(simulated: dict[str, Machine], most: int, groups: int) -> tuple[Settings, list[Figure]]:
    """`most`: processes of the longest real row."""
    wrong, seen = [], []
    print(f"{'machine':15} rows rounds   false   10 % leads alone   10 % found   half-width")
    for (name, machine), (rows, rounds) in product(simulated.items(), SIZES):
        if name == ONE_ROW and rows * rounds > most:
            continue
        false, alone, found, width = fixed(machine, rows, rounds, groups)
        wrong.append((false, f"{name}, {rows} rows, {rounds} rounds"))
        if rounds == 5 and name in TOLD:
            title = f"10 % found, a pair: {TOLD[name]}, {rows} rows, 5 rounds"
            seen.append(figure(title, 100 * found, "%", at_least=90 if name in FEW else None))
        print(
            f"{name:15} {rows:4} {rounds:6}   {false:5.1%}   {alone:16.1%}   {found:10.1%}   {width:9.1%}", flush=True
        )
    return wrong, seen


def until_clear(simulated: dict[str, Machine], groups: int) -> tuple[Settings, list[Figure]]:
    wrong, seen = [], []
    print(f"\nuntil every question is answered, or tighter than {UNTIL:.0%}, after {LEAST} to {LONGEST} rounds")
    print(f"{'machine':15} rows   false   rounds   10 % found   rounds")
    for name, rows in product([each for each in simulated if each != ONE_ROW], (2, 4, 8)):
        (false, equal), (found, planted) = (until(simulated[name], rows, by, groups) for by in (1.0, PLANTED))
        print(f"{name:15} {rows:4}   {false:5.1%}   {equal:6.0f}   {found:10.1%}   {planted:6.0f}", flush=True)
        if name in TOLD:
            title = f"10 % found, a pair, until clear: {TOLD[name]}, {rows} rows ({planted:.0f} rounds)"
            seen.append(figure(title, 100 * found, "%", at_least=90 if name in WANTED else None))
        wrong.append((false, f"{name}, {rows} rows, until clear"))
    return wrong, seen


def known_worse(rows: int, rounds: int, times: float, groups: int) -> Figure:
    """Groups with a false verdict where one row scatters so many times as much as the others, 1.5 %."""
    scatter = (*[0.015] * (rows - 1), 0.015 * times)
    false, *_ = fixed(lambda random, rows, rounds: even(random, rows, rounds, scatter), rows, rounds, groups)
    half = NormalDist().inv_cdf(0.975) * (false * (1 - false) / groups) ** 0.5
    ends = round(100 * (false - half), 2), round(100 * (false + half), 2)
    title = (
        f"the same, where more than 5 % are known: {rows} rows, {rounds} rounds, one scatters {times:g} times as much"
    )
    print(f"{title}: {false:.1%}", flush=True)
    return figure(title, 100 * false, "%", ends, at_most=ADMITTED)


def worst(settings: Settings, groups: int) -> Figure:
    """Of those with so many groups each: the most that as many would show by chance, were each wrong in 5 %."""
    most, where = max(settings)
    error = NormalDist().inv_cdf(0.95 ** (1 / len(settings))) * (0.05 * 0.95 / groups) ** 0.5
    title = f"groups with a false verdict, in the worst of {len(settings)} settings ({where})"
    return figure(title, 100 * most, "%", at_most=round(100 * (0.05 + error), 2))


if __name__ == "__main__":
    sys.exit(main())
