"""Charts of lines: curves, trade-offs, series over devices. Names are at their ends; a hidden table has the points."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import NamedTuple, TypeVar

from markupsafe import Markup

from stagebench.reports.charts.html import tag
from stagebench.reports.charts.rows import WIDTH, Figure, Scale, linear, logarithmic, nested, picture, round_words, text
from stagebench.suite.analysis.stats import Interval, Spread
from stagebench.suite.analysis.wording import number

POINTS = 300  # of a curve: the eye tells no more apart
SAID = 12  # points of a series in the hidden table
DASHES = 4  # patterns of grey lines
LABEL = 15  # pixels of height of a line's name
HEIGHT = 220

T = TypeVar("T")


class Line(NamedTuple):
    """A series. `low` and `high` are the ends of each point's spread; `kind`: `lead`, `rest`, `ideal`, `predicted`."""

    name: str
    x: Sequence[float]
    y: Sequence[float | None]
    low: Sequence[float | None] = ()
    high: Sequence[float | None] = ()
    kind: str = "rest"
    dots: bool = False

    @classmethod
    def of(
        cls,
        name: str,
        x: Sequence[float],
        found: Iterable[Spread | Interval | None],
        kind: str = "rest",
        most: float = inf,
    ) -> "Line":
        """Return values with their ends, none above `most` times its value; a gap for a value that is missing."""
        ends = [(one.value, one.low, min(one.high, most * one.value)) if one else (None,) * 3 for one in found]
        value, low, high = zip(*ends, strict=True) if ends else ((), (), ())
        return cls(name, x, value, low, high, kind, dots=True)

    @property
    def points(self) -> list[tuple[float, float]]:
        return [(x, y) for x, y in zip(self.x, self.y, strict=True) if y is not None]

    @property
    def said(self) -> str:
        """The points in words, a few of many."""
        ends = zip(self.low, self.high, strict=True) if self.low else [(None, None)] * len(self.x)
        words = [
            f"{number(x)}: {number(y)}" + (f" ({number(low)} … {number(high)})" if low not in (None, high) else "")
            for x, y, (low, high) in zip(self.x, self.y, ends, strict=True)
            if y is not None
        ]
        return "; ".join(thinned(words, SAID))


def led(lines: Sequence[Line], best: Callable[..., Line] = max) -> tuple[list[Line], Line]:
    """Return the lines and the one among them that leads: its last value is the `best`."""
    first = best(lines, key=lambda line: line.y[-1] or 0.0)
    found = [line._replace(kind="lead" if line is first else "rest") for line in lines]
    return found, first


