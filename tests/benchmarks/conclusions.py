"""How often a comparison is wrong, and how often it finds what is there: groups of equal rows on noisy machines.

    python tests/benchmarks/conclusions.py

The machines: one whose processes scatter by 2 %; one where rows differ threefold in that; one with a background load
that comes and goes; and one whose processes deviate from their row's median as those of the fixture runs do, tiny
measurements on a busy machine. Printed of each number of rows and rounds: groups in which equal rows were called
different (5 % at most); how often a row that is 10 % faster is found to lead alone, and to be faster than another one
(half-width: of the median pair's interval, all pairs together). At the end the same for a measurement that goes on
until its questions are answered.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parents[2]))

from figures import figure, told

from suite.analysis.leaders import against_fastest, compared, open_questions
from suite.analysis.stats import Rates
from suite.analysis.summary import summarise
from suite.results.run_folder import RunFolder
from tests.support.noise import Rounds, drawn, even, visited, with_one_faster

RUNS = Path(__file__).parents[1] / "fixtures" / "runs"
PLANTED = 1.1
LONGEST = 30  # rounds that are measured at most
UNTIL = 0.03
# In which 10 % must be found: the others scatter by more than five rounds can tell.
WANTED = {"2 %": "scatter of 2 %", "visited": "a load that comes and goes"}

Machine = Callable[[np.random.Generator, int, int], Rounds]


def deviations() -> NDArray[np.float64]:
    """Logarithms of the fixture runs' rates over their row's median."""
    rows = [row for run in sorted(RUNS.iterdir()) for row in summarise(RunFolder.open(run / "training"))]
    several = [row.rates for row in rows if row.rates and len(row.rates.by_round) > 1]
    return np.concatenate([np.log(np.array(list(one.by_round.values())) / one.value) for one in several])


def machines() -> dict[str, Machine]:
    real = deviations()
    return {
        "2 %": even,
        "4.5 %, 1.5 %": lambda random, rows, rounds: even(random, rows, rounds, (0.045, 0.015, 0.015, 0.015)),
        "visited": visited,
        "visited often": lambda random, rows, rounds: visited(random, rows, rounds, 0.2),
        "fixtures": lambda random, rows, rounds: drawn(random, rows, rounds, real),
    }


def leaders(rates: Rounds) -> set[str]:
    found = against_fastest({row: Rates(own) for row, own in rates.items()})
    return {row for row, one in found.items() if one.leads}


def fixed(machine: Machine, rows: int, rounds: int, groups: int) -> tuple[float, float, float, float]:
    """(groups with a false verdict, planted rows leading alone, planted pairs found, the median pair's half-width)."""
    random = np.random.default_rng([rows, rounds])
    false, alone, found, widths = 0, 0, 0, []
    for _ in range(groups):
        rates = machine(random, rows, rounds)
        false += len(leaders(rates)) < rows
        pairs = compared(with_one_faster(rates, "row 0", PLANTED))
        wins = [pairs["row 0", f"row {other}"].low > 1 for other in range(1, rows)]
        alone, found = alone + all(wins), found + sum(wins)
        widths += [one.high / one.value - 1 for one in pairs.values()]
    return false / groups, alone / groups, found / groups / (rows - 1), float(np.median(widths))


def until(machine: Machine, rows: int, factor: float, groups: int) -> tuple[float, float]:
    """(groups in which row 0 leads alone or is beaten, rounds of the median group), measured until it is clear."""
    random, told, lengths = np.random.default_rng(rows), 0, []
    for _ in range(groups):
        every = with_one_faster(machine(random, rows, LONGEST), "row 0", factor)
        for rounds in range(5, LONGEST + 1):
            rates = {row: {at: own[at] for at in range(rounds)} for row, own in every.items()}
            if rounds == LONGEST or not open_questions(rates, UNTIL):
                break
        told += len(leaders(rates)) < rows
        lengths.append(rounds)
    return told / groups, float(np.median(lengths))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", type=int, default=2000)
    groups: int = parser.parse_args().groups
    wrong, seen = [], []
    print(f"{'machine':15} rows rounds   false   10 % leads alone   10 % found   half-width")
    for name, machine in machines().items():
        for rows, rounds in ((2, 5), (4, 5), (8, 5), (2, 10), (4, 10)):
            false, alone, found, width = fixed(machine, rows, rounds, groups)
            wrong.append((false, f"{name}, {rows} rows, {rounds} rounds"))
            if rounds == 5 and name in WANTED:
                seen.append(
                    figure(f"10 % found, a pair: {WANTED[name]}, {rows} rows, 5 rounds", 100 * found, "%", at_least=90)
                )
            print(
                f"{name:15} {rows:4} {rounds:6}   {false:5.1%}   {alone:16.1%}   {found:10.1%}   {width:9.1%}",
                flush=True,
            )
    print(f"\nuntil every question is answered, or tighter than {UNTIL:.0%}, after 5 to {LONGEST} rounds")
    print(f"{'machine':15} rows   false   rounds   10 % found   rounds")
    for name, machine in machines().items():
        for rows in (2, 4):
            (false, equal), (found, planted) = (until(machine, rows, by, groups // 5) for by in (1.0, PLANTED))
            print(f"{name:15} {rows:4}   {false:5.1%}   {equal:6.0f}   {found:10.1%}   {planted:6.0f}", flush=True)
            if name in WANTED:
                seen.append(
                    figure(f"10 % found, until clear: {WANTED[name]}, {rows} rows", 100 * found, "%", at_least=90)
                )
    most, where = max(wrong)
    error = 2 * (0.05 * 0.95 / groups) ** 0.5  # of the simulation
    title = f"groups with a false verdict, in the worst of {len(wrong)} settings ({where})"
    return told([figure(title, 100 * most, "%", at_most=round(100 * (0.05 + error), 2)), *seen])


if __name__ == "__main__":
    sys.exit(main())
