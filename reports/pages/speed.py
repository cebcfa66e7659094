"""Speeds in exact numbers, the spread of their steps, and what the best configuration of each framework gains."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

import numpy as np
from markupsafe import Markup

from reports.charts.html import Body, Content, folded, measured, note, small, table, tag
from reports.charts.rows import Rows, box, interval, linear, logarithmic
from reports.imports.programs import notes_of
from reports.pages.run import Report, Section
from suite.analysis.best import USUAL, Best, Contest, contests, settings, usual_of
from suite.analysis.comparability import DISQUALIFYING
from suite.analysis.panels import SHOWN, Name, Panel, by_group, for_charts, title
from suite.analysis.rows import Row
from suite.analysis.stats import Values, outliers
from suite.analysis.wording import in_words, milliseconds, number, percent
from suite.contracts.case import Case
from suite.plan.text import Block, plan_text
from suite.text import grouped

FILE = "best.toml"  # next to the pages, where a run has compared configurations


def speeds(report: Report) -> Section | None:
    """Return the speeds of all cases; of imported ones as other programs printed them."""
    if not report.fast:
        return None
    panels, imported = by_group(report.fast[:SHOWN]), report.imported
    charts = [_speeds(report, panel) for panel in for_charts(panels) if len(panel.rows) > 1 or imported]
    body: list[Content] = [report.cut(report.fast, "cases with a speed"), report.drawn("speeds", charts)]
    aside = list(_aside(report.fast))
    body += [tag("h3", "Not compared"), tag("ul", aside)] if aside and not imported else []
    heads = "Case | samples/s! | per device"
    heads += " | source<" if imported else " | of the fastest | verdict< | processes"
    joules = any(row.joules_per_sample for row in report.fast)
    heads += " | of peak-" * (report.peaks and not imported) + " | J a sample-" * joules

    def cells(row: Row) -> list[Content]:
        found = _cells(row, imported, report.peaks)
        return found + [number(row.joules_per_sample) if row.joules_per_sample else ""] * joules

    body.append(table("Samples per second", heads, *report.bodies(panels, cells)))
    fastest = max(report.fast, key=lambda row: row.speed if row.sound or imported else 0.0)
    headline = f"{number(fastest.speed)} samples/s"
    if len(report.fast) > 1:
        headline = f"{number(min(row.speed for row in report.fast))} to {headline}"
    if imported:
        also = "As other programs printed them; stagebench measured none of this and can verify none of it."
        return Section("speeds", headline, [[note(words) for words in notes_of(report.folder)], *body], also)
    many = "s" * (len(report.fast) > 1)
    also = f"{len(report.fast)} case{many}, all devices together; small numbers: 95 % intervals."
    return Section("speeds", headline, body, also, definitions=_DEFINITIONS, name="Speed")


_DEFINITIONS = (
    "Samples per second of all devices together = samples that all ranks consumed ÷ wall time of the slowest rank, "
    "from a common barrier, in the uninstrumented native pass. Geometric mean over processes with its 95 % interval. "
    "“Of the fastest”: the ratio to the fastest row of the same network, input, precision, tuning, batch per device "
    "and devices, from the rounds that both were measured in; the intervals of a group hold all together. A row "
    "leads, alone or with others, unless another one is detectably faster. “Of peak” is the model FLOP utilisation: "
    "two operations for each multiply-accumulate of a training step, divided by what a product of large matrices "
    "reached on the same devices."
)


def _speeds(report: Report, panel: Panel) -> Rows:
    slowest, fastest = panel.rows[-1].speed, panel.rows[0].speed
    title = f"{number(fastest / slowest)} times between fastest and slowest"
    if slowest == fastest:
        title = f"{panel.names[0].words}: {number(fastest)}"
    leads = {row.id: "lead" for row in panel.rows if row.against and row.against.leads}
    drawn = [(name, row, row.rate, leads.get(row.id, "rest")) for name, row in panel.pairs if row.rate]
    return report.bars(title, panel.title, drawn, warning=panel.warning)


def _aside(rows: Iterable[Row]) -> Iterator[Markup]:
    """Yield the rows with a speed that are not compared, by reason."""
    left = (row for row in rows if not row.sound)
    for marks, those in grouped(left, lambda row: tuple(mark for mark in row.marks if mark in DISQUALIFYING)).items():
        reason = "; ".join(f"{mark}: {DISQUALIFYING[mark]}" for mark in marks)
        names = "; ".join(f"{row.case.label} with {number(row.speed)} samples/s" for row in those)
        yield tag("li", f"{reason}: {names}.")


def _cells(row: Row, imported: bool, peak: bool) -> list[Content]:
    found: list[Content] = [measured(row.rate), number(row.rate_per_device.value if row.rate_per_device else None)]
    if imported:
        return [*found, row.reason]
    against, ratio = row.against, None
    if against and against.fastest != row.id:
        within = f"{against.ratio.low * 100:.0f} … {percent(against.ratio.high)}"
        ratio = [percent(against.ratio.value), small(within)]
    verdict = "nothing to compare with" if row.comparable else "not compared"
    if against:
        verdict = against.verdict.partition(":")[0]
    found += [ratio, verdict, f"{len(row.measured)} of {row.case.sampling.processes}"]
    return found + [percent(row.utilisation) if row.utilisation else ""] * peak


def steps(report: Report) -> Section | None:
    """Return the spread of every native step."""
    timed = [row for row in report.rows if row.measured]
    if not timed:
        return None
    panels = by_group(timed[:SHOWN])

    def cells(row: Row) -> list[Content]:
        seconds = all_steps(row)
        ends = map(milliseconds, quantiles(seconds, (0, 5, 50, 95, 100)))
        return [str(seconds.size), *ends, str(int(outliers(seconds).sum()))]

    heads = "Case | steps | least | 5 % | median! | 95 % | most | outliers"
    whole = table("Step times", heads, *report.bodies(panels, cells, marked=False))
    body = [report.cut(timed, "cases with timed steps")]
    body.append(report.drawn("steps", [_steps(report, panel) for panel in for_charts(panels)]))
    body.append(folded("Milliseconds per step, slowest rank", whole))
    tails = [quantiles(all_steps(row), (50, 95)) for panel in panels for row in panel.rows]
    headline = f"1 step in 20 takes up to {number(max(high / middle for middle, high in tails))} times its median"
    definitions = (
        "Every native step of every process is kept. Boxes hold the middle half; dots are outliers "
        "(beyond three interquartile ranges from the quartiles), which count in every number."
    )
    return Section("steps", headline, body, definitions=definitions, name="Step times")


def _steps(report: Report, panel: Panel) -> Rows:
    drawn: list[tuple[list[float], list[float]]] = []
    for row in panel.rows:
        values = all_steps(row) * 1000
        far = outliers(values)
        near = values[~far]
        drawn.append(([near.min(), *quantiles(values, (25, 50, 75)), near.max()], values[far].tolist()))
    far_ends = [min(max(dots), 3 * ends[4]) for ends, dots in drawn if dots]
    scale, entries = linear(max([ends[4] for ends, _ in drawn] + far_ends), " ms"), []
    for (name, row), (ends, dots) in zip(panel.pairs, drawn, strict=True):
        _, low, middle, high, _ = map(number, ends)
        words = f"median {middle} ms, half of the steps {low} … {high}; {len(dots)} outliers"
        entries.append(report.entry(name, row, box(scale, ends, dots), middle, words))
    _, widest = max((ends[3] - ends[1], name.words) for name, (ends, _) in zip(panel.names, drawn, strict=True))
    axis = "steps: box plots in ms"
    return Rows(f"{widest} varies most", panel.title, scale, entries, "median, ms", axis, warning=panel.warning)


def quantiles(values: Values, percentages: tuple[int, ...]) -> list[float]:
    return [float(value) for value in np.percentile(values, percentages)]


def all_steps(row: Row) -> Values:
    """Return every native step of every process of a row, in seconds."""
    return np.concatenate([process.step_seconds for process in row.measured])


def best(report: Report) -> Section | None:
    """Return the fastest configuration of each strategy, and its margin over the default one."""
    found = contests(report.rows)
    if not found:
        return None
    heads = (
        "Strategy | samples/s! | default | fastest ÷ default! | verdict< | tried | fastest configuration< | remarks<"
    )
    bodies = []
    for contest in found:
        lines: list[list[Content]] = []
        for one in contest.winners:
            cells = [_called(one), measured(one.row.rate), number(one.default.speed)]
            cells += [measured(one.margin) if one.margin else "", one.verdict, str(one.tried)]
            own = [remarks(one), report.marks(one.row)]
            lines.append([*cells, ", ".join(configuration(one, one.row.case)), own])
        bodies.append(Body(lines, where_of(contest)))
    charts = [chart for contest in found if (chart := _contest(report, contest))]
    body = [report.drawn("best", charts), table("Best configurations", heads, *bodies)]
    file = tag("a", FILE, href=FILE)
    body.append(
        note("The fastest of many is also the luckiest: the plan ", file, " measures winners and defaults again.")
    )
    body.append(folded("The plan", tag("pre", plan_of(report, found))))
    title_, also = _headline(found)
    answers = [f"{where_of(contest)}: {'; '.join(map(_answer, contest.winners))}." for contest in found]
    usual = ", ".join(f"{name} {value}" for name, value in USUAL.items())
    definitions = (
        "For each strategy, the fastest configuration that this run tried, against the default: what an ordinary "
        f"user of the framework writes. The default is the case nearest to: {usual}, "
        "with every knob at its default. Rows that may not be compared cannot win."
    )
    return Section("best", title_, body, also, answers, definitions, "Best configurations")


def _headline(found: list[Contest]) -> tuple[str, str]:
    tried = [one for contest in found for one in contest.winners]
    judged = [(one, one.margin) for one in tried if one.margin]
    gains = [(one, margin) for one, margin in judged if margin.processes > 1 and margin.low > 1]
    if not judged:
        return "The default configuration is the fastest everywhere", ""
    most, margin = max(gains or judged, key=lambda pair: pair[1].value)
    if not gains:
        words = "Tuning gains nothing that can be told from noise"
        if all(margin.processes < 2 for _, margin in judged):
            words = "No verdict on tuning yet"
        return words, f"{_called(most)} came out {number(margin.value)} times as fast as its default."
    pays = f"Tuning pays for {len(gains)} of {len(tried)}" if len(tried) > 1 else "Tuning pays"
    return f"{pays}: {title(most.row.case.adapter)} becomes {number(margin.value)} times as fast", ""


def _contest(report: Report, contest: Contest) -> Rows | None:
    """Return the gains of a contest by strategy; None without one."""
    gains = [(one, one.margin) for one in contest.winners if one.margin]
    if not gains:
        return None
    gains.sort(key=lambda gain: -gain[1].value)
    ends = [gain.value for _, gain in gains]
    ends += [end for _, gain in gains if gain.tells for end in (gain.low, gain.high)]
    scale = logarithmic(min(1.0, *ends), max(2.0, *ends), "×", 2.0, (1.0,))
    entries = []
    for one, gain in gains:
        case, kind = one.row.case, "lead" if gain.processes > 1 and gain.low > 1 else ""
        name = Name(title(case.adapter), case.strategy if case.strategy != "single" else "")
        words = f"{number(one.default.speed)} to {number(one.row.speed)} samples/s: {one.verdict}"
        entries.append(report.entry(name, one.row, interval(scale, gain), f"{number(gain.value)}×", words, kind=kind))
    setting = f"{where_of(contest)} · best settings ÷ default"
    return Rows(_headline([contest])[0], setting, scale, entries, "gain", "gain by tuning, logarithmic")


def card(report: Report) -> Rows | None:
    """Return the gains by tuning of the contest with the most frameworks."""
    charts = [chart for contest in contests(report.rows) if (chart := _contest(report, contest))]
    most = max(charts, key=lambda chart: len(chart.entries), default=None)
    return replace(most, more=("Speed", report.to("best"))) if most else None


def where_of(contest: Contest) -> str:
    """Return the network and the devices of a contest."""
    first = contest.case
    count = first.placement.device_count
    where = f"{count} device{'s' * (count > 1)}"
    if first.placement.nodes > 1:
        where = f"{first.placement.nodes} nodes, {where}"
    data = "synthetic data" if first.data == "synthetic" else f"{first.data_name} from {first.input.mode}"
    return f"{first.workload} on {data}, {where}"


def _called(one: Best) -> str:
    return f"{title(one.row.case.adapter)} {one.row.case.strategy}"


def configuration(best: Best, case: Case) -> list[str]:
    """Return the batch, and what sets a case apart from the default configuration, in words."""
    usual, chosen = usual_of([best.default, best.row]), settings(case)
    changed = [name for name, value in chosen.items() if usual.get(name) != value and name != "batch"]
    return [f"batch {case.batch}", *(f"{name.removeprefix('knobs.')} {in_words(chosen[name])}" for name in changed)]


def remarks(best: Best) -> str:
    """Return what a reader should know of the comparison; "" where there is nothing to say."""
    notes = []
    if best.unusual:
        missing = " and ".join(name.removeprefix("knobs.") for name in best.unusual)
        notes.append(f"no case is known to have the default {missing}: compared with the nearest")
    if best.unequal_batches:
        notes.append(
            f"batches of {best.default.case.batch} and {best.row.case.batch} per device are compared by samples/s"
        )
    if best.row.case.precision != best.default.case.precision:
        notes.append(f"{best.default.case.precision} is compared with {best.row.case.precision}")
    if best.skipped:
        marks = sorted({mark for row in best.skipped for mark in row.marks if mark in DISQUALIFYING})
        notes.append(f"{len(best.skipped)} not compared: {', '.join(marks)}")
    return "; ".join(notes)


def _answer(one: Best) -> str:
    margin = f", {_margin(one)}" if one.margin else f": {one.verdict}"
    return f"{_called(one)} {number(one.rate)} samples/s with {', '.join(configuration(one, one.row.case))}{margin}"


def _margin(one: Best) -> str:
    assert one.margin
    return f"{one.margin.value:.2f} times the default ({one.margin.low:.2f} to {one.margin.high:.2f}): {one.verdict}"


def plan_of(report: Report, found: Iterable[Contest]) -> str:
    """Return every winner, and the row it was compared with, as a plan of the very same cases."""
    own: Collection[str] = report.folder.own_networks()
    blocks: dict[str, Block] = {}
    for contest in found:
        for one in contest.winners:
            words = f"{where_of(contest)}: the fastest of {one.tried} of {one.row.case.adapter}/{one.row.case.strategy}"
            if one.margin:
                words += f",\n{_margin(one)}"
                blocks[one.default.id] = Block(one.default.case, "the default that it was compared with")
            blocks[one.row.id] = Block(one.row.case, words)
    # A case that is one's winner and another's default is written once, winners first.
    ordered = sorted(blocks.values(), key=lambda block: block.comment.startswith("the default"))
    name = report.plan.name or "unknown"
    about = f"The fastest configurations found by the plan {name!r}, and those that they were compared with."
    if any(block.case.workload in own for block in ordered):
        about += "\nKeep this file beside run.json, which has the networks."
    return plan_text("best", f"The best configurations of {name}", about, ordered, own)
