"""The standing of a run: who leads its comparisons and how far that may be trusted, as pages and terminal say it."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from stagebench.suite.analysis.comparability import DISQUALIFYING
from stagebench.suite.analysis.panels import Name, Panel, by_group
from stagebench.suite.analysis.rows import Row
from stagebench.suite.analysis.wording import listed, moment, number, percent, range_of
from stagebench.suite.results.foreign import imported
from stagebench.suite.results.records import CANCELLED
from stagebench.suite.results.run_folder import RunFolder
from stagebench.suite.text import counted

FIRST = 12  # comparisons that are drawn
FEW = 8  # rows of a comparison that are not folded away
WIDEST = 1.25  # times the leader: the end of a track; intervals may reach beyond it
Answer = tuple[str, str]  # a title, and the rest of it
UNDECIDED: Answer = (
    "No verdict yet",
    "A verdict needs two rounds or more, each with a process of every case: resume the run, or measure more processes.",
)


@dataclass(frozen=True)
class Progress:
    """The measured part of a run."""

    records: int
    wanted: int
    outcomes: list[tuple[str, int]]  # most frequent first
    given: str  # the time that the command gave it, as 20min; "" without one

    @property
    def complete(self) -> bool:
        """True if every process that could run has its record."""
        return self.records >= self.wanted


@dataclass
class Standing:
    """A run and its rows."""

    folder: RunFolder
    rows: list[Row]

    @property
    def imported(self) -> bool:
        return self.folder.about.imported

    @cached_property
    def fast(self) -> list[Row]:
        """The rows with a speed."""
        return [row for row in self.rows if row.rates]

    @cached_property
    def groups(self) -> list[Panel]:
        """The comparisons: groups of two or more rows that may be compared."""
        return by_group(row for row in self.rows if row.against)

    @cached_property
    def shared_marks(self) -> set[str]:
        """The marks of every row with a speed, which are said once."""
        marks = [set(row.marks) for row in self.fast]
        return set.intersection(*marks) - set(DISQUALIFYING) if marks else set()

    @cached_property
    def progress(self) -> Progress:
        """The records that there are, against the processes asked for."""
        rows = self.rows
        wanted = sum(row.case.sampling.processes for row in rows if row.processes or row.outcome == "not measured")
        there = sum(process.outcome != CANCELLED for row in rows for process in row.processes)
        command = self.folder.about.command
        words = [part for word in command for part in (word.split("=", 1) if word.startswith("--for=") else [word])]
        given = next((value for option, value in pairwise(words) if option == "--for"), "")
        return Progress(there, wanted, Counter(row.outcome for row in rows).most_common(), given)

    def answer(self) -> Answer:
        """Return who is the fastest, or why that is unknown."""
        if self.imported:
            programs = listed(imported(self.folder).programs)
            return (
                f"Imported: {counted(len(self.rows), 'result')} of {programs}",
                "Foreign and unproven, and compared with nothing.",
            )
        if self.groups:
            return tally(self.groups)
        fast = [row for row in self.fast if row.sound]
        if len(fast) == 1:
            (panel,) = by_group(fast)
            title = f"{panel.names[0].words} does {number(fast[0].speed)} samples/s"
            return title, f"{panel.title}; nothing to compare it with."
        if fast:
            speeds = [row.speed for row in fast]
            title = f"{number(min(speeds))} to {number(max(speeds))} samples/s; nothing to compare"
            return title, f"Each of the {len(fast)} cases with a speed is alone in its setting."
        if self.fast:
            return "Nothing may be compared", "The marks of each case say why."
        return "No case has a speed yet", ""

    def proven(self) -> tuple[bool, str]:
        """Return (whether every measured case is proven, how many are); no words of a run without such cases."""
        proofs = [row.proof for row in self.rows if row.processes]
        failed, count = sum(not (proof and proof.passed) for proof in proofs), len(proofs)
        words = f"{failed} of {count} not proven" if failed else f"{count} of {count} cases proven"
        return not failed, words if count and not self.imported else ""

    def processes(self) -> str:
        """Return how many processes the intervals are of; "" without intervals."""
        counts = sorted({len(row.measured) for row in self.fast})
        if not counts or self.imported:
            return ""
        most = range_of([str(count) for count in counts])
        return f"{most} process{'' if most == '1' else 'es'}"

    def extent(self) -> str:
        """Return the number of cases and what was measured of them."""
        cases = counted(len(self.rows), "case")
        if self.imported:
            return f"{cases}, imported {moment(self.folder.about.created)}"
        progress, quick = self.progress, "quick run, " if "quick" in self.shared_marks else ""
        outcomes = ", ".join(f"{count} {outcome}" for outcome, count in progress.outcomes if outcome != "ok")
        words = f"{cases}, {quick}{progress.records} of {progress.wanted} processes"
        return f"{words} ({outcomes})" if outcomes else words


def tally(groups: Sequence[Panel]) -> Answer:
    """Return who leads most comparisons, and who leads others."""
    decided = [panel for panel in groups if leaders(panel)]
    if not decided:
        return UNDECIDED
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
    none = [title for title in every if not won[title]] if len(groups) > 1 else []  # one panel says who is next
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


def learnt(row: Row) -> str:
    """Return the best accuracy of a training; "" where nothing was learnt."""
    found = [process.learnt for process in row.processes if process.learnt and process.learnt.epochs]
    if not found:
        return ""
    return f"accuracy {max(one.best for one in found):.4f}, epochs {max(len(one.epochs) for one in found)}"
