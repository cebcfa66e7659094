"""Writes docs/validation.md and its charts: how good predictions and comparisons are.

    PYTHONPATH=. python tests/benchmarks/validation.py TRACES
    PYTHONPATH=. python tests/benchmarks/validation.py TRACES --measure OUT    # as root; an hour and a half

TRACES is the folder of B-Caffe's logs (tests/benchmarks/published_traces.py). What takes long is read from
docs/validation, unless it is measured anew: prediction.json (by prediction.py here) and comparing.json (by
comparing.py). A part without its file says so.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterable, Sequence
from itertools import combinations
from math import log10
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

from suite.predict.collectives import Cost, Link, Network
from suite.predict.from_numbers import Numbers, asked
from suite.predict.known_link import KnownLink
from suite.predict.prediction import predict, timeline
from suite.predict.scenario import SCHEDULES
from suite.predict.schedules import messages
from tests.benchmarks.published_traces import Point, points
from tests.suite.test_predict_model import end_of, every_cut
from tests.suite.test_predict_model import scenario_of as small_scenario
from tests.suite.test_predict_simulation import RANKS, Simulation, scenario_of

DOCS = Path(__file__).parents[2] / "docs"
CHARTS = DOCS / "validation"
SIZE, MARGIN = 320, 46  # of a chart, in pixels
BAR = 18  # its height, with the gap above it
SEEDS = range(25)
MANY = 4096  # ranks
APART = 1.03  # speeds that differ by more have an order
SIZES = range(2, 202, 2)
HERE = Path(__file__).parent
# Whose processes' noise comparing.py draws from.
NOISE = ("--adapter", "pytorch,caffempi", "--workload", "mnist_small,mnist_large", "--strategy", "single",
         "--batch", "32", "--passes", "native", "--processes", "20")  # fmt: skip

Pairs = Sequence[tuple[float, float]]


def scatter(name: str, pairs: Pairs, across: str, up: str) -> str:
    """A square chart on logarithmic axes, with the line where both are equal; the Markdown that shows it."""
    low = log10(min(min(pair) for pair in pairs)) - 0.1
    high = log10(max(max(pair) for pair in pairs)) + 0.1

    def place(value: float) -> float:
        return MARGIN + (log10(value) - low) / (high - low) * (SIZE - 2 * MARGIN)

    ends, far = (MARGIN, SIZE - MARGIN), SIZE - MARGIN
    dots = "".join(
        f'<circle cx="{place(x):.1f}" cy="{SIZE - place(y):.1f}" r="3" fill="#0b62a4" fill-opacity="0.6"/>'
        for x, y in pairs
    )
    ticks = "".join(
        f'<text x="{MARGIN + share * (SIZE - 2 * MARGIN):.0f}" y="{far + 15}" text-anchor="middle">{value}</text>'
        f'<text x="{MARGIN - 4}" y="{far - share * (SIZE - 2 * MARGIN) + 4:.0f}" text-anchor="end">{value}</text>'
        for share in (0.0, 0.5, 1.0)
        for exact in [10 ** (low + share * (high - low))]
        for value in [f"{exact:,.0f}" if exact >= 100 else f"{exact:.3g}"]
    )
    CHARTS.mkdir(exist_ok=True)
    (CHARTS / f"{name}.svg").write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {SIZE} {SIZE}" width="{SIZE}" font-size="10" '
        'font-family="sans-serif" fill="#555">'
        f'<path d="M{ends[0]} {ends[0]}V{far}H{far}M{ends[0]} {far}L{far} {ends[0]}" fill="none" stroke="#aaa"/>'
        f'{dots}{ticks}<text x="{SIZE / 2}" y="{SIZE - 8}" text-anchor="middle">{across}</text>'
        f'<text transform="translate(12 {SIZE / 2}) rotate(-90)" text-anchor="middle">{up}</text></svg>\n'
    )
    return f"![{up} over {across}](validation/{name}.svg)"


def bars(name: str, values: Iterable[tuple[str, float]], bound: float, unit: str, what: str) -> str:
    """A bar for each value, and a line at the bound that all should keep, 0 for none; the Markdown that shows them."""
    rows = list(values)
    most, wide, high = max(bound, *(value for _, value in rows)), SIZE * 2 - 3 * MARGIN, BAR * len(rows)
    drawn = "".join(
        f'<text x="{MARGIN}" y="{at * BAR + 13}" text-anchor="end">{text}</text>'
        f'<path d="M{MARGIN + 4} {at * BAR + 4}h{value / most * wide:.1f}v{BAR - 6}H{MARGIN + 4}z" fill="#bcd6ea"/>'
        for at, (_, value) in enumerate(rows)
        for text in [f"{value:.1%}" if unit == "%" else f"{value:.3g} {unit}"]
    )
    names = "".join(f'<text x="{MARGIN + 10}" y="{at * BAR + 13}">{label}</text>' for at, (label, _) in enumerate(rows))
    line = f'<path d="M{MARGIN + 4 + bound / most * wide:.1f} 0V{high}" stroke="#d33"/>'
    (CHARTS / f"{name}.svg").write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {SIZE * 2} {high + 4}" width="{SIZE * 2}" '
        f'font-size="10" font-family="sans-serif" fill="#333">{drawn}{line}{names}</svg>\n'
    )
    return f"![{what}](validation/{name}.svg)"


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def of_own_runs() -> str:
    path = CHARTS / "prediction.json"
    if not path.exists():
        return "Not measured yet.\n"
    found = json.loads(path.read_text())
    each = [(setting, one) for setting, several in found["settings"].items() for one in several]
    rows = [
        (setting, one["case"], measured, f"{one['predicted']:.0f}", f"{one['error']:+.1%}")
        for setting, one in each
        for measured in ["{value:.0f} ({low:.0f} to {high:.0f})".format(**one["measured"])]
    ]
    pairs = [(one["measured"]["value"], one["predicted"]) for _, one in each]
    return f"""\
