"""The first screen: who leads every comparison, how certain that is, and all cases of the run."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from markupsafe import Markup

from reports.charts.rows import Rows, Scale, interval, key
from reports.pages import scaling, speed, stages
from reports.pages.run import Report, Section
from reports.words.html import Body, Content, joined, note, small, table, tag
from reports.words.html import Entry as Line
from reports.words.names import SHOWN, Name, Panel, by_group
from reports.words.text import bracketed, listed, milliseconds, moment, number, percent, range_of, scientific, share
from suite.analysis.comparability import meaning
from suite.analysis.rows import Row
from suite.analysis.summary import unused_records
from suite.results.foreign import imported
from suite.results.records import CANCELLED

FIRST = 12  # comparisons with a panel; more have a matrix
WIDEST = 1.25  # times the leader: intervals may reach beyond it, and beyond the track
PIECE = 500  # lines of the table in one file, of those beyond the first SHOWN
KEY = {"lead": "leads: no case is detectably faster", "slower": "slower"}
Answer = tuple[str, str]  # a title, and the rest of it


def overview(report: Report, answers: Mapping[str, Section]) -> Section:
    """Return the first screen; `answers` are the sections of the other pages, one of which may answer the plan."""
    title, also = answer(report, answers)
    parts: list[Content] = [_trust(report), _warnings(report)]
    speeds = [speeds_of(report, panel) for panel in report.groups[:FIRST]]
    if speeds:
        unit = tag("span", "Speed in % of the fastest; line: 95 % interval of that ratio", class_="unit")
        first: list[Content] = [key(KEY, unit), report.drawn("overview", speeds)]
        if len(report.groups) > FIRST:
            rest = f"The first {FIRST} of {len(report.groups)} comparisons; the others are in the table below."
            first = [matrix(report), *first, note(rest)]
        parts.append(tag("section", first))
    cards = [card for card in (scaling.card(report), speed.card(report), stages.card(report)) if card]
    parts.append(tag("section", report.drawn("overview", cards, "three")) if cards else None)
    found = [f"{panel.title}: {verdict(panel)}." for panel in report.groups[:FIRST]]
    return Section("overview", title, parts, also, found)


# What each plan asks, by the section that answers it; all others ask who is the fastest.
ASKS = {
    "autotune": "best",
    "batch-size": "learning",
    "data-parallel": "devices",
    "horovod-style": "exchange",
    "learning": "learning",
    "model-parallel": "parts",
    "paper": "scaling",
    "prediction": "predicted",
    "readers": "input",
    "stragglers": "stragglers",
    "time-to-train": "time_to_train",
}


def answer(report: Report, answers: Mapping[str, Section]) -> Answer:
    """Return the answer to the plan's question."""
    asked = answers.get(ASKS.get(report.plan.name, ""))
    if report.imported:
        programs, count = listed(imported(report.folder).programs), len(report.rows)
        title = f"Imported: {count} result{'s' * (count > 1)} of {programs}"
        return title, "Foreign and unproven, and compared with nothing."
    if asked:
        return asked.title, asked.also
    if report.groups:
        return tally(report.groups)
    fast = [row for row in report.fast if row.sound]
    if len(fast) == 1:
        (panel,) = by_group(fast)
        title = f"{panel.names[0].words} does {number(fast[0].speed)} samples/s"
        return title, f"{panel.title}; nothing to compare it with."
    if fast:
        return "Nothing to compare", f"Each of the {len(fast)} cases with a speed is alone in its setting."
    if report.fast:
        return "Nothing may be compared", "The marks of each case say why."
    others = next((section for section in answers.values() if section.answers), None)
    return (others.title, others.also) if others else ("No case has a speed yet", "")


