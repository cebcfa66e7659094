"""The results of a run in a terminal: the report's first screen in characters, or every case as a line.

Nothing is wider than the terminal, or than PIPED columns in a pipe or a file; no number is cut.
"""

import math
import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence

from stagebench.suite.analysis.comparability import FOREIGN
from stagebench.suite.analysis.compare_runs import SMALL, processes_needed, processes_noise
from stagebench.suite.analysis.latency import words_of
from stagebench.suite.analysis.panels import Name, Panel, by_group
from stagebench.suite.analysis.rows import Row
from stagebench.suite.analysis.standing import FEW, FIRST, UNDECIDED, WIDEST, Answer, Standing, learnt, verdict
from stagebench.suite.analysis.stats import Interval
from stagebench.suite.analysis.summary import summarise, unused_records
from stagebench.suite.analysis.wording import interval, milliseconds, number, percent
from stagebench.suite.cli.output import PIPED, say, say_wrapped
from stagebench.suite.errors import once_per_reason
from stagebench.suite.plugins import call, manager
from stagebench.suite.results.run_folder import RunFolder
from stagebench.suite.text import counted, without_codes

TRACK = 50  # columns, at most
NAME = (18, 44)  # columns of a name, at least and at most; a longer one is broken between words
KEY = "● leads or shares the lead · ○ slower · ─ 95 % interval · ┆ 0, 50, 100 %"
SIGNS = "● leads, ◐ shares the lead, in % of the fastest."
COLUMNS = ("samples/s", "95 % interval", "of fastest", "ms/step", "of peak", "J/sample", "proof")
PARTS_OF_START = ("loads", "builds", "compiles", "a step")
SPARED = ("J/sample", "of peak", "ms/step")  # left out, the first one first, where a terminal has no room


def print_results(folder: RunFolder, full: bool = False, reasons: bool = True) -> None:
    """Print who leads, and each comparison; with `full` all cases.

    With `reasons`, also why other cases have no result, each reason once.
    """
    standing = Standing(folder, summarise(folder))
    rows = standing.rows
    measured = [row for row in rows if row.processes or row.outcome == FOREIGN]
    answered = (found for found, _ in call(manager(), "stagebench_answer", standing=standing) if found)
    answer = next(answered, None) or standing.answer()
    if measured:
        _say_standing(standing, answer, measured, full)
    whys = {row.against.verdict for row in measured if row.against and ": " in row.against.verdict}
    for why in sorted(whys) if answer != UNDECIDED else ():
        say_wrapped(f"{why}; resume the run, or measure more processes")
    later = sum("another time" in row.marks for row in measured)
    if later:
        those = "1 row was" if later == 1 else f"{later} rows were"
        say_wrapped(f"{those} measured at another time than the others: compared as rows of two runs are, less sharply")
    told = [row for row in rows if reasons and row.outcome != FOREIGN and (row.reason or row.outcome != "ok")]
    for refused in once_per_reason(row.refused for row in told):
        say_wrapped(f"{refused.outcome}: {refused.label}{': ' if refused.reason else ''}{refused.reason}")
    if measured:
        _say_power(measured, folder.about.until)
    if note := unused_records(folder):
        say_wrapped(note)


def _say_standing(standing: Standing, answer: Answer, measured: Sequence[Row], full: bool) -> None:
    """Print the title, how far it may be trusted, the comparisons or all cases, and the marks that all share."""
    terminal = sys.stdout.isatty()
    width = min(shutil.get_terminal_size().columns, PIPED) if terminal else PIPED
    title, also = answer
    if terminal:
        from rich.console import Console
        from rich.text import Text

        Console(highlight=False).print(Text(_plain(title), style="bold"))
    else:
        say_wrapped(_plain(title))
    intervals = standing.processes()
    trust = [standing.proven()[1], f"95 % intervals of {intervals}" if intervals else "", standing.extent()]
    for line in filter(None, (also, " · ".join(filter(None, trust)))):
        say_wrapped(_plain(line))
    for line in _full(standing, measured, width) if full else _panels(standing, width):
        say(line)
    say("")
    if standing.shared_marks:
        say_wrapped(f"All cases are marked {', '.join(sorted(standing.shared_marks))}.")


def _plain(words: str) -> str:
    """Replace the spaces of pages, which some terminals draw as boxes; thousands have commas."""
    return without_codes(words).replace("\u202f", ",").replace("\u00a0", " ").replace("\u2009", " ")