Median error {found["median_error"]:.1%}, worst {found["worst_error"]:.1%}; {found["core_share"]} of a core each rank.

{table(("where", "case", "measured (95 % interval)", "predicted", "error"), rows)}

{scatter("own", pairs, "measured samples/s", "predicted")}
"""


def of_published(folder: Path) -> str:
    tables = [list(points(folder)), list(points(folder, 2)), list(points(folder, 2, "halving"))]

    def cell(point: Point) -> str:
        return f"{point.predicted.rate:.0f} ({point.error:+.1%})"

    rows = [(row[0].nodes, row[0].schedule, row[0].measured, *map(cell, row)) for row in zip(*tables, strict=True)]
    links = ("link of as many nodes", "link of 2 nodes, ring", "link of 2 nodes, halving")
    errors = [abs(point.error) for point in tables[0]]
    pairs = [(point.measured, point.predicted.rate) for point in tables[0]]
    return f"""\
With the link of as many nodes: median error {median(errors):.1%}, worst {max(errors):.1%}. {of_order(tables[0])}

{table(("nodes", "schedule", "measured", *links), rows)}

{scatter("published", pairs, "measured samples/s", "predicted")}
"""


def of_order(found: Sequence[Point]) -> str:
    """Of each two schedules on as many nodes that differ enough: does the model have the faster one right?"""
    pairs = [
        sorted(pair, key=lambda point: point.measured)
        for pair in combinations(found, 2)
        if len({point.nodes for point in pair}) == 1
    ]
    apart = [(slow, fast) for slow, fast in pairs if fast.measured > APART * slow.measured]
    equal = [pair for pair in apart if len({f"{point.predicted.rate:.9g}" for point in pair}) == 1]
    right = sum(slow.predicted.rate < fast.predicted.rate for slow, fast in apart if (slow, fast) not in equal)
    same = "".join(
        f" It calls {slow.schedule} and {fast.schedule} on {fast.nodes} nodes equally fast, where the latter was "
        f"{fast.measured / slow.measured - 1:.1%} faster; of the two it recommends "
        f"{max((slow, fast), key=lambda point: point.predicted.order).schedule}, whose messages take less of the link."
        for slow, fast in equal
    )
    return f"Of {len(apart)} pairs of schedules that differ by more than 3 %, it has {right} in the right order.{same}"


def of_merging() -> str:
    pairs = []
    for seed in range(40):
        layers, cost = small_scenario(9, seed).layers, Cost(1e-3 * (seed % 6), 1e-10 * (1 + seed % 20))
        best = min(end_of(layers, cut, cost) for cut in every_cut(9))
        pairs.append((best, end_of(layers, messages("merged", layers, cost), cost)))
    worst = max(found / best - 1 for best, found in pairs)
    return f"""\
40 networks of 9 layers, 256 ways to merge each: the schedule `merged` ends at most {worst:.1e} later than the best way.

{scatter("merging", pairs, "best of all ways, s", "merged")}
"""


def of_simulation() -> str:
    cases = [(schedule, read, seed) for schedule in SCHEDULES for read in (0, 1) for seed in SEEDS]
    scenarios = [scenario_of(seed, schedule, read) for schedule, read, seed in cases]
    pairs = [(Simulation(scenario).run(), timeline(scenario, RANKS).seconds) for scenario in scenarios]
    worst = max(abs(ours / theirs - 1) for theirs, ours in pairs)
    return f"""\
{len(pairs)} trainings, simulated by simpy: the model differs by {worst:.1e} at most.

{scatter("simulation", pairs, "simulated iteration, s", "model")}
"""


def of_speed() -> str:
    numbers, link = Numbers(batch=64, rate=253.1, workload="resnet50"), KnownLink(Link(2e-4, 8e-10), 0.0, "")
    scenario = asked(numbers, Network(Link(0.0, 0.0)), link).scenario
    began = process_time()
    for ranks in SIZES:
        for schedule in list(SCHEDULES)[:5]:
            predict(scenario.but(schedule=schedule), ranks)
    sweep, rows = process_time() - began, []
    for schedule in SCHEDULES:
        began = process_time()
        predict(scenario.but(schedule=schedule), MANY)
        rows.append((schedule, 1000 * (process_time() - began)))
    return f"""\