def tally(groups: Sequence[Panel]) -> Answer:
    """Return who leads most comparisons, and who leads others."""
    decided = [panel for panel in groups if leaders(panel)]
    if not decided:
        return "No verdict yet", "A verdict needs two rounds or more, each with a process of every case."
    won = Counter(title for panel in decided for title in {name.title for name in leaders(panel)})
    every = list(dict.fromkeys(name.title for panel in groups for name in panel.names))
    counts = sorted(set(won.values()), reverse=True)
    by_count = {count: [title for title in every if won[title] == count] for count in counts}
    best, first = counts[0], by_count.pop(counts[0])
    alone = all(len(leaders(panel)) == 1 for panel in decided)
    lead = "lead" if alone else "lead or share the lead"
    if len(first) == 1:
        lead = "leads" if alone else "leads or shares the lead"
    where = f"in {best} of {len(groups)} comparisons" if len(groups) > 1 else f"on {groups[0].title}"
    others = [f"{listed(titles)} in {count}" for count, titles in by_count.items()]
    none = [title for title in every if not won[title]]
    rest = "; ".join(filter(None, [", ".join(others), f"{listed(none)} in none" if none else ""]))
    open_ = len(groups) - len(decided)
    rest += f"; no verdict in {open_}" if open_ else ""
    if len(groups) == 1 and len(first) > 1:
        return f"{listed(first)} share the lead on {groups[0].title}", f"{rest}." if rest else ""
    return f"{listed(first)} {lead} {where}", f"{rest[:1].upper()}{rest[1:]}." if rest else ""


def leaders(panel: Panel) -> list[Name]:
    return [name for name, row in panel.pairs if row.against and row.against.leads]


def called(panel: Panel, name: Name) -> str:
    """Return as much of a name as tells it from the others of its panel."""
    return name.title if [each.title for each in panel.names].count(name.title) == 1 else name.words


def verdict(panel: Panel) -> str:
    """Return who leads a comparison, and who is next."""
    first = [called(panel, name) for name in leaders(panel)]
    if not first:
        return f"No verdict; {called(panel, panel.names[0])} was the fastest"
    if len(first) > 4:
        return f"{len(first)} of {len(panel.names)} share the lead"
    if len(first) > 1:
        return f"{listed(first)} share the lead"
    name, next_ = next((name, row.against) for name, row in panel.pairs if row.against and not row.against.leads)
    return f"{first[0]} leads; {called(panel, name)} is next with {percent(next_.ratio.value)}"


def speeds_of(report: Report, panel: Panel) -> Rows:
    """Return the speeds of a comparison in per cent of the fastest, with the intervals of the ratios."""
    scale = Scale(0.0, WIDEST, (0.0, 0.5, 1.0), (1.0,), "\u00a0%", written=lambda value: f"{value * 100:.0f}")
    entries = []
    for name, row in panel.pairs:
        assert row.against
        ratio, speed = row.against.ratio, number(row.speed)
        words = f"{speed} samples/s{bracketed(row.rate)}; "
        words += f"{share(ratio.value)} of the fastest{bracketed(ratio.scaled(100))}"
        kind = "lead" if row.against.leads else ""
        entries.append(report.entry(name, row, interval(scale, ratio), speed, words, percent(ratio.value), kind))
    return Rows(verdict(panel), panel.title, scale, entries, "samples/s", "speed in per cent of the fastest")


def matrix(report: Report) -> Markup:
    """Return all comparisons at a glance: a line a comparison, a column a framework."""
    frameworks = list(dict.fromkeys(name.title for panel in report.groups for name in panel.names))
    lines = []
    for panel in report.groups:
        sign = "● " if len(leaders(panel)) == 1 else "◐ "
        cells: list[Content] = [panel.title]
        for title in frameworks:
            row = next((row for name, row in panel.pairs if name.title == title), None)
            against = row.against if row else None
            cells.append(f"{sign if against.leads else ''}{percent(against.ratio.value)}" if against else "")
        lines.append(cells)
    heads = ["Comparison", *frameworks]
    words = "● leads, ◐ shares the lead; the fastest case of each framework, in % of the fastest."
    return joined([table("All comparisons", heads, Body(lines)), note(words)])


