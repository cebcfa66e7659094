"""The first of many cases: what a table or a chart with a line for each case has of them."""

from collections.abc import Iterable
from dataclasses import dataclass

from suite.analysis.rows import Row

SHOWN = 300  # more lines nobody reads, and a browser draws them slowly; the table of all cases has every one


@dataclass(frozen=True)
class Shown:
    """The first rows in the plan's order, of so many; where there are more, the section says so (`cut` in macros)."""

    rows: list[Row]
    of: int


def shown(rows: Iterable[Row]) -> Shown:
    every = list(rows)
    return Shown(every[:SHOWN], len(every))
