"""The first screen: who leads every comparison, how certain that is, and all cases of the run."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import groupby, islice

from markupsafe import Markup

from stagebench.reports.charts.html import Body, Cells, Content, joined, listing, note, small, table, tag
from stagebench.reports.charts.html import Entry as Line
from stagebench.reports.charts.rows import Rows, Scale, interval, key
from stagebench.reports.pages import scaling, speed, stages
from stagebench.reports.pages.run import Report, Section, tokens
from stagebench.suite.analysis.comparability import meaning
from stagebench.suite.analysis.panels import SHOWN, Name, Panel, by_group
from stagebench.suite.analysis.rows import Row
from stagebench.suite.analysis.standing import FIRST, WIDEST, Answer, leaders, verdict
from stagebench.suite.analysis.summary import unused_records
from stagebench.suite.analysis.wording import bracketed, milliseconds, number, of_bound, percent, scientific, share
from stagebench.suite.text import counted

MOST = 12  # rows of a chart here
PIECE = 500  # lines of the table in one file, of those beyond the first SHOWN
KEY = {"lead": "leads: no case is detectably faster", "slower": "slower"}


def overview(report: Report, answers: Mapping[str, Section]) -> Section:
    """Return the first screen; `answers` are the sections of the other pages, one of which may answer the plan."""
    title, also = answer(report, answers, answers.get)
    groups = report.groups[:FIRST]
    parts: Cells = [_trust(report), *_warnings(report)]
    if groups:
        unit = tag("span.unit", "Speed in % of the fastest; line: 95 % interval of that ratio")
        charts = (_short(speeds_of(report, panel)) for panel in groups)
        first: Cells = [key(KEY, unit), report.drawn("overview", charts)]
        if len(report.groups) > FIRST:
            rest = f"The first {FIRST} of {len(report.groups)} comparisons; the others are in the table below."
            first = [matrix(report), *first, note(rest)]
        parts.append(tag("section", first))
    cards = [_short(card) for card in (scaling.card(report), speed.card(report), stages.card(report)) if card]
    parts.append(tag("section", report.drawn("overview", cards)) if cards else None)
    return Section("overview", title, parts, also, [f"{panel.title}: {verdict(panel)}." for panel in groups])


def answer(report: Report, ids: Iterable[str], section: Callable[[str], Section | None]) -> Answer:
    """Return the overview's title and the rest of it; no `section` is asked for in vain."""
    if report.imported:
        return report.answer()
    asked = section(ASKS[report.plan.name]) if report.plan.name in ASKS else None
    if not asked and not report.fast:
        asked = next((found for found in map(section, ids) if found and found.answers), None)
    return (asked.title, asked.also) if asked else report.answer()


def _short(chart: Rows) -> Rows:
    """Return the chart without rows beyond the first MOST, which would make the page of a large run slow."""
    left = len(chart.entries) - MOST
    note = f"{left} more are in the table below."
    return replace(chart, entries=chart.entries[:MOST], note=note) if left > 0 else chart


# The section that answers what a plan asks; all other plans ask who is the fastest.
ASKS = {
    "autotune": "best",
    "batch-size": "learning",
    "data-parallel": "devices",
    "horovod-style": "exchange",
    "learning": "learning",
    "model-parallel": "parts",
    "prediction": "predicted",
    "inference": "latency",
    "serving": "serving",
    "readers": "input",
    "stragglers": "stragglers",
    "time-to-train": "time_to_train",
}


def speeds_of(report: Report, panel: Panel) -> Rows:
    """Return the speeds of a comparison in per cent of the fastest, with the intervals of the ratios."""
    scale = Scale(0.0, WIDEST, (0.0, 0.5, 1.0), (1.0,), "\u00a0%", written=lambda value: f"{value * 100:.0f}")
    entries = []
    for name, row in panel.pairs:
        assert row.against
        ratio, speed = row.against.ratio, number(row.speed)
        words = f"{speed} samples/s{bracketed(row.rate)}; "
        words += f"{number(row.token_rate.value)} tokens/s; " if row.token_rate else ""
        words += f"{share(ratio.value)} of the fastest{bracketed(ratio.scaled(100))}"
        kind = "lead" if row.against.leads else ""
        entries.append(report.entry(name, row, interval(scale, ratio), speed, words, percent(ratio.value), kind))
    return Rows(verdict(panel), panel.title, scale, entries, "samples/s", "speed in per cent of the fastest")


def matrix(report: Report) -> Markup:
    """Return all comparisons at a glance: a line a comparison, a column a framework."""
    frameworks = list(dict.fromkeys(name.title for panel in report.groups for name in panel.names))
    lines = []
    for panel in report.groups:
        sign, cells = "● " if len(leaders(panel)) == 1 else "◐ ", dict.fromkeys(frameworks, "")
        for name, row in reversed(panel.pairs):  # the fastest case of a framework last
            if against := row.against:
                cells[name.title] = f"{sign if against.leads else ''}{percent(against.ratio.value)}"
        lines.append([panel.title, *cells.values()])
    heads = ["Comparison", *frameworks]
    words = "● leads, ◐ shares the lead; the fastest case of each framework, in % of the fastest."
    return joined([table("All comparisons", heads, lines), note(words)])