def cases(report: Report) -> Section:
    """Return the table of all cases, by comparison; beyond SHOWN the others are loaded when they are searched for."""
    count = len(report.rows)
    heads = "Case | samples/s! | 95 % interval- | of the fastest^ | 95 % interval- | ms a step-"
    heads += " | of peak-" * report.peaks + " | proof: error of its bound-"
    bodies, left = [], SHOWN
    for title, lines in _lines(report):
        if left > 0:
            bodies.append(Body(lines[:left], title))
        left -= len(lines)
    words = {"type": "search", "name": "q", "placeholder": "Filter: jax alexnet"}
    search = tag("input", aria_label="Filter the cases", aria_controls="listed", **words)
    said = tag("output", f"{count} shown" if count <= SHOWN else f"{SHOWN} of {count} shown")
    copy = tag("button", "Copy as CSV", type="button", data_copy="listed")
    pieces = 0 if report.single else -(-max(count - SHOWN, 0) // PIECE)
    form = tag("form", search, said, copy, role="search", data_pieces=pieces, data_count=count)
    head = tag("div", tag("h2", f"All {count} cases" if count > 1 else "The case"), form, class_="head")
    seen = {mark for row in report.rows for mark in row.marks} - report.shared_marks
    marks = [
        note(first, "; ".join(f"{mark}: {meaning(mark)}" for mark in sorted(several)), ".")
        for first, several in (("All cases are ", report.shared_marks), ("Marks. ", seen))
        if several
    ]
    return Section("cases", "", [head, table("All cases", heads, *bodies, id_="listed"), marks])


def _lines(report: Report) -> Iterator[tuple[str, list[Line]]]:
    for panel in by_group(report.rows):
        yield panel.title, [_line(report, name, row) for name, row in panel.pairs]


def _line(report: Report, name: Name, row: Row) -> Line:
    against, rate, proof = row.against, row.rate, row.proof
    proven: Content = ""
    if proof and (worst := proof.worst):
        of_bound = percent(worst.error / worst.tolerance) if worst.tolerance else scientific(worst.error)
        sign, kind = ("✓", "good") if proof.passed else ("✗", "bad")
        proven = [tag("span", sign, class_=kind), f" {of_bound}"]
    elif row.processes and not report.imported:
        proven = tag("span", "✗ none", class_="bad")
    within = ""
    if against:
        within = f"{against.ratio.low * 100:.0f} … {percent(against.ratio.high)}"
        within = "reference" if against.fastest == row.id else within
    cells: list[Content] = [report.head(name, row)]
    cells.append(number(rate.value) if rate else small(row.outcome if row.outcome != "ok" else "–"))
    cells.append(f"{number(rate.low)} … {number(rate.high)}" if rate and rate.scatters else "")
    cells += [percent(against.ratio.value) if against else "", within]
    cells.append(milliseconds(row.case.global_batch / rate.value) if rate else "")
    cells += [percent(row.utilisation) if row.utilisation else ""] * report.peaks
    return Line([*cells, proven], "lead" if against and against.leads else "", row.case.adapter)


def pieces(report: Report) -> Iterator[tuple[str, str]]:
    """Yield (name, script) of the table's lines beyond the first SHOWN."""
    if len(report.rows) <= SHOWN:
        return
    kinds = ["strong", "low", "led", "low", "low", *["low"] * report.peaks, "low"]
    flat = [(title, line) for title, lines in _lines(report) for line in lines][SHOWN:]
    for index, first in enumerate(range(0, len(flat), PIECE)):
        rows = []
        for title, line in flat[first : first + PIECE]:
            cells = [tag("td", cell, class_=kind) for cell, kind in zip(line.cells[1:], kinds, strict=True)]
            rows.append([title, line.kind, line.of, str(joined([tag("th", line.cells[0], scope="row"), cells]))])
        content = json.dumps(rows, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")
        yield f"cases-{index}.js", f"stagebench.cases({content});\n"


@dataclass(frozen=True)
class Progress:
    """Return how much of the run was measured."""

    records: int
    wanted: int
    outcomes: list[tuple[str, int]]
    given: str  # the time that the command gave it, as 20min; "" without one

    @property
    def complete(self) -> bool:
        """True if every process that could run has its record."""
        return self.records >= self.wanted


def progress_of(report: Report) -> Progress:
    """Return records against processes asked for, and the rows' outcomes, most frequent first."""
    rows = report.rows
    wanted = sum(row.case.sampling.processes for row in rows if row.processes or row.outcome == "not measured")
    there = sum(process.outcome != CANCELLED for row in rows for process in row.processes)
    command = report.folder.about.command
    words = [part for word in command for part in (word.split("=", 1) if word.startswith("--for=") else [word])]
    given = next((value for option, value in pairwise(words) if option == "--for"), "")
    return Progress(there, wanted, Counter(row.outcome for row in rows).most_common(), given)


def _trust(report: Report) -> Markup:
    """Return the line that says how far the title may be trusted."""
    progress, rows = progress_of(report), [row for row in report.rows if row.processes]
    items: list[Content] = []
    cases = f"{len(report.rows)} case{'' if len(report.rows) == 1 else 's'}"
    words = f"{cases}, imported {moment(report.folder.about.created)}"
    if not report.imported:
        failed = len(rows) - sum(bool(row.proof and row.proof.passed) for row in rows)
        sign = tag("i", "✗", class_="bad") if failed else tag("i", "✓", class_="good")
        proven = f"{failed} of {len(rows)} not proven" if failed else f"{len(rows)} of {len(rows)} cases proven"
        items += [[sign, tag("a", proven, href=report.to("proofs"))]] if rows else []
        counts = sorted({len(row.measured) for row in report.fast})
        if counts:
            most = range_of([str(count) for count in counts])
            intervals = tag("a", "95 % intervals", href=report.to("method"))
            items.append([tag("i", "±"), intervals, f" of {most} process{'' if most == '1' else 'es'}"])
        quick = "quick run, " if "quick" in report.shared_marks else ""
        words = f"{cases}, {quick}{progress.records} of {progress.wanted} processes"
        outcomes = ", ".join(f"{count} {outcome}" for outcome, count in progress.outcomes if outcome != "ok")
        words += f" ({outcomes})" if outcomes else ""
    items.append([tag("i", "◔", class_=None if progress.complete else "warn"), words])
    for name, host in list(report.folder.hosts().items())[:1]:
        gpus = f", {len(host.machine.gpus)} GPU{'s' * (len(host.machine.gpus) > 1)}" if host.machine.gpus else ""
        cores = f"{host.machine.cpu or name}, {host.cores or host.cores_installed or '?'} cores{gpus}"
        items.append([tag("i", "▣"), tag("a", cores, href=report.to("machine"))])
    return tag("ul", [tag("li", item) for item in items], class_="trust")


def _warnings(report: Report) -> list[Markup]:
    progress = progress_of(report)
    found: list[Markup] = []
    if report.imported:
        return found
    if not progress.complete:
        given = f"The time that the command gave, --for {progress.given}, is over"
        words = given if progress.given else "The run is incomplete"
        found.append(note(f"{words}: the same command measures the others."))
    undecided, every = sum(not leaders(panel) for panel in report.groups), len(report.groups)
    if undecided and progress.complete:
        where = f" in {undecided} of {every} comparisons" if undecided < every else ""
        more = [tag("code", word) for word in ("--until 3%", "processes = 5", "[sampling]")]
        found.append(
            note(f"No verdict{where}: add rounds with ", more[0], ", or set ", more[1], " under ", more[2], ".")
        )
    unused = unused_records(report.folder)
    return [*found, note(f"{unused}.")] if unused else found
