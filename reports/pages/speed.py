"""Speeds in exact numbers, the spread of their steps, and what the best configuration of each framework gains."""

from collections.abc import Collection, Iterable

import numpy as np

from reports.charts.rows import Entry, Rows, bar, box, interval, linear, logarithmic, top
from reports.pages.run import Report, Section
from reports.words.html import Body, Head, folded, joined, measured, note, small, table, tag
from reports.words.names import Name, title
from reports.words.panels import SHOWN, Panel, by_group, for_charts
from reports.words.text import bracketed, in_words, milliseconds, number, percent
from suite.analysis.best import USUAL, Best, Contest, contests, settings, usual_of
from suite.analysis.comparability import DISQUALIFYING
from suite.analysis.rows import Row
from suite.analysis.stats import Values, outliers
from suite.contracts.case import Case
from suite.plan.text import Block, plan_text
from suite.text import grouped

FILE = "best.toml"  # next to the pages, where a run has compared configurations
QUARTILES = (25, 50, 75)


def speeds(report: Report) -> Section | None:
    """Return the speeds of all cases; of imported ones as other programs printed them."""
    if not report.fast:
        return None
    panels = by_group(report.fast[:SHOWN])
    charts = [_speeds(report, panel) for panel in for_charts(panels) if len(panel.rows) > 1 or report.imported]
    body = [report.cut(report.fast, "cases with a speed"), report.drawn("speeds", charts)]
    aside = [tag("li", f"{reason}: ", "; ".join(names), ".") for reason, names in _aside(report.fast).items()]
    body += [tag("h3", "Not compared"), tag("ul", aside)] if aside and not report.imported else []
    if report.imported:
        heads = [Head("Case"), Head("samples/s", "strong"), Head("per device"), Head("source", "words")]
    else:
        heads = [
            Head("Case"),
            Head("samples/s", "strong"),
            Head("per device"),
            Head("of the fastest"),
            Head("verdict", "words"),
            Head("processes"),
            Head("of peak", "low"),
            Head("J a sample", "low"),
        ]
    bodies = [Body([_line(report, name, row) for name, row in panel.pairs], panel.title) for panel in panels]
    body.append(table("Samples per second", heads, bodies))
    fastest = max(report.fast, key=lambda row: row.speed if row.sound or report.imported else 0.0)
    headline = (
        f"{number(min(row.speed for row in report.fast))} to {number(fastest.speed)} samples/s"
        if len(report.fast) > 1
        else f"{number(fastest.speed)} samples/s"
    )
    if report.imported:
        also = "As other programs printed them; stagebench measured none of this and can verify none of it."
        notes = [note(words) for words in _foreign_notes(report)]
        return Section("speeds", headline, [notes, *body], also)
    also = (
        f"{len(report.fast)} case{'s' * (len(report.fast) > 1)}, all devices together; small numbers: 95 % intervals."
    )
    return Section("speeds", headline, body, also, definitions=_DEFINITIONS, name="Speed")


_DEFINITIONS = (
    "Samples per second of all devices together = samples that "
    "all ranks consumed ÷ wall time of the slowest rank, from a "
    "common barrier, in the uninstrumented native pass. Geometric mean over processes with its 95 % interval. “Of the "
    "fastest”: the ratio to the fastest row of the same network, "
    "input, precision, tuning, batch per device and devices, "
    "from the rounds that both were measured in; the intervals "
    "of a group hold all together. A row leads, alone or with "
    "others, unless another one is detectably faster. “Of peak” is the model FLOP utilisation: two operations for each "
    "multiply-accumulate of a training step, divided by what a product of large matrices reached on the same devices."
)


def _foreign_notes(report: Report) -> list[str]:
    from reports.imports.programs import notes_of

    return notes_of(report.folder)


def _speeds(report: Report, panel: Panel) -> Rows:
    rates = [row.rate for row in panel.rows if row.rate]
    scale = linear(top(rates))
    entries = [
        Entry(
            name.title, bar(scale, rate), number(rate.value), name.detail,
            kind="lead" if row.against and row.against.leads else "", of=row.case.adapter,
            words=f"{number(rate.value)} samples/s{bracketed(rate)}", link=report.case(row),
        )
        for (name, row), rate in zip(panel.pairs, rates, strict=True)
    ]  # fmt: skip
    return Rows(_fastest(panel), panel.title, scale, entries, "samples/s", "samples/s", warning=panel.warning)


