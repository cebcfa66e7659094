"""The shape of every benchmark's log: runs one after the other, each of them heading lines followed by result lines.

A log may join several runs, of one program or of several, and each line may follow what mpirun, srun, a clock or a CI
system puts before it: patterns are searched in the line, not matched from its first character.
"""

import re
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from stagebench.suite.contracts.case import Case, Placement
from stagebench.suite.errors import RequestError
from stagebench.suite.files import disk
from stagebench.suite.results.foreign import UNKNOWN, Exchange, Origin, Speed
from stagebench.suite.worker.case_parts import Sampling
from stagebench.suite.worker.pass_kinds import NATIVE

LARGEST = 1 << 26  # bytes of an output; more was printed by something else
LONGEST = 4096  # characters of a line that can be a result's
COLOURS = r"\x1b\[[0-9;]*[A-Za-z]"  # and GitLab's codes that erase a line
NUMBER = r"\d+(?:\.\d*)?(?:[eE][+-]?\d+)?"


class Skipped(NamedTuple):
    """A run that the reader understands, but whose figure is none that stagebench has."""

    line: int
    words: str


Result = Speed | Exchange


@dataclass(frozen=True)
class Printed:
    """A file of a program's output."""

    path: Path
    text: str
    framework: str | None = None  # as the person says, where the program does not

    def matches(self, pattern: str | re.Pattern[str]) -> Iterator[tuple[int, re.Match[str]]]:
        """Yield the lines, from 1, in which a pattern is found."""
        for number, line in enumerate(self.text.split("\n"), 1):
            if len(line) <= LONGEST and (found := re.search(pattern, re.sub(COLOURS, "", line).rstrip())):
                yield number, found

    def refused(self, why: str, line: int | None = None) -> RequestError:
        """Return the error of this file, or of one of its lines, to be raised."""
        return RequestError(f"{self.path}: {f'line {line}: ' if line else ''}{why}")

    def origin(self, program: str, line: int, run: int) -> Origin:
        return Origin(program=program, file=self.path.name, line=line, run=run)


def printed_in(path: Path, framework: str | None = None) -> Printed:
    """Read the file's text; RequestError for what is no file of a benchmark's size."""
    remedy = "name what a benchmark printed"
    with disk(f"cannot read {path}", remedy, RequestError):
        if path.exists() and not path.is_file():  # reading from a pipe would never end
            raise RequestError(f"{path} is no file; {remedy}")
        size = path.stat().st_size
        if size > LARGEST:
            raise RequestError(f"{path} has {size} bytes, more than {LARGEST}; {remedy}, without the rest")
        wide = path.read_bytes()[:2] in (BOM_UTF16_BE, BOM_UTF16_LE)  # as PowerShell and spreadsheets write
        return Printed(path, path.read_text("utf-16" if wide else "utf-8-sig", errors="replace"), framework)


class Line(NamedTuple):
    """A line that a pattern was found in."""

    number: int  # from 1
    kind: str  # the pattern's name
    values: tuple[str | None, ...]  # the pattern's groups


@dataclass
class Section:
    """A run of a program."""

    printed: Printed
    heading: list[Line] = field(default_factory=list)
    results: list[Line] = field(default_factory=list)

    @property
    def line(self) -> int:
        """The first line, from 1."""
        return (self.heading or self.results)[0].number

    def of(self, kind: str) -> list[Line]:
        return [line for line in (*self.heading, *self.results) if line.kind == kind]

    def value(self, kind: str) -> str | None:
        """Return the value that the heading gives `kind`; RequestError if two lines give two values."""
        lines = self.of(kind)
        for line in lines[1:]:
            if line.values != lines[0].values:
                why = (
                    f"{line.values[0]}, and line {lines[0].number} has {lines[0].values[0]}: runs were printed at once"
                )
                raise self.printed.refused(f"{why}; import the output of each by itself", line.number)
        return lines[0].values[0] if lines else None


def sections(
    printed: Printed, heading: Mapping[str, str], results: Mapping[str, str], opens: str, before: str | None = None
) -> Iterator[Section]:
    """Yield the runs that have results. `heading` and `results` are patterns by name, each with one group or more.

    A heading line after a result begins the next run, as does the heading line `opens` where it comes again: the run
    before it ended without a result, or is another process of this one. The heading line `before` may precede `opens`.
    """
    names = {**heading, **results}
    pattern = re.compile("|".join(f"(?P<{name}>{one})" for name, one in names.items()))
    counts = {name: re.compile(one).groups for name, one in names.items()}
    section = Section(printed)
    for number, found in printed.matches(pattern):
        kind = str(found.lastgroup)
        first = pattern.groupindex[kind]
        line = Line(number, kind, found.groups()[first : first + counts[kind]])
        if kind in results:
            section.results.append(line)
            continue
        if section.results:
            yield section
            section = Section(printed)
        elif kind == opens and section.of(opens):
            last = max(other.number for other in section.heading if other.kind != before)
            section = Section(printed, [other for other in section.heading if other.number > last])
        section.heading.append(line)
    if section.results:
        yield section


def case_of(adapter: str, strategy: str, workload: str, place: Placement, batch: int, **more: Any) -> Case:
    """Return a case of which a program said this much; `more` are further fields."""
    known = {"precision": UNKNOWN, "optimiser": UNKNOWN, "tuning": UNKNOWN, "passes": (NATIVE,), **more}
    return Case(adapter, strategy, workload, place, batch, sampling=Sampling(processes=1), **known)
