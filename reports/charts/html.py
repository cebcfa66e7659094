"""HTML from Python: elements whose text is escaped, and the tables of all pages."""

from collections.abc import Callable, Iterable, Sequence
from functools import cache, lru_cache
from importlib import resources
from typing import Any, NamedTuple

from markupsafe import Markup, escape

from stagebench.suite.analysis.budget import Difference
from stagebench.suite.analysis.stats import Interval, Spread
from stagebench.suite.analysis.wording import UNKNOWN, interval, milliseconds, number

Content = Any  # text, which is escaped; Markup, which is not; a sequence of both; None for nothing
Cells = list[Content]


def tag(kind: str, /, *children: Content, **attributes: object) -> Markup:
    """Return an element, with classes as in "p.note". A trailing `_` of an attribute is dropped, others are hyphens."""
    kind, _, classes = kind.partition(".")
    written = f' class="{classes.replace(".", " ")}"' if classes else ""
    for key, value in attributes.items():
        if value is not None and value is not False:
            key = key.rstrip("_").replace("_", "-")
            written += f" {key}" if value is True else f' {key}="{escape(value)}"'
    ends = "" if kind in ("input", "link") else f"{joined(children)}</{kind}>"
    return Markup(f"<{kind}{written}>{ends}")


def joined(children: Iterable[Content]) -> Markup:
    """Return the children one after the other."""
    parts: list[str] = []
    for child in children:
        if child.__class__ is Markup:
            parts.append(child)
        elif child.__class__ is str:
            parts.append(escaped(child))
        elif isinstance(child, list | tuple):
            parts.append(joined(child))
        elif child is not None:
            parts.append(escape(child))
    return Markup("".join(parts))


@lru_cache(maxsize=1 << 14)
def escaped(text: str) -> str:
    """Return escaped text; never call it with Markup, which the cache would take for the equal text."""
    return str(escape(text))


@cache
def asset(name: str) -> str:
    """Return the text of a file of `static`."""
    return (resources.files("stagebench.reports") / "static" / name).read_text()


def small(*words: Content) -> Markup:
    return tag("small", *words)


def note(*words: Content) -> Markup:
    return tag("p.note", *words)


def listing(items: Iterable[Content], kind: str = "ul") -> Markup:
    """Return a list; nothing without an item."""
    items = [tag("li", item) for item in items]
    return tag(kind, items) if items else Markup()


def folded(words: Content, *content: Content, open_: bool = False) -> Markup:
    return tag("details", tag("summary", words), *content, open=open_)


KINDS = {"!": "strong", "<": "words", "-": "low", "^": "led"}  # classes of cells, by a sign behind their heading


class Entry(NamedTuple):
    """A line of a table: its name first. `kind` is its class; `of` the framework that it is highlighted with."""

    cells: Sequence[Content]
    kind: str = ""
    of: str = ""


def below_title(content: Content) -> Markup:
    """Return charts whose headings are the next level below the page's title."""
    return Markup(str(joined([content])).replace("<h3", "<h2").replace("</h3>", "</h2>"))


class Body(NamedTuple):
    """Lines below one heading; `common` is what they share."""

    lines: Iterable[Entry | Sequence[Content]]
    title: Content = ""
    common: Content = ""


def table(
    label: str, heads: str | Sequence[str], *bodies: Body | Sequence[Cells], kind: str = "list", id_: str = ""
) -> Markup:
    """Return a table that scrolls alone where a screen is narrow; `label` names it. A body may be its lines alone.

    `heads`: "Case | samples/s! | verdict<"; the signs behind them are those of KINDS.
    """
    titles = heads.split(" | ") if isinstance(heads, str) else heads
    kinds = [KINDS.get(title[-1:]) for title in titles]
    titles = [title[:-1] if kind else title for title, kind in zip(titles, kinds, strict=True)]
    first = [tag("th", title, scope="col", class_=kind) for title, kind in zip(titles, kinds, strict=True)]
    parts = [tag("thead", tag("tr", first))]
    for body in (body if isinstance(body, Body) else Body(body) for body in bodies):
        lines = [_line(line if isinstance(line, Entry) else Entry(line), kinds) for line in body.lines]
        if body.title:
            common = small(" ", body.common) if body.common else None
            title = tag("th", tag("span", body.title), common, scope="rowgroup", colspan=len(kinds))
            lines.insert(0, tag("tr.group", title))
        parts.append(tag("tbody", lines))
    whole = tag("table", parts, class_=kind, id=id_ or None)
    return tag("div.scroll", whole, tabindex=0, role="region", aria_label=label)


def _line(line: Entry, kinds: Sequence[str | None]) -> Markup:
    row = [tag("th", line.cells[0], scope="row")]
    row += [tag("td", cell, class_=kind) for cell, kind in zip(line.cells[1:], kinds[1:], strict=True)]
    return tag("tr", row, class_=line.kind or None, data_of=line.of or None)


DEEPEST = 45  # per cent of the colour, at most: the number in front is read in both schemes


def heat(label: str, heads: Sequence[Content], lines: Iterable[tuple[Content, Sequence[tuple[str, float]]]]) -> Markup:
    """Return a table whose cells are words and their depth, 0 to 1: the deeper, the darker."""
    rows = []
    for name, cells in lines:
        drawn = [tag("td", words, style=f"--depth:{DEEPEST * depth:.0f}%" if depth else None) for words, depth in cells]
        rows.append(tag("tr", tag("th", name, scope="row"), drawn))
    head = tag("thead", tag("tr", [tag("th", each, scope="col") for each in heads]))
    return tag("div.scroll", tag("table.heat", head, tag("tbody", rows)), tabindex=0, role="region", aria_label=label)


def measured(found: Interval | None, written: Callable[[float | None], str] = number) -> Markup:
    """Return a value, and its interval below it."""
    ends = small(interval(found, written)) if found and found.scatters else None
    return joined([written(found.value if found else None), ends])


def differing(found: Difference | None, of: str = "rounds") -> Markup | None:
    """Return the interval of a difference in ms; `of`: the source of a lone process's interval."""
    if found is None:
        return None
    lone = f" ({of} of one process)" if found.processes == 1 else ""
    return small(f"{milliseconds(found.low)} … {milliseconds(found.high)}{lone}")


def spread(found: Spread | None, written: Callable[[float | None], str] = number) -> Markup:
    """Return a median, and its least and its most below it."""
    if found is None:
        return escape(UNKNOWN)
    ends = small(f"{written(found.low)} … {written(found.high)}") if found.low < found.high else None
    return joined([written(found.value), ends])


def mark(word: str, meaning: str, bad: bool = False) -> Markup:
    return tag("span", word, class_="mark bad" if bad else "mark", title=meaning)
