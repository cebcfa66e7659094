"""Writes docs/validation.md and its charts: how good predictions and comparisons are.

    PYTHONPATH=. python tests/validation/validation.py TRACES
    PYTHONPATH=. python tests/validation/validation.py TRACES --measure OUT    # as root; two hours
    PYTHONPATH=. python tests/validation/validation.py TRACES --measure OUT --part stages    # ... half an hour of them

TRACES is the folder of B-Caffe's logs (tests/validation/published_traces.py). What takes long is read from
docs/validation, unless it is measured anew: prediction.json and stages.json (by prediction.py here) and comparing.json
(by comparing.py). They keep when, on which processors and of which commit. A part without its file says so.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import combinations
from math import log10
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

from stagebench.suite.predict.collectives import Cost
from stagebench.suite.predict.data_parallel import messages
from stagebench.suite.predict.prediction import predict, timeline
from stagebench.suite.predict.request import Request
from stagebench.suite.predict.scenario import SCHEDULES
from stagebench.suite.results.records import this_host
from stagebench.suite.results.run_folder import RunFolder
from tests.suite.test_predict_model import end_of, every_cut
from tests.suite.test_predict_model import scenario_of as small_scenario
from tests.suite.test_predict_simulation import RANKS, Simulation, scenario_of
from tests.validation.prediction import measured_inside_predicted
from tests.validation.published_traces import Point, points
from tests.validation.trust import commit

DOCS = Path(__file__).parents[2] / "docs"
CHARTS = DOCS / "validation"
SIZE, MARGIN = 320, 46  # of a chart, in pixels
BAR = 18  # its height, with the gap above it
SEEDS = range(25)
MANY = 4096  # ranks
APART = 1.03  # speeds that differ by more have an order
HERE = Path(__file__).parent
# Whose processes' noise comparing.py draws from.
NOISE = ("--adapter", "pytorch,caffempi", "--workload", "mnist_small,mnist_large", "--strategy", "single",
         "--batch", "32", "--passes", "native", "--processes", "20")  # fmt: skip
SAME_NODES = "link of as many nodes"
LINKS: dict[str, dict[str, Any]] = {  # of the published measurements, as `points` takes them
    SAME_NODES: {},
    "link of 2 nodes, ring": {"fit_nodes": 2},
    "link of 2 nodes, halving": {"fit_nodes": 2, "algorithm": "halving"},
    "link of the OSU benchmark": {"benchmark": True},
}

PARTS = ("prediction", "stages", "comparing")  # that take long
CHART_OF = {"prediction": "own", "stages": "stages"}  # by the file that it is drawn from
HELD_ALIKE = """\
Cores never idle, waiting ranks yield their core, and processes keep their memory, so that four ranks compute as fast as
two. These runs have no proofs. The rule for the slowest rank was chosen after an earlier run."""
OF_STAGES = """\
Four stages are predicted from two, and two pipelines of two stages from one. Earlier measurements changed the model;
these did not."""

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


def bars(name: str, values: Iterable[tuple[str, float]], bound: float, what: str) -> str:
    """A bar for each share, and a line at the bound that all should keep; the Markdown that shows them."""
    rows = list(values)
    most, wide, high = max(bound, *(value for _, value in rows)), SIZE * 2 - 3 * MARGIN, BAR * len(rows)
    drawn = "".join(
        f'<text x="{MARGIN}" y="{at * BAR + 13}" text-anchor="end">{text}</text>'
        f'<path d="M{MARGIN + 4} {at * BAR + 4}h{value / most * wide:.1f}v{BAR - 6}H{MARGIN + 4}z" fill="#bcd6ea"/>'
        for at, (_, value) in enumerate(rows)
        for text in [f"{value:.1%}"]
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


def of_own_runs(name: str, remarks: str) -> str:
    """What NAME.json holds, with what is to be said of it."""
    path = CHARTS / f"{name}.json"
    if not path.exists():
        return "Not measured yet.\n"
    found = json.loads(path.read_text())
    each = [(setting, one) for setting, several in found["settings"].items() for one in several]
    errors = [(f"{setting}: {one['case']}", abs(one["error"])) for setting, one in each]
    return f"""\
{origin(found)}{remark(found)}\
Each rank has {found["core_share"]:g} of one of {found["cores"]} cores, with two ranks as with four.
{remarks}

Median error {found["median_error"]:.1%} (at most 5 %), worst {found["worst_error"]:.1%} (at most 15 %).
{of_intervals(each)}