def _fastest(panel: Panel) -> str:
    slowest, fastest = panel.rows[-1].speed, panel.rows[0].speed
    return (
        f"{panel.names[0].words}: {number(fastest)}"
        if slowest == fastest
        else f"{number(fastest / slowest)} times between fastest and slowest"
    )


def _aside(rows: Iterable[Row]) -> dict[str, list[str]]:
    """Return the rows with a speed that are not compared, in words, by reason."""
    found = grouped(
        (row for row in rows if not row.sound), lambda row: tuple(mark for mark in row.marks if mark in DISQUALIFYING)
    )
    return {
        "; ".join(f"{mark}: {DISQUALIFYING[mark]}" for mark in marks): [
            f"{row.case.label} with {number(row.speed)} samples/s" for row in those
        ]
        for marks, those in found.items()
    }


def _line(report: Report, name: Name, row: Row) -> list[object]:
    found: list[object] = [
        report.head(name, row),
        measured(row.rate),
        number(row.rate_per_device.value if row.rate_per_device else None),
    ]
    if report.imported:
        return [*found, row.reason]
    against = row.against
    ratio = (
        joined([percent(against.ratio.value), small(f"{against.ratio.low * 100:.0f} … {percent(against.ratio.high)}")])
        if against and against.fastest != row.id
        else None
    )
    verdict = (
        against.verdict.partition(":")[0]
        if against
        else "nothing to compare with"
        if row.comparable
        else "not compared"
    )
    processes = f"{len(row.measured)} of {row.case.sampling.processes}"
    joules = number(row.joules_per_sample) if row.joules_per_sample else ""
    return [*found, ratio, verdict, processes, percent(row.utilisation) if row.utilisation else "", joules]


def steps(report: Report) -> Section | None:
    """Return the spread of every native step."""
    timed = [row for row in report.rows if row.measured]
    if not timed:
        return None
    panels = by_group(timed[:SHOWN])
    charts = [_steps(report, panel) for panel in for_charts(panels)]
    heads = [
        Head("Case"),
        *map(Head, ("steps", "least", "5 %")),
        Head("median", "strong"),
        *map(Head, ("95 %", "most", "outliers")),
    ]
    bodies, most = [], 1.0
    for panel in panels:
        lines = []
        for name, row in panel.pairs:
            seconds = all_steps(row)
            low, middle, high = quantiles(seconds, (5, 50, 95))
            most = max(most, high / middle)
            ends = [milliseconds(value) for value in (float(seconds.min()), low, middle, high, float(seconds.max()))]
            lines.append(
                [report.head(name, row, marked=False), str(seconds.size), *ends, str(int(outliers(seconds).sum()))]
            )
        bodies.append(Body(lines, panel.title))
    body = [report.cut(timed, "cases with timed steps"), report.drawn("steps", charts)]
    body.append(folded("Milliseconds per step, slowest rank", table("Step times", heads, bodies)))
    headline = f"1 step in 20 takes up to {number(most)} times its median"
    definitions = (
        "Every native step of every process is kept. Boxes hold the middle half; dots are outliers "
        "(beyond three interquartile ranges from the quartiles), which count in every number."
    )
    return Section("steps", headline, body, definitions=definitions, name="Step times")


