"""Charts of rows: a name at the left, a track in the middle, a number at the right, tracks on one scale.

A chart is an HTML table, and each track an SVG whose places are per cent of its width: it fits a phone and a wall,
prints, and needs no script. Colours are classes of `charts.css`. The same tracks make a file of their own (`Rows.svg`).
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cache, lru_cache
from itertools import count
from math import ceil, floor, log10
from typing import NamedTuple

from markupsafe import Markup

from stagebench.reports.charts.html import asset, note, small, tag
from stagebench.suite.analysis.stats import Interval
from stagebench.suite.analysis.wording import number

STAGES = ("io", "h2d", "forward", "backward", "bubble", "communication", "update")
THIN = 2  # per cent of a track: the outline of a narrower bar would hide it
BAR = 14  # pixels
BEYOND = 1.6  # times the largest value: an interval that knows nothing makes no scale
FIRST = 8  # rows; the others are folded away
HATCH = Markup(
    '<pattern id="hatch" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<path d="M0 0V5" stroke-width="3"/></pattern>'
)


class Scale(NamedTuple):
    """Places in per cent of a track. `ticks` have grid lines, `strong` darker ones; `unit` follows the last tick."""

    low: float
    high: float
    ticks: tuple[float, ...]
    strong: tuple[float, ...] = ()
    unit: str = ""
    log: bool = False
    written: Callable[[float], str] = lambda value: f"{value:g}"

    def at(self, value: float) -> float:
        """Return the place of a value; the nearest end for one beyond the scale."""
        low, high = (log10(end) if self.log else end for end in (self.low, self.high))
        here = log10(max(value, self.low)) if self.log else value
        return round(min(max((here - low) / (high - low or 1.0), 0.0), 1.0) * 100, 2)


def linear(high: float, unit: str = "", strong: tuple[float, ...] = ()) -> Scale:
    """Return a scale from zero to just beyond `high`, with round ticks, three steps of them at most."""
    high = max(high, *strong, 1e-12)
    powers = (10.0**power for power in count(floor(log10(high)) - 2))
    step = next(base * power for power in powers for base in (1, 2, 5) if high / (base * power) <= 3)
    ticks = tuple(step * index for index in range(floor(high * 1.02 / step + 1e-9) + 1))
    return Scale(0.0, high * 1.02, ticks, strong, unit, written=round_words)


def round_words(value: float) -> str:
    return number(value) if value >= 1000 else f"{value:g}"


def logarithmic(low: float, high: float, unit: str = "", base: float = 10.0, strong: tuple[float, ...] = ()) -> Scale:
    """Return a scale of whole powers of `base` around the values, which are above zero."""
    first, last = floor(log10(low) / log10(base) + 1e-9), ceil(log10(high) / log10(base) - 1e-9)
    step = max(1, ceil((last - first) / 6))
    powers = range(first, max(last, first + 1) + 1)
    return Scale(base**first, base ** powers[-1], tuple(base**power for power in powers[::step]), strong, unit, True)


def top(values: Iterable[Interval]) -> float:
    """Return the end of an axis of intervals: no value and no end that tells lies beyond."""
    known = list(values)
    most = max((one.value for one in known), default=1.0)
    return max([most, *(min(one.high, BEYOND * most) for one in known)])


def interval(scale: Scale, found: Interval) -> Markup:
    """Return a dot on its interval, with an arrow to an end beyond the scale."""
    dot = f'<circle cx="{scale.at(found.value)}%" cy="50%" r="4.5"/>'
    return track(scale, _ends(scale, found, "ci") + dot + _beyond(scale, found.high, "›"))


def bar(scale: Scale, found: Interval, kind: str = "rest", second: float | None = None) -> Markup:
    """Return a bar from zero with its interval; `second` is a value that a diamond marks."""
    marks = _bar(scale, 0.0, found.value, kind) + _ends(scale, found, "whisker")
    if second is not None:
        marks += f'<text class="diamond" x="{scale.at(second)}%" y="50%" dy=".36em" text-anchor="middle">◆</text>'
    return track(scale, marks + _beyond(scale, found.high, "›"))


def stack(scale: Scale, parts: Mapping[str, float | None], whole: float | None = None) -> Markup:
    """Return parts side by side from zero. A mark is at the whole: parts beyond it are paler, a rest is hatched."""
    marks, end = "", 0.0
    for name, seconds in parts.items():
        marks += _bar(scale, end, end + max(seconds or 0.0, 0.0), name)
        end += max(seconds or 0.0, 0.0)
    if whole is not None:
        marks += _bar(scale, whole, end, "saved") if end > whole else _bar(scale, end, whole, "other")
        marks += f'<line class="whole" x1="{scale.at(whole)}%" x2="{scale.at(whole)}%" y1="12%" y2="88%"/>'
    return track(scale, marks + _beyond(scale, end, "»"))


def box(scale: Scale, ends: Sequence[float], outliers: Iterable[float] = ()) -> Markup:
    """Return a box plot of (least, quartile, median, quartile, most), and its outliers as dots."""
    least, first, middle, third, most = map(scale.at, ends)
    marks = f'<line class="whisker" x1="{least}%" x2="{most}%" y1="50%" y2="50%"/>'
    marks += (
        f'<rect class="box" x="{first}%" width="{max(round(third - first, 2), 0.3)}%" '
        f'y="50%" height="{BAR}" transform="translate(0 -{BAR / 2:g})"/>'
    )
    marks += f'<line class="whole" x1="{middle}%" x2="{middle}%" y1="22%" y2="78%"/>'
    return track(scale, marks + _dots(scale, outliers))


def strip(scale: Scale, values: Iterable[float]) -> Markup:
    """Return a dot a value."""
    return track(scale, _dots(scale, values))


def cell_bar(share: float, stage: str) -> Markup:
    """Return the bar behind a table's number: `share` of the longest."""
    return Markup(
        f'<svg aria-hidden="true"><rect class="{stage}" '
        f'width="{min(max(share, 0), 1) * 100:.1f}%" height="100%"/></svg>'
    )


