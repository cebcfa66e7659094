"""Is a run folder whole and unaltered? Each file by its own reader, then what two files say of each other.

The readers check types, digests and invariants (stagebench.suite.results). Who changes a value wherever it is kept, and
computes each digest anew, is not found: that takes signatures.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pydantic import ValidationError

from stagebench.suite.analysis.links import links
from stagebench.suite.analysis.summary import summarise, unused_records
from stagebench.suite.errors import StoreError
from stagebench.suite.files import file_name
from stagebench.suite.plan.networks import network_of
from stagebench.suite.processes import bundle
from stagebench.suite.processes.mailbox import LineReader
from stagebench.suite.results.foreign import FILE, imported
from stagebench.suite.results.rank_report import Rank, rank_of
from stagebench.suite.results.records import Proof, Record
from stagebench.suite.results.run_folder import RunFolder, irregular
from stagebench.suite.results.stored import Sealed, cleaned, intact, misfit, text_of
from stagebench.suite.text import shown
from stagebench.suite.worker import messages

UNSEEN = (
    "Without signatures no check can see who measured a run, what was removed whole (records, bundles, messages), or a "
    "value that was changed wherever it is kept, with new digests."
)
CHANGED = "it was changed after it was written: its digest is another one"
FOLDERS = ("records", "proofs", "hosts", "networks", "bundles", "attempts")
PROVEN = ("adapter", "strategy", "workload", "precision", "tuning", "optimiser")  # equal in a record and its proof
PLACE = re.compile(r"rank (?P<rank>\d+)(?:, pass '(?P<measured>[^']*)')?:|(?P<key>[\w.-]+): ")  # how a reason begins
T = TypeVar("T")


class Problem(NamedTuple):
    """A file that is wrong."""

    file: str  # in the run folder
    why: str  # with the key or the rank, where one is known
    line: int | None = None  # of that key or rank, from 1

    def __str__(self) -> str:
        return f"{self.file}{f', line {self.line}' if self.line else ''}: {self.why}"


def problem_of(run: Path, file: str, why: str) -> Problem:
    """Return a problem, with the line of the place with which its reason begins."""
    found = PLACE.match(why)
    if not found or not (run / file).is_file():
        return Problem(file, why)
    passes = f".passes.{found['measured']}" if found["measured"] else ""
    place = found["key"] or f"ranks.{found['rank']}{passes}"
    return Problem(file, why, line_of((run / file).read_text(errors="replace"), place))


def line_of(text: str, place: str) -> int | None:
    """Return the line of a JSON value, or of what is around it, in a file with a value a line; None: not found."""
    lines = [line.lstrip() for line in text.splitlines()]
    depths = [len(line) - len(short) for line, short in zip(text.splitlines(), lines, strict=True)]
    at = 0
    for key in place.split("."):
        inside = list(takewhile(lambda line: depths[line] > depths[at], range(at + 1, len(lines))))  # noqa: B023
        values = [line for line in inside if depths[line] == depths[at + 1] and lines[line][:1] not in "]}"]
        named = [line for line in values if lines[line].startswith(f'"{key}":')]
        numbered = values[int(key) :][:1] if key.isdigit() else []
        if not named and not numbered:
            break
        at = (named or numbered)[0]
    return at + 1 if at else None


@dataclass
class Checked:
    """The result of checking a run folder."""

    folder: RunFolder
    problems: list[Problem] = field(default_factory=list)
    records: int = 0
    marks: Mapping[str, int] = field(default_factory=dict)  # rows by mark, of a run without a problem
    notes: list[str] = field(default_factory=list)  # what is unused, or not there to be checked

    def to_dict(self) -> dict[str, Any]:
        values = {"run": str(self.folder.path), "whole": not self.problems, "records": self.records}
        problems = [problem._asdict() for problem in self.problems]
        return {**values, "problems": problems, "marks": self.marks, "notes": self.notes}

    def blame(self, file: str, why: str) -> None:
        self.problems.append(problem_of(self.folder.path, file, why))

    def read(self, file: str, reader: Callable[[Path], T]) -> T | None:
        """Return a file as its reader returns it; None, with a problem, if the reader refuses it.

        The digest of a part that is sealed is checked here: to read it takes none.
        """
        path = self.folder.path / file
        try:
            part = reader(path)
            if isinstance(part, Sealed) and not intact(text_of(path, ""), part.digest):
                self.blame(file, CHANGED)
        except StoreError as error:
            self.blame(file, str(error.args[0]).removeprefix(str(path)).lstrip(": "))
            return None
        return part


def check_run(path: Path) -> Checked:
    """Check a run folder; RequestError if it is none, or of another format.

    A problem in a file against which others are held ends the check: they would all be blamed.
    """
    folder = RunFolder(path)
    found = Checked(folder)
    links_there = [str(other.relative_to(path)) for other in irregular(path)]
    found.problems += [Problem(file, "it is a link or a pipe, and a run has none") for file in links_there]
    files = [name for name in FOLDERS if (path / name).exists() and not (path / name).is_dir()]
    found.problems += [Problem(name, "it is no folder") for name in files]
    about = None if found.problems else found.read("run.json", lambda _: folder.about)
    cases = found.read("cases.json", lambda _: folder.resolved) if about else None
    if cases and cases.plan != folder.plan_digest:
        found.blame("plan.toml", "its digest is not the one in cases.json: it was changed, or lost")
    if about and about.imported:
        found.read(FILE, lambda _: imported(folder))
    elif not found.problems:
        _check_measured(found)
    if about and not found.problems:
        rows = list(links(folder)) if about.of_comm else summarise(folder)
        found.marks = Counter(mark for row in rows for mark in row.marks)
        for name, why in folder.invalid.items():
            found.blame(f"records/{name}", why.removeprefix(f"records/{name}: "))
        found.notes += filter(None, [unused_records(folder)])
    return found


def _check_measured(found: Checked) -> None:
    """Check each proof, host and record, and whether all that a record names is there and agrees with it."""
    folder, path = found.folder, found.folder.path
    proofs = {one.stem: found.read(f"proofs/{one.name}", folder.proof) for one in sorted(path.glob("proofs/*.json"))}
    for host in sorted(path.glob("hosts/*.json")):
        found.read(f"hosts/{host.name}", folder.host)
    codes = {code.name: bundle.written_digest(code) for code in sorted(path.glob("bundles/*/"))}
    without: Counter[str] = Counter()
    for name in folder.record_names():
        file = f"records/{name}"
        written = found.read(file, folder.written)
        if written is None:
            continue
        record, text = written
        attempt = path / "attempts" / name.removesuffix(".json")
        found.records += 1
        wrong = [why for why in [folder.misfit(record, path / file, text)] if why]
        wrong += [*_misnamed(path, record, proofs, codes), *_without_host(path, record)]
        wrong += _unlike_messages(record, attempt)
        for why in wrong:
            found.blame(file, why)
        without["bundle"] += record.case.adapter not in codes
        without["messages of ranks"] += not attempt.is_dir()
    found.notes += [f"{count} of {found.records} records have no {what}" for what, count in without.items() if count]


def _misnamed(
    path: Path, record: Record, proofs: Mapping[str, Proof | None], codes: Mapping[str, str]
) -> Iterator[str]:
    """Yield what a record names that the run folder has not, or has otherwise."""
    case, code = record.case, codes.get(record.case.adapter, record.bundle)
    if record.proof and record.proof not in proofs:
        yield f"proof: proofs/{record.proof}.json is missing"
    elif proof := proofs.get(record.proof or ""):
        unlike = [name for name in PROVEN if getattr(proof, name) != getattr(case, name)]
        if unlike or proof.graph not in ("", case.graph_digest):
            yield f"proof: proofs/{proof.key}.json proves another {' and '.join(unlike) or 'network'}"
    if code != record.bundle:
        yield f"bundle: it is {shown(record.bundle)}, and the files of bundles/{case.adapter} have {code}"
    network = f"networks/{file_name(case.workload)}.json"
    if (path / network).exists() and network_of(path, case) is None:
        yield f"case.graph_digest: {network} holds another network"


def _without_host(path: Path, record: Record) -> Iterator[str]:
    for rank in record.ranks:
        if rank.hello and rank.hello.machine:
            host = f"hosts/{file_name(rank.hello.host)}.json"
            if not (path / host).is_file():
                yield f"ranks.{rank.rank}.hello.host: {host} is missing"


def _unlike_messages(record: Record, attempt: Path) -> Iterator[str]:
    """Yield the first value of each rank that is not the one that the rank sent, if its messages are kept.

    Of a record that is not ok, a later attempt may have begun.
    """
    for rank in record.ranks if record.outcome == "ok" else ():
        file = attempt / f"rank-{rank.rank}.jsonl"
        if not file.is_file():
            continue
        reader = LineReader(file, messages.decode)
        try:
            sent = _plain(rank_of(rank.rank, list(reader.new())))
        except ValidationError as error:
            yield f"attempts/{attempt.name}/{file.name}: {misfit(error)}"
            continue
        finally:
            reader.close()
        differing = list(_differing(_plain(rank), sent, f"ranks.{rank.rank}"))
        if differing:
            more = f", and {len(differing) - 1} more values" if len(differing) > 1 else ""
            yield f"{differing[0]} in attempts/{attempt.name}/{file.name}{more}"


def _plain(rank: Rank) -> Any:
    return cleaned(json.loads(rank.model_dump_json()))


def _differing(one: Any, other: Any, place: str) -> Iterator[str]:
    """Yield "key: value here, and value there" for each value in which two JSON values differ."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in {**one, **other}:
            yield from _differing(one.get(key), other.get(key), f"{place}.{key}")
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for index, (mine, theirs) in enumerate(zip(one, other, strict=True)):
            yield from _differing(mine, theirs, f"{place}.{index}")
    elif one != other:
        yield f"{place}: {shown(one, 80)}, and {shown(other, 80)}"