def _steps(report: Report, panel: Panel) -> Rows:
    drawn = []
    for row in panel.rows:
        values = all_steps(row) * 1000
        far = outliers(values)
        near = values[~far]
        drawn.append(
            (
                (float(near.min()), *quantiles(values, QUARTILES), float(near.max())),
                [float(value) for value in values[far]],
            )
        )
    scale = linear(
        max([ends[4] for ends, _ in drawn] + [min(max(dots), 3 * ends[4]) for ends, dots in drawn if dots]), " ms"
    )
    entries = [
        Entry(
            name.title, box(scale, ends, dots), number(ends[2]), name.detail, of=row.case.adapter,
            words=f"median {number(ends[2])} ms, half of the steps "
                f"{number(ends[1])} … {number(ends[3])}; {len(dots)} outliers", link=report.case(row),
        )
        for (name, row), (ends, dots) in zip(panel.pairs, drawn, strict=True)
    ]  # fmt: skip
    widest = max(
        panel.names[index].words
        for index, (ends, _) in enumerate(drawn)
        if ends[3] - ends[1] == max(e[3] - e[1] for e, _ in drawn)
    )
    return Rows(
        f"{widest} varies most",
        panel.title,
        scale,
        entries,
        "median, ms",
        "steps: box plots in ms",
        warning=panel.warning,
    )


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
    charts = [chart for contest in found if (chart := _contest(report, contest))]
    heads = [
        Head("Strategy"),
        Head("samples/s", "strong"),
        Head("default"),
        Head("fastest ÷ default", "strong"),
        Head("verdict", "words"),
        Head("tried"),
        Head("fastest configuration", "words"),
        Head("remarks", "words"),
    ]
    bodies = []
    for contest in found:
        lines = [
            [
                _called(one),
                measured(one.row.rate),
                number(one.default.speed),
                measured(one.margin) if one.margin else "",
                one.verdict,
                str(one.tried),
                ", ".join(configuration(one, one.row.case)),
                [remarks(one), report.marks(one.row)],
            ]
            for one in contest.winners
        ]
        bodies.append(Body(lines, where_of(contest)))
    plan = plan_of(report, found)
    body = [report.drawn("best", charts), table("Best configurations", heads, bodies)]
    file = tag("a", FILE, href=FILE)
    body.append(
        note("The fastest of many is also the luckiest: the plan ", file, " measures winners and defaults again.")
    )
    body.append(folded("The plan", tag("pre", plan)))
    title_, also = _headline(found)
    answers = [f"{where_of(contest)}: {'; '.join(_answer(one) for one in contest.winners)}." for contest in found]
    usual = ", ".join(f"{name} {value}" for name, value in USUAL.items())
    definitions = (
        f"For each strategy, the fastest configuration that this run tried, against the default: what an ordinary "
        f"user of the framework writes. The default is the case nearest to: {usual}, "
        f"with every knob at its default. Rows that may not be compared cannot win."
    )
    return Section("best", title_, body, also, answers, definitions, "Best configurations")


def _headline(found: list[Contest]) -> tuple[str, str]:
    tried = [one for contest in found for one in contest.winners]
    gains = [one for one in tried if one.margin and one.margin.processes > 1 and one.margin.low > 1]
    judged = [one for one in tried if one.margin]
    if not judged:
        return "The default configuration is the fastest everywhere", ""
    if not gains:
        words = (
            "No verdict on tuning yet"
            if all(one.margin and one.margin.processes < 2 for one in judged)
            else "Tuning gains nothing that can be told from noise"
        )
        most = max(judged, key=lambda one: one.margin.value if one.margin else 0.0)
        return (
            words,
            f"{_called(most)} came out {number(most.margin.value if most.margin else None)} "
            f"times as fast as its default.",
        )
    most = max(gains, key=lambda one: one.margin.value if one.margin else 0.0)
    assert most.margin
    pays = f"Tuning pays for {len(gains)} of {len(tried)}" if len(tried) > 1 else "Tuning pays"
    return f"{pays}: {title(most.row.case.adapter)} becomes {number(most.margin.value)} times as fast", ""


def _contest(report: Report, contest: Contest) -> Rows | None:
    """Return the gains of a contest by strategy; None without one."""
    gains = sorted(
        (one for one in contest.winners if one.margin), key=lambda one: -(one.margin.value if one.margin else 0)
    )
    if not gains:
        return None
    ends = [
        end
        for one in gains
        if one.margin
        for end in (one.margin.value, *((one.margin.low, one.margin.high) if one.margin.tells else ()))
    ]
    scale = logarithmic(min(1.0, *ends), max(2.0, *ends), "×", 2.0, (1.0,))
    entries = []
    for one in gains:
        assert one.margin
        sure = one.margin.processes > 1 and one.margin.low > 1
        entries.append(
            Entry(
                title(one.row.case.adapter), interval(scale, one.margin), f"{number(one.margin.value)}×",
                one.row.case.strategy if one.row.case.strategy != "single" else "", kind="lead" if sure else "",
                of=one.row.case.adapter, link=report.case(one.row),
                words=f"{number(one.default.speed)} to {number(one.row.speed)} samples/s: {one.verdict}",
            )
        )  # fmt: skip
    headline, _ = _headline([contest])
    return Rows(
        headline,
        f"{where_of(contest)} · best settings ÷ default",
        scale,
        entries,
        "gain",
        "gain by tuning, logarithmic",
    )


def card(report: Report) -> Rows | None:
    """Return the gains by tuning of the contest with the most frameworks."""
    charts = [chart for contest in contests(report.rows) if (chart := _contest(report, contest))]
    if not charts:
        return None
    most = max(charts, key=lambda chart: len(chart.entries))
    return Rows(
        most.title, most.setting, most.scale, most.entries, most.unit, most.axis, more=("Speed", report.to("best"))
    )


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