def track(scale: Scale, marks: str) -> Markup:
    """Return a track: its scale's grid, and marks on it."""
    lines = dict.fromkeys((*scale.ticks, *scale.strong))
    grid = "".join(
        f'<line class="{"strong" if tick in scale.strong else "grid"}" '
        f'x1="{scale.at(tick)}%" x2="{scale.at(tick)}%" y2="100%"/>'
        for tick in lines
    )
    return Markup(f'<svg aria-hidden="true">{grid}{marks}</svg>')


def _dots(scale: Scale, values: Iterable[float]) -> str:
    places = sorted({round(scale.at(value), 1) for value in values})  # no eye tells closer ones apart
    return "".join(f'<circle class="dot" cx="{place:g}%" cy="50%" r="2.5"/>' for place in places)


def _bar(scale: Scale, start: float, end: float, kind: str) -> str:
    left, width = scale.at(start), round(scale.at(end) - scale.at(start), 2)
    if width <= 0:
        return ""
    thin = " thin" if width < THIN else ""
    return (
        f'<rect class="{kind}{thin}" x="{left}%" width="{width}%" '
        f'y="50%" height="{BAR}" transform="translate(0 -{BAR / 2:g})"/>'
    )


def _ends(scale: Scale, found: Interval, kind: str) -> str:
    ends = f'x1="{scale.at(found.low)}%" x2="{scale.at(found.high)}%"'
    return f'<line class="{kind}" {ends} y1="50%" y2="50%"/>' if found.scatters else ""


def _beyond(scale: Scale, end: float, sign: str) -> str:
    words = f'<text class="beyond" x="100%" y="50%" dy=".35em" text-anchor="end">{sign}</text>'
    return words if end > scale.high * 1.001 else ""


def swatch(kind: str) -> Markup:
    """Return a colour for a key, as SVG, so that it prints; `interval` and `mark` are drawn as in tracks."""
    if kind == "mark":
        return Markup('<svg class="swatch" aria-hidden="true"><line class="whole" x1="50%" x2="50%" y2="100%"/></svg>')
    if kind in ("lead", "slower"):
        inner = '<line class="ci" x2="100%" y1="50%" y2="50%"/><circle cx="50%" cy="50%" r="4.5"/>'
        return Markup(f'<svg class="sample {kind}" aria-hidden="true">{inner}</svg>')
    return Markup(f'<svg class="swatch" aria-hidden="true"><rect class="{kind}" width="100%" height="100%"/></svg>')


def key(kinds: Mapping[str, str], *more: object) -> Markup:
    """Return a legend: words by the class of what they name."""
    return tag("p.key", [tag("span", swatch(kind), words) for kind, words in kinds.items()], *more)


class Entry(NamedTuple):
    """A row. `kind`: `lead`, `unclear` or nothing; `of`: its framework; `words` tell what its track draws."""

    name: str
    track: Markup
    value: str
    detail: str = ""
    share: str = ""
    kind: str = ""
    of: str = ""
    words: str = ""
    link: str = ""


@dataclass(frozen=True)
class Figure:
    """A panel: its headline, and what its chart is about."""

    title: str
    setting: str
    _: KW_ONLY
    key: Mapping[str, str] | None = None
    note: str = ""
    more: tuple[str, str] | None = None  # words, address
    warning: str = ""

    def panel(self, parts: Sequence[Markup], file: str) -> Markup:
        """Return the panel around the parts of a chart."""
        svg = tag("a", "SVG", href=file, class_="tool", aria_label=f"SVG: {self.setting}", download=True)
        tools = [svg] if file else []
        if self.more:
            tools.append(tag("a", f"{self.more[0]} →", href=self.more[1]))
        warned = tag("span.mark.bad", self.warning) if self.warning else None
        setting = tag("p", tag("span", self.setting, title=self.setting), warned, tools)
        below = [key(self.key) if self.key else None, note(self.note) if self.note else None]
        return tag("figure.panel", tag("figcaption", tag("h3", self.title), setting), parts, below)