{bars(CHART_OF[name], errors, 0.15, "error of the prediction; at most 15 %")}
"""


def of_intervals(each: Sequence[tuple[str, dict[str, Any]]]) -> str:
    """How often what was measured agrees with what was predicted."""
    inside = measured_inside_predicted([one for _, one in each])
    return f"Measured inside predicted: {inside} of {len(each)} cases."


def of_published(folder: Path) -> str:
    tables = {name: list(points(folder, **link)) for name, link in LINKS.items()}

    errors = {name: [abs(point.error) for point in found] for name, found in tables.items()}
    summary = [
        (name, f"{median(found):.1%}", f"{max(found):.1%}", "10 %" if name == SAME_NODES else "")
        for name, found in errors.items()
    ]
    logged = tables[SAME_NODES]
    rows = [
        {
            "nodes": point.nodes,
            "schedule": point.schedule,
            "measured, samples/s": point.measured,
            "predicted": f"{point.predicted.rate:.0f} ({point.error:+.1%})",
        }
        for point in logged
    ]
    (CHARTS / "published.json").write_text(json.dumps(rows, indent=1) + "\n")
    drawn = [(f"{point.nodes} nodes, {point.schedule}", abs(point.error)) for point in logged]
    return f"""\
{table(("link that the model is given", "median error", "worst error", "bound"), summary)}

The algorithm's formula extrapolates links of 2 nodes to 4 and 8. The OSU benchmark measured its link without training,
when an exchange takes less time.

{of_order(logged)}

{bars("published", drawn, 0.1, f"error of the prediction with the {SAME_NODES}; at most 10 %")}
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
        f"\nIt predicts equal speeds for `{slow.schedule}` and `{fast.schedule}` on {fast.nodes} nodes, where the "
        f"latter was {fast.measured / slow.measured - 1:.1%} faster,\nand recommends "
        f"`{max((slow, fast), key=lambda each: each.predicted.order).schedule}`, whose messages take less of the link."
        for slow, fast in equal
    )
    text = f"Of {len(apart)} pairs of schedules that differ by more than 3 %, the model has {right} in the right order"
    return f"{text}, with the {SAME_NODES}.{same}"


def of_merging() -> str:
    pairs = []
    for seed in range(40):
        layers, cost = small_scenario(9, seed).layers, Cost(1e-3 * (seed % 6), 1e-10 * (1 + seed % 20))
        best = min(end_of(layers, cut, cost) for cut in every_cut(9))
        pairs.append((best, end_of(layers, messages("merged", layers, cost), cost)))
    worst = max(found / best - 1 for best, found in pairs)
    return f"""\
For 40 networks of 9 layers, with 256 ways to merge each, the schedule `merged` takes at most {worst:.1e} (relative)
longer than the best way.

{scatter("merging", pairs, "best of all ways, s", "merged")}
"""


def of_simulation() -> str:
    cases = [(schedule, read, seed) for schedule in SCHEDULES for read in (0, 1) for seed in SEEDS]
    scenarios = [scenario_of(seed, schedule, read) for schedule, read, seed in cases]
    pairs = [(Simulation(scenario).run(), timeline(scenario, RANKS).seconds) for scenario in scenarios]
    worst = max(abs(ours / theirs - 1) for theirs, ours in pairs)
    return f"""\
For {len(pairs)} trainings, the model and a simulation by simpy differ by at most {worst:.1e} (relative).

{scatter("simulation", pairs, "simulated iteration, s", "model")}
"""


def of_speed() -> str:
    (training,), _ = Request(batch=64, rate=253.1, workload="resnet50", alpha=2e-4, beta=8e-10).trainings(None)
    milliseconds = []
    for schedule in SCHEDULES:
        began = process_time()
        predict(training.scenario.but(schedule=schedule), MANY)
        milliseconds.append(1000 * (process_time() - began))
    return f"""\
One prediction of ResNet-50 for {MANY:,} ranks takes {max(milliseconds):.1f} ms at most.
"""


def of_comparing() -> str:
    path = CHARTS / "comparing.json"
    if not path.exists():
        return "Not simulated yet.\n"
    found: dict[str, Any] = json.loads(path.read_text())
    differing = dict(found["equal_while_runs_differ"])
    alone = differing.pop("history of 0 runs")
    worst = max([*found["equal"].values(), *differing.values()])
    changes = [(f"3 %, {what}", one) for what, one in found["slow_downs"].items()] + [*found["changes"].items()]
    seen = [(f"3 % slower, {what}", one["found"]) for what, one in found["planted"].items()]
    seen += [(f"a change of {what}", one["within_one_run"]) for what, one in changes]
    return f"""\
{origin(found)}{remark(found)}{found["trials"]} simulations of [`compare` and `history`](compare.md) for each
figure. Their noise has the shape of {found["cases_drawn_from"]} measured cases (median scatter of processes:
{found["median_scatter"]:.1%}).

Equal runs are called different in {worst:.1%} of comparisons at worst; the bound is 5 %. Where runs differ as much as
their processes and no history is given, they are in {alone:.1%}.

The chart shows slow-downs of 3 % that `compare` and `history` find; the last bars have normal noise, and changes in
standard deviations of a run.

{bars("found", seen, 0.9, "slow-downs and changes that are found; at least 90 % of the slow-downs of 3 %")}
"""