def thinned(points: Sequence[T], most: int = POINTS) -> list[T]:
    """Return every n-th point of a long curve, `most` at most, the last one among them."""
    every = -(-len(points) // most) or 1
    return list(points[::-1][::every][::-1])


@dataclass(frozen=True)
class Lines(Figure):
    """A chart of series on the same axes. `log` names the logarithmic ones: `x`, `y`, `xy`."""

    lines: Sequence[Line]
    across: str
    up: str
    log: str = ""
    from_zero: bool = True
    ticks: Mapping[float, str] | Iterable[float] = ()  # of the abscissa; without any: round numbers

    def html(self, file: str = "") -> Markup:
        """Return the figure; `file` is the address of its picture."""
        x, y = self.scales()
        height = max(HEIGHT, LABEL * (len(self.lines) + 2))
        ends = self._ends(y, height)
        labels = [
            tag("span", name, style=f"top:{place}%", class_=f"end {kind}", title=name) for name, place, kind in ends
        ]
        ups = [tag("span", y.written(tick), style=f"bottom:{y.at(tick)}%", class_="up") for tick in y.ticks]
        ticks = self._ticks(x).items()
        acrosses = [tag("span", words, style=f"left:{x.at(tick)}%", class_="across") for tick, words in ticks]
        area = tag("div.area", self.drawn(), ups, acrosses, labels, aria_hidden="true", style=f"--h:{height}px")
        axes = tag("p.axes", tag("span", f"{self.up} ↑"), tag("span", f"{self.across} →"), aria_hidden="true")
        said = [tag("tr", tag("th", one.name or self.up, scope="row"), tag("td", one.said)) for one in self.lines]
        heads = tag("tr", tag("th", "series", scope="col"), tag("th", f"{self.across}: {self.up}", scope="col"))
        hidden = tag("table", tag("caption", self.title), tag("thead", heads), tag("tbody", said))
        return self.panel([axes, area, tag("div.vh", hidden)], file)

    def scales(self) -> tuple[Scale, Scale]:
        """Return the scales of both axes."""
        xs = [x for line in self.lines for x in line.x] or [1.0]
        ys = [y for line in self.lines for _, y in line.points] or [1.0]
        ys += [high for line in self.lines for high in line.high if high is not None]
        x = _scale(xs, "x" in self.log, False)
        return x, _scale(ys, "y" in self.log, self.from_zero)

    def _ticks(self, x: Scale) -> Mapping[float, str]:
        if isinstance(self.ticks, Mapping):
            return self.ticks
        return {tick: str(tick) for tick in sorted(set(self.ticks))} or {tick: x.written(tick) for tick in x.ticks}

    def drawn(self) -> Markup:
        """Return grid, lines and dots, without words; its places are per cent of both sides."""
        x, y = self.scales()
        marks = [f'<path class="grid" d="M0 {100 - y.at(tick):g}H100"/>' for tick in y.ticks]
        rest = 0
        for line in sorted(self.lines, key=lambda one: one.kind == "lead"):
            kind = f"{line.kind} d{rest % DASHES}" if line.kind == "rest" else line.kind
            rest += line.kind == "rest"
            places = [(x.at(at), round(100 - y.at(value), 2)) for at, value in line.points]
            d = "M" + "L".join(f"{at:g} {up:g}" for at, up in places)
            marks.append(f'<path class="line {kind}" d="{d}"/>' if places else "")
            if line.dots or len(places) == 1:
                marks.append(f'<path class="points {kind}" d="{"".join(f"M{at:g} {up:g}h0" for at, up in places)}"/>')
            spreads = zip(line.x, line.low, line.high, strict=True) if line.low else ()
            d = "".join(
                f"M{x.at(at):g} {100 - y.at(low):g}V{100 - y.at(high):g}"
                for at, low, high in spreads
                if low is not None and high is not None and low < high
            )
            marks.append(f'<path class="spread {kind}" d="{d}"/>' if d else "")
        return Markup(f'<svg viewBox="0 0 100 100" preserveAspectRatio="none">{"".join(marks)}</svg>')

    def _ends(self, y: Scale, height: float) -> list[tuple[str, float, str]]:
        """Return the names at the lines' ends in per cent from above, pushed apart where they would touch."""
        there = [(100 - y.at(line.points[-1][1]), line) for line in self.lines if line.points and line.name]
        there.sort(key=lambda each: each[0])
        gap, places, last = LABEL / height * 100, [], -100.0
        for index, (place, _) in enumerate(there):
            room = 100 - gap * (len(there) - 1 - index)
            last = min(max(place, last + gap), max(room, last + gap))
            places.append(last)
        return [(line.name, round(place, 1), line.kind) for place, (_, line) in zip(places, there, strict=True)]

    def svg(self) -> str:
        """Return the chart as a file of its own, in the light colours."""
        x, y = self.scales()
        left, above, width = 60, 72, WIDTH - 300
        height = max(HEIGHT, LABEL * (len(self.lines) + 2))
        parts = [text(0, 20, self.title, "title"), text(0, 40, self.setting, "muted")]
        parts += [text(0, 60, f"{self.up} ↑", "muted"), nested(self.drawn(), left, above, width, height)]
        for tick in y.ticks:
            parts.append(text(left - 8, above + height * (1 - y.at(tick) / 100) + 4, y.written(tick), "muted", "end"))
        for tick, words in self._ticks(x).items():
            parts.append(text(left + width * x.at(tick) / 100, above + height + 18, words, "muted", "middle"))
        for name, place, kind in self._ends(y, height):
            parts.append(f'<g class="{kind}">{text(left + width + 8, above + height * place / 100 + 4, name)}</g>')
        parts.append(text(left + width, above + height + 36, f"{self.across} →", "muted", "end"))
        return picture("".join(parts), above + height + 44)


def _scale(values: Sequence[float], log: bool, from_zero: bool) -> Scale:
    low, high = min(values), max(values)
    if log and low > 0:
        return logarithmic(low, high, base=2.0 if high / low < 1000 else 10.0)
    if from_zero or low == high:
        return linear(high) if high > 0 else Scale(low - 1, high + 1, (low,))
    step = linear(high - low).ticks[1]
    first, last = int(low // step), int(-(-high // step))
    return Scale(
        first * step, last * step, tuple(step * index for index in range(first, last + 1)), written=round_words
    )