ResNet-50 on 100 numbers of ranks by five schedules takes {sweep:.2f} s of a processor; the command, with all that it
loads, takes {of_command():.2f} s. {MANY:,} ranks take {max(milliseconds for _, milliseconds in rows):.1f} ms at most.

{bars("speed", rows, 0.0, "ms", f"milliseconds for {MANY:,} ranks, by schedule")}
"""


def of_command() -> float:
    """Seconds of the command that predicts the same 500 times, the median of five."""
    sizes, schedules = ",".join(map(str, SIZES)), ",".join(list(SCHEDULES)[:5])
    numbers = ("--workload", "resnet50", "--batch", "64", "--rate", "253.1", "--alpha", "2e-4", "--beta", "8e-10")
    words = ("predict", *numbers, "--ranks", sizes, "--schedule", schedules, "--json")
    found = []
    for _ in range(5):
        began = perf_counter()
        subprocess.run([sys.executable, "-m", "suite.cli", *words], check=True, stdout=subprocess.DEVNULL)
        found.append(perf_counter() - began)
    return median(found)


def of_comparing() -> str:
    path = CHARTS / "comparing.json"
    if not path.exists():
        return "Not simulated yet.\n"
    found: dict[str, Any] = json.loads(path.read_text())
    differing = [(f"runs differ; {what}", share) for what, share in found["equal_while_runs_differ"].items()]
    false = [*found["equal"].items(), *differing]
    planted = [(what, one["median_processes"], f"{one['found']:.1%}") for what, one in found["planted"].items()]
    changes = [(f"3 %, {what}", one) for what, one in found["slow_downs"].items()] + [*found["changes"].items()]
    seen = [(f"3 % slower, {what}", one["found"]) for what, one in found["planted"].items()]
    seen += [(f"a change of {what}", one["within_one_run"]) for what, one in changes]
    changed = [(what, *(f"{share:.1%}" for share in one.values())) for what, one in changes]
    return f"""\
{found["trials"]} simulations for each figure. Their noise has the shape of {found["cases_drawn_from"]} measured cases
(scatter of processes: {found["median_scatter"]:.1%}). Where runs differ as much as their processes, only a history can
tell that from a change.

{table(("equal runs", "called different"), [(what, f"{share:.1%}") for what, share in false])}

{bars("false", false, 0.05, "%", "equal runs called different; at most 5 %, but for those without a history")}

{table(("3 % slower", "processes suggested (median)", "found"), planted)}

In a history of runs with that number of processes, `history` finds the first run after a slow-down of 3 %. The same of
normal noise, with changes in standard deviations of a run; three of them are little for ten runs, which have to tell
the noise as well:

{table(("a change of", "found within one run", "and no other", "steady series with a change"), changed)}

{bars("found", seen, 0.9, "%", "slow-downs and changes that are found; at least 90 %")}
"""


def measure(out: Path) -> None:
    """Write prediction.json and comparing.json; what is measured is kept in `out`, and the same command goes on."""

    def printed(*words: str | Path) -> str:
        return subprocess.run([sys.executable, *words], check=True, stdout=subprocess.PIPE, text=True).stdout

    (CHARTS / "prediction.json").write_text(printed(HERE / "prediction.py", out / "prediction"))
    printed("-m", "suite.cli", "run", *NOISE, "-o", out / "noise")
    (CHARTS / "comparing.json").write_text(printed(HERE / "comparing.py", out / "noise"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", type=Path)
    parser.add_argument("--measure", type=Path, metavar="OUT")
    given = parser.parse_args()
    if given.measure:
        measure(given.measure)
    text = f"""\
# How good predictions and comparisons are

To make this page again, with the folder of the published logs:

    PYTHONPATH=. python tests/benchmarks/validation.py TRACES

`--measure OUT` first measures what takes long: on a quiet machine, as root, an hour and a half.

## Four ranks predicted from two

The plan `prediction`, fitted to two ranks and asked about four: on one host, and over simulated hosts with links of two
rates.

{of_own_runs()}
## Published measurements

B-Caffe's authors published logs of GoogLeNet on up to eight K80 nodes over 10 Gbit/s Ethernet, and the speeds that they
measured (samples/s). The model gets one node's times and the exchanges that were logged; nothing is tuned. On two nodes
it cannot tell `wfbp` from `merged`: both hide all but the last message.

{of_published(given.traces)}
## Speed

What `predict` takes itself.

{of_speed()}
## Merging

The schedule `merged` against all ways to merge the messages of small networks.

{of_merging()}
## Simulation

The model against a discrete-event simulation of the same training.

{of_simulation()}
## Comparing runs

How often [`compare` and `history`](compare.md) are wrong, and how often they find what is there, simulated with the
noise of a run of many processes.

{of_comparing()}"""
    (DOCS / "validation.md").write_text(text)


if __name__ == "__main__":
    main()