def origin(found: dict[str, Any]) -> str:
    """When and where a file's figures were measured; nothing where it does not say."""
    if "measured" not in found:
        return ""
    when = found["measured"]
    where = f"Measured on {', '.join(when['dates'])}, method {', '.join(map(str, when['methods']))}"
    return f"{where}; {', '.join(when['cpus'])}.\n\n"


def remark(found: dict[str, Any]) -> str:
    """Return what was written into a part's file by hand, as a paragraph; a new measurement drops it."""
    return f"**{found['remark']}**\n\n" if "remark" in found else ""


def short(full: str) -> str:
    sha, _, dirty = full.partition("-")
    return f"{sha[:10] or 'unknown'}{' with changes' if dirty else ''}"


def keep(name: str, printed: str, runs: Iterable[Path]) -> None:
    """Write NAME.json: what was printed, when and where its runs were measured, and which code evaluated them."""
    folders = [RunFolder.open(run) for run in runs]
    hosts = [host for folder in folders for host in folder.hosts().values()]
    measured = {
        "dates": sorted({folder.about.created[:10] for folder in folders}),
        "commits": sorted({folder.about.commit for folder in folders}),
        "methods": sorted({folder.about.method for folder in folders}),
        "cpus": sorted({host.machine.cpu or "unknown processor" for host in hosts}),
    }
    found = json.loads(printed) | {"measured": measured, "evaluated": {"date": today(), "commit": commit()}}
    (CHARTS / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n")


def today() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d")


def measure(out: Path, parts: Sequence[str]) -> None:
    """Write the parts' files; what is measured is kept in `out`, and the same command goes on."""

    def printed(*words: str | Path) -> str:
        return subprocess.run([sys.executable, *words], check=True, stdout=subprocess.PIPE, text=True).stdout

    words = {"prediction": (), "stages": ("--stages",)}
    predicted = {
        part: printed(HERE / "prediction.py", out / part, *more) for part, more in words.items() if part in parts
    }
    if "comparing" in parts:
        printed("-m", "stagebench.suite.cli", "run", *NOISE, "-o", out / "noise")
    # Afterwards: a changed file would make the commit of the run of noise one with changes.
    for part, text in predicted.items():
        keep(part, text, (each.parent for each in sorted((out / part).glob("*/*/run.json"))))
    if "comparing" in parts:
        keep("comparing", printed(HERE / "comparing.py", out / "noise"), [out / "noise"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", type=Path)
    parser.add_argument("--measure", type=Path, metavar="OUT")
    parser.add_argument("--part", choices=PARTS, action="append", help="measure this alone; may be repeated")
    given = parser.parse_args()
    if given.part and not given.measure:
        parser.error("--part says nothing without --measure OUT")
    if given.measure:
        measure(given.measure, given.part or PARTS)
    text = f"""\
# How good predictions and comparisons are

- **Predictions.** Four ranks predicted from two are off by 5 % or less in the median, and by 15 % at worst. Published
  speeds on up to eight nodes are met within 10 %, given a link that was measured on as many nodes.
- **Comparisons.** Equal runs are called different in fewer than 5 of 100 comparisons, unless runs differ as much as
  their processes and no history is given. A slow-down of 3 % is found in at least 9 of 10.

This command, which needs simpy, writes the page; TRACES is the folder of the published logs:

    PYTHONPATH=. python tests/validation/validation.py TRACES

`--measure OUT` first repeats the measurements: on a quiet machine, as root, two hours. The files of `docs/validation/`
hold every figure, with commits; the website has them as tables below.

Written on {today()}, commit {short(commit())}; {this_host().machine.cpu or "unknown processor"}.

## Four ranks predicted from two

The plan `prediction`, on one host and over simulated hosts with links of two rates. Predicted intervals (95 %) hold the
model's own error, which is that of the cases in this section and the next.

{of_own_runs("prediction", HELD_ALIKE)}
## Networks in stages

{of_own_runs("stages", OF_STAGES)}
## Published measurements

B-Caffe's authors published logs of GoogLeNet on up to eight K80 nodes over 10 Gbit/s Ethernet, and the measured speeds.
The model gets one node's times and the logged exchanges; nothing is tuned. The *link of as many nodes* is fitted to the
exchanges on the predicted number of nodes.

{of_published(given.traces)}
## Against other computations

{of_merging()}
{of_simulation()}
{of_speed()}
## Comparing runs

{of_comparing()}"""
    (DOCS / "validation.md").write_text(text)


if __name__ == "__main__":
    main()
