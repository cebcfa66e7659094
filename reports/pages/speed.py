"""Speeds in exact numbers, the spread of steps, the time to the first one, and what the best configurations gain."""

from collections.abc import Collection, Iterable
from dataclasses import replace

import numpy as np

from stagebench.reports.charts.html import Body, Cells, folded, listing, measured, note, small, table, tag
from stagebench.reports.charts.rows import Rows, box, interval, linear, logarithmic, stack
from stagebench.reports.imports.programs import notes_of
from stagebench.reports.pages.run import Report, Section, tokens
from stagebench.suite.analysis.best import Best, Contest, contests, settings, usual_of
from stagebench.suite.analysis.comparability import DISQUALIFYING
from stagebench.suite.analysis.panels import SHOWN, Name, Panel, by_group, devices, for_charts, title
from stagebench.suite.analysis.rows import Row
from stagebench.suite.analysis.stats import Values, outliers
from stagebench.suite.analysis.wording import in_words, milliseconds, number, percent, range_of
from stagebench.suite.plan.text import Block, plan_text
from stagebench.suite.text import counted, grouped

STARTUP = {"io": "loading", "h2d": "building", "forward": "compiling", "update": "a step"}  # Startup, by shade
FILE = "best.toml"  # next to the pages, where a run has compared configurations


def speeds(report: Report) -> Section | None:
    """Return the speeds of all cases; of imported ones as other programs printed them."""
    if not report.fast:
        return None
    panels, imported = by_group(report.fast[:SHOWN]), report.imported
    body: Cells = [report.cut(report.fast, "cases with a speed")]
    charts = (_speeds(report, panel) for panel in for_charts(panels) if len(panel.rows) > 1 or imported)
    body.append(report.drawn("speeds", charts))
    left = [row for row in report.fast if not (row.sound or imported)]
    aside = []
    for marks, those in grouped(left, lambda row: tuple(mark for mark in row.marks if mark in DISQUALIFYING)).items():
        reason = "; ".join(f"{mark}: {DISQUALIFYING[mark]}" for mark in marks)
        names = "; ".join(f"{row.case.label} with {number(row.speed)} samples/s" for row in those)
        aside.append(f"{reason}: {names}.")
    body += [tag("h3", "Not compared"), listing(aside)] if aside else []
    joules, peaks = any(row.joules_per_sample for row in report.fast), report.peaks and not imported
    heads = "Case | samples/s! | per device" + " | tokens/s" * report.texts
    heads += " | source<" if imported else " | of the fastest | verdict< | processes"
    heads += " | of peak-" * peaks + " | J a sample-" * joules

    def cells(row: Row) -> Cells:
        found: Cells = [measured(row.rate), number(row.rate_per_device.value if row.rate_per_device else None)]
        found += tokens(report, row)
        against, ratio, verdict = row.against, None, "nothing to compare with" if row.comparable else "not compared"
        if against:
            verdict = against.verdict.partition(":")[0]
            within = f"{against.ratio.low * 100:.0f} … {percent(against.ratio.high)}"
            ratio = [percent(against.ratio.value), small(within)] if against.fastest != row.id else None
        found += [row.reason] if imported else [ratio, verdict, f"{len(row.measured)} of {row.case.sampling.processes}"]
        found += [percent(row.utilisation) if row.utilisation else ""] * peaks
        return found + [number(row.joules_per_sample) if row.joules_per_sample else ""] * joules

    body.append(table("Samples per second", heads, *report.bodies(panels, cells)))
    headline = f"{number(max(row.speed * (row.sound or imported) for row in report.fast))} samples/s"
    if len(report.fast) > 1:
        headline = f"{number(min(row.speed for row in report.fast))} to {headline}"
    if imported:
        also = "As other programs printed them; stagebench measured none of this and can verify none of it."
        return Section("speeds", headline, [[note(words) for words in notes_of(report.folder)], *body], also)
    also = f"{counted(len(report.fast), 'case')}, all devices together; small numbers: 95 % intervals."
    return Section("speeds", headline, body, also)


def _speeds(report: Report, panel: Panel) -> Rows:
    slowest, fastest = panel.rows[-1].speed, panel.rows[0].speed
    title = f"{number(fastest / slowest)} times between fastest and slowest"
    if slowest == fastest:
        title = f"{panel.names[0].words}: {number(fastest)}"
    leads = {row.id: "lead" for row in panel.rows if row.against and row.against.leads}
    drawn = [(name, row, row.rate, leads.get(row.id, "rest")) for name, row in panel.pairs if row.rate]
    return report.bars(title, panel.title, drawn, warning=panel.warning)