def cases(report: Report) -> Section:
    """Return the table of all cases, by comparison; beyond SHOWN the others are loaded when they are searched for."""
    count = len(report.rows)
    heads = "Case | samples/s! | 95 % interval-" + " | tokens/s-" * report.texts
    heads += " | of the fastest^ | 95 % interval- | ms a step-"
    heads += " | of peak-" * report.peaks + " | proof: error of its bound-"
    shown = islice(_lines(report), SHOWN)
    bodies = [Body([line for _, line in lines], panel.title) for panel, lines in groupby(shown, lambda each: each[0])]
    words = {"type": "search", "name": "q", "placeholder": "Filter: jax alexnet"}
    search = tag("input", aria_label="Filter the cases", aria_controls="listed", **words)
    said = tag("output", f"{count} shown" if count <= SHOWN else f"{SHOWN} of {count} shown")
    copy = tag("button", "Copy as CSV", type="button", data_copy="listed")
    pieces = 0 if report.single else -(-max(count - SHOWN, 0) // PIECE)
    form = tag("form", search, said, copy, role="search", data_pieces=pieces, data_count=count)
    head = tag("div.head", tag("h2", f"All {count} cases" if count > 1 else "The case"), form)
    seen = {mark for row in report.rows for mark in row.marks} - report.shared_marks
    marks = [
        note(first, "; ".join(f"{mark}: {meaning(mark)}" for mark in sorted(several)), ".")
        for first, several in (("All cases are ", report.shared_marks), ("Marks. ", seen))
        if several
    ]
    return Section("cases", "", [head, table("All cases", heads, *bodies, id_="listed"), marks])


def _lines(report: Report) -> Iterator[tuple[Panel, Line]]:
    for panel in by_group(report.rows):
        for name, row in panel.pairs:
            yield panel, _line(report, name, row)


def _line(report: Report, name: Name, row: Row) -> Line:
    against, rate, proof = row.against, row.rate, row.proof
    proven: Content = ""
    if proof and (worst := proof.worst):
        part = of_bound(worst.error / worst.tolerance) if worst.tolerance else scientific(worst.error)
        sign, kind = ("✓", "good") if proof.passed else ("✗", "bad")
        proven = [tag("span", sign, class_=kind), f" {part}"]
    elif row.processes and not report.imported:
        proven = tag("span.bad", "✗ none")
    within = ""
    if against:
        within = f"{against.ratio.low * 100:.0f} … {percent(against.ratio.high)}"
        within = "reference" if against.fastest == row.id else within
    cells: Cells = [report.head(name, row)]
    cells.append(number(rate.value) if rate else small(row.outcome if row.outcome != "ok" else "–"))
    cells.append(f"{number(rate.low)} … {number(rate.high)}" if rate and rate.scatters else "")
    cells += [*tokens(report, row), percent(against.ratio.value) if against else "", within]
    cells.append(milliseconds(row.case.global_batch / rate.value) if rate else "")
    cells += [percent(row.utilisation) if row.utilisation else ""] * report.peaks
    return Line([*cells, proven], "lead" if against and against.leads else "", row.case.adapter)


def pieces(report: Report) -> Iterator[tuple[str, str]]:
    """Yield (name, script) of the table's lines beyond the first SHOWN."""
    if len(report.rows) <= SHOWN:
        return
    kinds = ["strong", *["low"] * (1 + report.texts), "led", "low", "low", *["low"] * report.peaks, "low"]
    flat = list(_lines(report))[SHOWN:]
    for index, first in enumerate(range(0, len(flat), PIECE)):
        rows = []
        for panel, line in flat[first : first + PIECE]:
            cells = [tag("td", cell, class_=kind) for cell, kind in zip(line.cells[1:], kinds, strict=True)]
            rows.append([panel.title, line.kind, line.of, str(joined([tag("th", line.cells[0], scope="row"), cells]))])
        content = json.dumps(rows, separators=(",", ":"), ensure_ascii=False)  # of a file: no `</script>` ends it
        yield f"cases-{index}.js", f"stagebench.cases({content});\n"


def _trust(report: Report) -> Markup:
    """Return the line that says how far the title may be trusted."""
    items: Cells = []
    passed, proven = report.proven()
    if proven:
        sign = tag("i.good", "✓") if passed else tag("i.bad", "✗")
        items.append([sign, tag("a", proven, href=report.to("proofs"))])
    if processes := report.processes():
        items.append([tag("i", "±"), tag("a", "95 % intervals", href=report.to("method")), f" of {processes}"])
    items.append([tag("i", "◔", class_=None if report.progress.complete else "warn"), report.extent()])
    for name, host in list(report.folder.hosts().items())[:1]:
        gpus = f", {counted(len(host.machine.gpus), 'GPU')}" if host.machine.gpus else ""
        cores = f"{host.machine.cpu or name}, {host.cores or host.cores_installed or '?'} cores{gpus}"
        items.append([tag("i", "▣"), tag("a", cores, href=report.to("machine"))])
    return listing(items, "ul.trust")


def _warnings(report: Report) -> Iterator[Markup]:
    if report.imported:
        return
    if not report.progress.complete:
        given = f"The time that the command gave, --for {report.progress.given}, is over"
        words = given if report.progress.given else "The run is incomplete"
        yield note(f"{words}: the same command measures the others.")
    undecided, every = sum(not leaders(panel) for panel in report.groups), len(report.groups)
    if undecided and report.progress.complete:
        where = f" in {undecided} of {every} comparisons" if undecided < every else ""
        more = [tag("code", word) for word in ("--until 3%", "processes = 5", "[sampling]")]
        yield note(f"No verdict{where}: add rounds with ", more[0], ", or set ", more[1], " under ", more[2], ".")
    if unused := unused_records(report.folder):
        yield note(f"{unused}.")
