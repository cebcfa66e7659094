"""A run as its pages see it, and the parts that they are made of: sections, whose first one's title is the page's."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, Protocol, TypeVar

from markupsafe import Markup

from stagebench.reports.charts.html import Body, Cells, Content, folded, joined, mark, note, small, tag
from stagebench.reports.charts.html import Entry as Line
from stagebench.reports.charts.lines import Lines
from stagebench.reports.charts.rows import Entry, Rows, bar, linear, top
from stagebench.suite.analysis.comparability import DISQUALIFYING, meaning
from stagebench.suite.analysis.panels import SHOWN, Name, Panel, labels
from stagebench.suite.analysis.rows import Row
from stagebench.suite.analysis.standing import Standing
from stagebench.suite.analysis.stats import Interval, Spread
from stagebench.suite.analysis.wording import bracketed, listed, number
from stagebench.suite.contracts.case import Case
from stagebench.suite.plan.text import values_of
from stagebench.suite.predict.from_run import beside_measured
from stagebench.suite.predict.prediction import Answer
from stagebench.suite.results.run_folder import OF_THE_RUN
from stagebench.suite.results.stored import text_of
from stagebench.suite.text import without_codes

Chart = Rows | Lines
CASE = "case.html"  # shows the case that its address names
SPLIT = 40  # letters of a file name


class Section(NamedTuple):
    """A part of a page. Its title is its finding; `also` is the rest of it, `answers` are its sentences."""

    id: str
    title: str
    body: Content
    also: str = ""
    answers: Sequence[str] = ()


class Plan(NamedTuple):
    """The plan as given; empty where the run folder has lost it."""

    name: str
    title: str
    text: str


@dataclass
class Report(Standing):
    """A run, its rows, and the charts that were drawn of it, by file name."""

    places: Mapping[str, str] = field(default_factory=dict)  # section to page; {}: all of it is one page
    charts: dict[str, Chart] = field(default_factory=dict)

    @property
    def single(self) -> bool:
        return not self.places

    @cached_property
    def plan(self) -> Plan:
        """The run's plan.toml; one that cannot be parsed is still shown as text."""
        path = self.folder.path / "plan.toml"
        if not path.exists():
            return Plan("", "", "")
        text = without_codes(text_of(path, OF_THE_RUN).decode(errors="replace"))
        try:
            values = values_of(text)
        except ValueError:
            values = {}
        name, title = (without_codes(str(values.get(key, ""))) for key in ("name", "title"))
        return Plan(name, title, text)

    @cached_property
    def peaks(self) -> bool:
        """True if a part of the devices' measured peak is known of any row."""
        return any(row.utilisation for row in self.rows)

    @cached_property
    def texts(self) -> bool:
        """True if the samples of any row have several tokens."""
        return any(row.token_rate for row in self.rows)

    @cached_property
    def predicted(self) -> tuple[list[Answer], list[str]]:
        """(Predictions of larger placements from the smallest, reasons of trainings without)."""
        return ([], []) if self.imported else beside_measured(self.folder, self.fast[:SHOWN])

    def to(self, section: str) -> str:
        return f"{self.places.get(section, '')}#{section}"

    def case(self, row: Row) -> str:
        """Return the address of a case's page; "" on a page that is a file of its own."""
        return "" if self.single else f"{CASE}#{row.id}"

    def head(self, name: Name | str, row: Row | None = None, marked: bool = True) -> Markup:
        """Return the first cell of a table's line: a name, with a link to its case and its marks."""
        title, detail = name if isinstance(name, Name) else (name, "")
        link = tag("a", title, href=self.case(row)) if row and not self.single else title
        return joined([link, small(detail) if detail else None, self.marks(row) if row and marked else None])

    def bodies(
        self, panels: Iterable[Panel], cells: Callable[[Row], Sequence[Content]], marked: bool = True
    ) -> list[Body]:
        """Return a table's lines by panel; `cells` gives what follows a case's name."""
        bodies = []
        for panel in panels:
            named_rows = ((self.head(name, row, marked), row) for name, row in panel.pairs)
            lines = [Line([head, *cells(row)], of=row.case.adapter) for head, row in named_rows]
            bodies.append(Body(lines, panel.title, panel.common))
        return bodies

    def entry(
        self, name: Name, row: Row, track: Markup, value: str, words: str, share: str = "", kind: str = ""
    ) -> Entry:
        """Return a chart's row about a case."""
        return Entry(name.title, track, value, name.detail, share, kind, row.case.adapter, words, self.case(row))

    def bars(
        self,
        title: str,
        setting: str,
        drawn: Sequence[tuple[Name, Row, Interval, str]],
        unit: str = "samples/s",
        key: Mapping[str, str] | None = None,
        warning: str = "",
    ) -> Rows:
        """Return values with their intervals as bars from zero; the last of each is its colour, one of `key`."""
        scale, entries = linear(top(found for _, _, found, _ in drawn)), []
        for name, row, found, shade in drawn:
            value = number(found.value)
            words, kind = f"{value} {unit}{bracketed(found)}", "lead" * (shade == "lead")
            entries.append(self.entry(name, row, bar(scale, found, shade), value, words, kind=kind))
        shades = {shade for *_, shade in drawn}
        used = {shade: word for shade, word in (key or {}).items() if shade in shades}
        return Rows(title, setting, scale, entries, unit, unit, key=used, warning=warning)

    def marks(self, row: Row) -> Markup:
        words = [mark_ for mark_ in row.marks if mark_ not in self.shared_marks]
        return joined([mark(word, meaning(word), word in DISQUALIFYING) for word in words])

    def drawn(self, section: str, charts: Iterable[Chart | None]) -> Markup:
        """Return panels side by side. Each chart is also a file, whose name is its section and its setting."""
        figures = [chart.html(self._file(section, chart)) for chart in charts if chart]
        return tag("div", figures, class_="panels three" if len(figures) == 3 else "panels") if figures else Markup()

    def few(self, section: str, charts: Sequence[Chart], drawn: int, what: str = "charts") -> Cells:
        """Return the first `drawn` panels; the others are folded away."""
        rest = charts[drawn:]
        more = folded(f"{len(rest)} more {what}", self.drawn(section, rest)) if rest else None
        return [self.drawn(section, charts[:drawn]), more]

    def _file(self, section: str, chart: Chart) -> str:
        words = re.sub(r"[^\w.-]+", "-", f"{section}-{chart.setting}").strip("-.")[: 3 * SPLIT]
        taken = sum(name == words or name.startswith(f"{words}~") for name in self.charts)
        name = f"{words}~{taken + 1}" if taken else words
        self.charts[name] = chart
        return "" if self.single else f"charts/{name}.svg"

    def cut(self, found: Sequence[object], what: str = "cases") -> Markup | None:
        """Return the note that a table has only the first of many lines; None where it has all."""
        if len(found) <= SHOWN:
            return None
        every = [] if self.single else [" ", tag("a", "All cases", href=self.to("cases"))]
        return note(f"The first {SHOWN} of {len(found)} {what}, in the plan’s order.", every)


def tokens(report: Report, row: Row) -> Cells:
    """Return the cell of the column `tokens/s`, which a table has if `report.texts`."""
    return [number(row.token_rate.value) if row.token_rate else ""] * report.texts


Maker = Callable[[Report], Section | None]


class OfCase(Protocol):
    """A row, or several of one case."""

    @property
    def case(self) -> Case: ...


T = TypeVar("T", bound=OfCase)


def named(things: Iterable[T], **changes: object) -> list[tuple[Name, T]]:
    """Return each with a name that tells its case, after the changes, from the others'."""
    things = list(things)
    return list(zip(labels([one.case.on(**changes) for one in things]), things, strict=True))


def alike(least: Spread, others: Iterable[tuple[Spread | None, str]], what: str = "") -> str:
    """Return the names of what cannot be told from the least, in brackets; "" without any."""
    names = [name for found, name in others if found and least.overlaps(found)]
    return f" (no detectable difference from {what}{listed(names)})" if names else ""


def of_cases(count: int, every: int) -> str:
    """Return "3 of 5 cases", "Both cases", "All 5 cases"."""
    return f"{count} of {every} cases" if count < every else "Both cases" if every == 2 else f"All {every} cases"