def steps(report: Report) -> Section | None:
    """Return the spread of every native step."""
    timed = [row for row in report.rows if row.measured]
    if not timed:
        return None
    panels = by_group(timed[:SHOWN])

    def cells(row: Row) -> Cells:
        seconds = all_steps(row)
        ends = map(milliseconds, quantiles(seconds, (0, 5, 50, 95, 100)))
        return [str(seconds.size), *ends, str(int(outliers(seconds).sum()))]

    heads = "Case | steps | least | 5 % | median! | 95 % | most | outliers"
    whole = table("Step times", heads, *report.bodies(panels, cells, marked=False))
    body = [report.cut(timed, "cases with timed steps")]
    body.append(report.drawn("steps", (_steps(report, panel) for panel in for_charts(panels))))
    body.append(folded("Milliseconds per step, slowest rank", whole))
    most = max(high / low for row in timed[:SHOWN] for low, high in [quantiles(all_steps(row), (50, 95))])
    title = f"1 step in 20 takes up to {number(most)} times its median"
    return Section("steps", title, body)


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
    bodies, answers = [], []
    for contest in found:
        lines: list[Cells] = []
        for one in contest.winners:
            cells = [_called(one), measured(one.row.rate), number(one.default.speed)]
            cells += [measured(one.margin) if one.margin else "", one.verdict, str(one.tried)]
            lines.append([*cells, configuration(one), [remarks(one), report.marks(one.row)]])
        bodies.append(Body(lines, where_of(contest)))
        said = (
            f"{_called(one)} {number(one.rate)} samples/s with {configuration(one)}"
            f"{f', {_margin(one)}' if one.margin else f': {one.verdict}'}"
            for one in contest.winners
        )
        answers.append(f"{where_of(contest)}: {'; '.join(said)}.")
    heads = "Strategy | samples/s! | default | fastest ÷ default! | verdict< | tried | fastest configuration<"
    body = [report.drawn("best", (_contest(report, contest) for contest in found))]
    body.append(table("Best configurations", f"{heads} | remarks<", *bodies))
    luck = "The fastest of many is also the luckiest: the plan "
    body.append(note(luck, tag("a", FILE, href=FILE), " measures winners and defaults again."))
    body.append(folded("The plan", tag("pre", plan_of(report, found))))
    title_, also = _headline(found)
    return Section("best", title_, body, also, answers)


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
    charts = (_contest(report, contest) for contest in contests(report.rows))
    most = max(filter(None, charts), key=lambda chart: len(chart.entries), default=None)
    return replace(most, more=("Speed", report.to("best"))) if most else None


def where_of(contest: Contest) -> str:
    """Return the network and the devices of a contest."""
    first, place = contest.case, contest.case.placement
    where = f"{place.nodes} nodes, " * (place.nodes > 1) + devices(place.device_count)
    data = "synthetic data" if first.data == "synthetic" else f"{first.data_name} from {first.input.mode}"
    return f"{first.workload} on {data}, {where}"


def _called(one: Best) -> str:
    return f"{title(one.row.case.adapter)} {one.row.case.strategy}"


def configuration(best: Best) -> str:
    """Return the winner's batch, and what sets it apart from the default configuration, in words."""
    usual, chosen, case = usual_of([best.default, best.row]), settings(best.row.case), best.row.case
    changed = [name for name, value in chosen.items() if usual.get(name) != value and name != "batch"]
    words = (f"{name.removeprefix('knobs.')} {in_words(chosen[name])}" for name in changed)
    return ", ".join([f"batch {case.batch}", *words])


def remarks(best: Best) -> str:
    """Return what a reader should know of the comparison; "" where there is nothing to say."""
    notes = []
    if best.unusual:
        missing = " and ".join(name.removeprefix("knobs.") for name in best.unusual)
        notes.append(f"no case is known to have the default {missing}: compared with the nearest")
    if best.unequal_batches:
        batches = f"{best.default.case.batch} and {best.row.case.batch}"
        notes.append(f"batches of {batches} per device are compared by samples/s")
    if best.row.case.precision != best.default.case.precision:
        notes.append(f"{best.default.case.precision} is compared with {best.row.case.precision}")
    if best.skipped:
        marks = sorted({mark for row in best.skipped for mark in row.marks if mark in DISQUALIFYING})
        notes.append(f"{len(best.skipped)} not compared: {', '.join(marks)}")
    return "; ".join(notes)


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


def startup(report: Report) -> Section | None:
    """Return the seconds from a process's start to the end of its first step; None where no record has them."""
    rows = [row for row in report.fast if row.startup]
    if not rows:
        return None

    def chart(panel: Panel) -> Rows:
        whole = {row.id: sum(row.startup or ()) for row in panel.rows}
        scale, entries = linear(max(whole.values()), " s"), []
        for name, row in panel.pairs:
            parts = dict(zip(STARTUP, row.startup or (), strict=True))
            words = ", ".join(f"{STARTUP[shade]} {number(seconds)} s" for shade, seconds in parts.items())
            entries.append(report.entry(name, row, stack(scale, parts), number(whole[row.id]), words))
        title = f"{range_of(list(map(number, sorted(whole.values()))))} s to the first step"
        return Rows(title, panel.title, scale, entries, "s", "s to the first step", key=STARTUP, warning=panel.warning)

    def cells(row: Row) -> Cells:
        return [*map(number, row.startup or ()), number(sum(row.startup or ()))]

    heads = "Case | loading, s | building, s | compiling, s | a step, s | to the first step, s!"
    panels = by_group(rows[:SHOWN])
    body = [report.cut(rows, "cases"), report.drawn("startup", map(chart, for_charts(panels)))]
    body.append(table("Time to the first step", heads, *report.bodies(panels, cells)))
    slowest = max(rows, key=lambda row: sum(row.startup or ()))
    title = f"The first step ends after {number(sum(slowest.startup or ()))} s at most"
    also = f"{slowest.case.label} is that slow."
    return Section("startup", title, body, also, [f"{title}."])