@dataclass(frozen=True)
class Rows(Figure):
    """A chart: its rows, and the words above its tracks and its numbers."""

    scale: Scale
    entries: Sequence[Entry]
    unit: str
    axis: str  # what the tracks show, for a reader who does not see them

    def html(self, file: str = "") -> Markup:
        """Return the figure; `file` is the address of its picture."""
        shares = any(one.share for one in self.entries)
        heads = [tag("td"), tag("th", self._axis(), tag("span.vh", self.axis), scope="col", class_="track")]
        heads.append(tag("th", self.unit, scope="col", class_="value"))
        if shares:
            heads.append(tag("th", tag("span.vh", "of the fastest"), scope="col", class_="share"))
        lines = [_line(one, shares) for one in self.entries]
        head = tag("thead", tag("tr", heads))
        parts = [tag("table.plot", head, tag("tbody", lines[:FIRST]))]
        if len(lines) > FIRST:
            rest = tag("table.plot", tag("tbody", lines[FIRST:]))
            parts.append(tag("details", tag("summary", f"{len(lines) - FIRST} more"), rest))
        return self.panel(parts, file)

    def _axis(self) -> Markup:
        words = []
        for index, tick in enumerate(self.scale.ticks):
            place = self.scale.at(tick)
            anchor = "start" if place < 4 else "end" if place > 92 else "middle"
            unit = self.scale.unit if index == len(self.scale.ticks) - 1 else ""
            words.append(f'<text x="{place}%" y="12" text-anchor="{anchor}">{self.scale.written(tick)}{unit}</text>')
        return Markup(f'<svg class="axis" aria-hidden="true">{"".join(words)}</svg>')

    def svg(self) -> str:
        """Return the chart as a file of its own, in the light colours."""
        name, middle, row = 260, 420, 28
        parts = [text(0, 20, self.title, "title"), text(0, 40, self.setting, "muted")]
        parts += [nested(self._axis(), name, 48, middle, 18), text(WIDTH, 60, self.unit, "muted", "end")]
        y = 68
        for one in self.entries:
            parts.append(f'<g class="{one.kind}">')
            words = " ".join(filter(None, (one.name, one.detail)))
            parts += [text(0, y + 19, words), nested(one.track, name, y, middle, row)]
            value = "  ".join(filter(None, (one.value, one.share)))
            parts += [text(WIDTH, y + 19, value, "", "end"), "</g>"]
            y += row
        x = name
        for kind, words in (self.key or {}).items():
            parts += [nested(swatch(kind), x, y + 8, 14, 12), text(x + 20, y + 19, words, "muted")]
            x += 40 + 7 * len(words)
        return picture("".join(parts), y + 32)


@lru_cache(maxsize=1 << 12)
def _line(entry: Entry, shares: bool) -> Markup:
    """Return a row; the pages of a comparison's cases repeat it."""
    name = tag("a", entry.name, href=entry.link) if entry.link else entry.name
    cells = [tag("th", name, [" ", small(entry.detail)] if entry.detail else None, scope="row")]
    cells.append(tag("td.track", entry.track, tag("span.tip", entry.words) if entry.words else None))
    cells += [tag("td.value", entry.value), *[tag("td.share", entry.share)] * shares]
    return tag("tr", cells, data_of=entry.of or None, class_=entry.kind or None)


WIDTH = 780  # of a picture, in pixels


def nested(drawn: str, x: float, y: float, width: float, height: float) -> str:
    """Return a track as a part of a picture."""
    return re.sub("<svg", f'<svg x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"', drawn, count=1)


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    return str(tag("text", words, x=f"{x:g}", y=f"{y:g}", class_=kind or None, text_anchor=anchor))


def picture(drawn: str, height: float) -> str:
    """Return an SVG file: its colours are values, since not every program reads variables."""
    size = f'width="{WIDTH}" height="{height:g}" viewBox="0 0 {WIDTH} {height:g}"'
    defined = f"<style>{_style()}</style><defs>{HATCH}</defs>"
    page = '<rect class="page" width="100%" height="100%"/>'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{defined}{page}{drawn}</svg>\n'


@cache
def _style() -> str:
    source = asset("charts.css")
    light = dict(re.findall(r"(--[\w-]+): ([^;]+);", source.partition("}")[0]))
    drawing = source.partition("/* Drawing */")[2]
    return re.sub(r"var\((--[\w-]+)\)", lambda found: light[found[1]], drawing) + "text{font:13px system-ui,sans-serif}"