def _panels(standing: Standing, width: int) -> Iterator[str]:
    """Yield the lines of the comparisons, then those of the other rows with a result."""
    panels = standing.groups[:FIRST]
    compared = {row.id for panel in standing.groups for row in panel.rows}
    rest = [row for row in standing.rows if row.id not in compared and (row.rates or learnt(row))]
    names = [name for panel in (*panels, *by_group(rest)) for name in panel.names]
    column = _name_width(names, width // 2)
    if panels:
        yield ""
        yield from textwrap.wrap(KEY, width)
    for panel in panels:
        yield from ("", *textwrap.wrap(_plain(verdict(panel)), width), *_comparison(panel, column, width))
    if len(standing.groups) > FIRST:
        yield from ("", f"{len(standing.groups) - FIRST} more comparisons: --full")
    if rest:
        yield ""
        if panels:
            yield "Not compared"
        yield from _others(standing, rest, column, width)


def _comparison(panel: Panel, column: int, width: int) -> Iterator[str]:
    """Yield what the rows share, and a line a row: name, interval, speed, share of the fastest."""
    shown = [(name, row, row.against) for name, row in panel.pairs if row.against]
    speeds = [_plain(number(row.speed)) for _, row, _ in shown]
    number_width = max(map(len, speeds))
    track = min(TRACK, width - column - number_width - len("  " * 3 + "100 %"))
    unit = "samples/s".rjust(column + track + 4 + number_width)
    title = _plain(panel.title)
    together = f"{title}{unit[len(title) :]}"
    fits = len(title) + 2 + len("samples/s") <= len(unit)
    yield from [together] if fits else [*textwrap.wrap(title, width), unit]
    for (name, _, against), speed in list(zip(shown, speeds, strict=True))[:FEW]:
        first, *more = _wrapped(name, column)
        cells = [first.ljust(column), _drawn(against.ratio, track, against.leads), speed.rjust(number_width)]
        yield f"{'  '.join(cells)}  {_plain(percent(against.ratio.value)):>5}"
        yield from more
    if len(shown) > FEW:
        yield f"{len(shown) - FEW} more: --full"


def _drawn(ratio: Interval, width: int, leads: bool) -> str:
    """Draw a ratio and its interval from 0 to WIDEST."""
    cells = [" "] * width

    def place(value: float) -> int:
        return min(max(round(value / WIDEST * (width - 1)), 0), width - 1)

    for tick in (0.0, 0.5, 1.0):
        cells[place(tick)] = "┆"
    if ratio.scatters:
        low, high = place(ratio.low), place(ratio.high)
        cells[low : high + 1] = "─" * (high + 1 - low)
        if ratio.high > WIDEST:
            cells[-1] = "›"  # noqa: RUF001
    cells[place(ratio.value)] = "●" if leads else "○"
    return "".join(cells)


def _others(standing: Standing, rows: Sequence[Row], column: int, width: int) -> Iterator[str]:
    """Yield a line a row: its speed, or how well it learnt, and why it is compared with nothing."""
    for count, panel in enumerate(by_group(rows)):
        if count == FIRST:
            yield f"{len(rows)} cases in all: --full"
            return
        yield from textwrap.wrap(_plain(panel.title), width)
        for name, row in panel.pairs[:FEW]:
            result = f"{number(row.speed)} samples/s" if row.rates else learnt(row)
            ends = f" ({interval(row.rate)})" if row.rate and row.rate.scatters else ""
            tokens = f"{number(row.token_rate.value)} tokens/s" if row.token_rate else ""
            efficiency = f"{percent(row.scaling.efficiency.value)} of ideal scaling" if row.scaling else ""
            kept = f"up to {row.kept.words} queries/s" if row.kept else ""
            parts = [f"{result}{ends}", kept, tokens, efficiency, *_own_marks(standing, row)]
            words = _plain(" · ".join(filter(None, parts)))
            names, texts = _wrapped(name, column), textwrap.wrap(words, width - column - 2)
            for index in range(max(len(names), len(texts))):
                left, right = (lines[index] if index < len(lines) else "" for lines in (names, texts))
                yield f"{left:{column}}  {right}".rstrip()
        if len(panel.rows) > FEW:
            yield f"{len(panel.rows) - FEW} more: --full"


def _own_marks(standing: Standing, row: Row) -> list[str]:
    return [mark for mark in row.marks if mark not in standing.shared_marks and mark != FOREIGN]


def _name_width(names: Sequence[Name], most: int) -> int:
    least, widest = NAME
    return min(max([least, *(len(_plain(name.words)) for name in names)]), widest, max(most, least))


def _wrapped(name: Name, width: int) -> list[str]:
    return textwrap.wrap(_plain(name.words), width, subsequent_indent="  ", break_on_hyphens=False) or [""]


def _full(standing: Standing, rows: Sequence[Row], width: int) -> Iterator[str]:
    """Yield every measured case by its setting: a line of figures, then its marks."""
    panels = by_group(rows)
    cells = {row.id: _cells(row) for row in rows}
    columns = [name for name in COLUMNS if any(cells[row.id][name] for row in rows)]
    column = _name_width([name for panel in panels for name in panel.names], width)
    least = min(column, NAME[0] + 8)
    while columns and (sizes := _sizes(columns, cells)) and width - sum(sizes) - 2 * len(sizes) < least:
        spared = next((name for name in SPARED if name in columns), None)
        if spared is None:
            break
        columns.remove(spared)
    column = min(column, max(width - sum(sizes) - 2 * len(sizes), NAME[0]))
    yield ""
    yield "  ".join(["case".ljust(column), *(name.rjust(size) for name, size in zip(columns, sizes, strict=True))])
    for panel in panels:
        yield from ("", *textwrap.wrap(_plain(panel.title), width))
        for name, row in panel.pairs:
            first, *more = _wrapped(name, column)
            figures = [cells[row.id][each].rjust(size) for each, size in zip(columns, sizes, strict=True)]
            yield "  ".join([first.ljust(column), *figures]).rstrip()
            yield from more
            words = [learnt(row), *_beside_speed(row), *_own_marks(standing, row)]
            line = _plain(", ".join(filter(None, words)))
            yield from textwrap.wrap(line, width, initial_indent="    ", subsequent_indent="    ")
    hidden = [name for name in COLUMNS if name not in columns and any(cells[row.id][name] for row in rows)]
    yield ""
    if standing.groups:
        yield SIGNS
    if hidden:
        yield f"In a wider terminal also: {', '.join(hidden)}."


def _beside_speed(row: Row) -> Iterator[str]:
    """Yield the parts of the time to the first step, the share of a step that waits for no input, and its load."""
    for part, seconds in zip(PARTS_OF_START, row.startup or (), strict=False):
        yield f"{part} {number(seconds)} s"
    if row.computing_share is not None:
        yield f"computes {percent(row.computing_share)} of a step"
    rule = row.case.serving
    if row.served and (at := row.served.at_bound(rule)):
        good = row.served.goodput(rule)[at.rate]
        words = f"up to {row.kept.words} queries/s" if row.kept else "at no rate"
        yield f"{words_of(rule.bound_share)} within {rule.bound_ms:g} ms {words}"
        yield f"{number(good)} of {number(at.rate)} queries/s right and in time"
        if "hop" in at.stages:
            yield f"hop to the server and back {milliseconds(at.stages['hop'])} ms"


def _sizes(columns: Sequence[str], cells: dict[str, dict[str, str]]) -> list[int]:
    return [max(len(name), *(len(line[name]) for line in cells.values())) for name in columns]


def _cells(row: Row) -> dict[str, str]:
    rate, against = row.rate, row.against
    cells = dict.fromkeys(COLUMNS, "")
    cells["samples/s"] = number(rate.value) if rate else row.outcome if row.outcome != "ok" else ""
    cells["proof"] = ("ok" if row.proof.passed else "FAILED") if row.proof else "none"
    if row.outcome == FOREIGN:
        cells["proof"] = ""
    if rate:
        cells["95 % interval"] = interval(rate).replace("interval ", "") if rate.scatters else ""
        cells["ms/step"] = milliseconds(row.case.global_batch / rate.value)
    if against:
        sign = "" if not against.leads else "● " if against.verdict == "leads" else "◐ "
        cells["of fastest"] = f"{sign}{percent(against.ratio.value)}"
    cells["of peak"] = percent(row.utilisation) if row.utilisation else ""
    cells["J/sample"] = number(row.joules_per_sample) if row.joules_per_sample else ""
    return {name: _plain(words) for name, words in cells.items()}


def _say_power(rows: Sequence[Row], until: float | None) -> None:
    """Say how many processes a comparison with another run needs, if a case has fewer; `until` is the run's rule."""
    change = until if until and until > 0 else SMALL
    noises = [(row, processes_noise(row.judged_by)) for row in rows if row.judged_by and row.sound]
    needed = [(row, processes_needed(noise, change)) for row, noise in noises if noise]
    few = [(row, count) for row, count in needed if count is None or count > len(row.measured)]
    if few:
        row, most = max(few, key=lambda row_count: row_count[1] or math.inf)
        many = f"{most} processes" if most else "more processes than is practical"
        seen = f"to see a change of {100 * change:g}% in another run"
        say_wrapped(f"{counted(len(few), 'case')}: too few processes {seen}; {row.case.label} needs {many}")
