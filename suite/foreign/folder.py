"""Folders of imported results: run folders of kinds of their own, which nothing measures, resumes or compares.

RUN/
run.json        kind "foreign" or "foreign comm", and the command that imported
foreign.json    what each program printed
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, TypeVar
from uuid import uuid4

from pydantic import Field

from suite import __version__
from suite.comm.cases import CommCase
from suite.comm.records import KIND, CommEntry, CommFolder
from suite.contracts.case import Case
from suite.errors import RequestError
from suite.files import usable, write_whole
from suite.results.records import TRAINING, About, CaseEntry, PossibleCase
from suite.results.run_folder import ResultFolder, RunFolder, about_of
from suite.results.stored import FORMAT, Format, Stored, read

FILE = "foreign.json"
UNKNOWN = "unknown"  # a value that a program did not print
SAID = ("adapter", "strategy", "workload", "batch", "data", "precision", "tuning", "optimiser")
SAID_OF_LINKS = ("backend", "operation", "counts", "dtype")
REMEDY = "import the results again, into a new folder"


Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Origin(Stored):
    """The place at which a result was printed."""

    program: str
    file: str
    line: int  # from 1
    run: int = 0  # the line with which the run begins that the result belongs to; 0: not known

    @property
    def words(self) -> str:
        """imported: PROGRAM, FILE line N."""
        return f"imported: {self.program}, {self.file} line {self.line}"


class Speed(Stored):
    """A training as another program reported it. A value that it did not print is "unknown" in its case."""

    case: PossibleCase
    samples_per_second: Positive  # all devices together
    parts: tuple[Positive, ...] = ()  # of parts of the measurement, in order, if the program printed them
    epoch_s: tuple[float, ...] = ()  # seconds of the first epochs
    origin: Origin


class Exchange(Stored):
    """A message size of a communication benchmark."""

    case: CommCase
    hosts: tuple[str, ...]
    bytes: int
    seconds: float  # the mean of `samples`
    samples: int
    origin: Origin


class Speeds(Stored):
    """foreign.json of trainings."""

    format: Format = FORMAT
    results: tuple[Speed, ...]


class Exchanges(Stored):
    """foreign.json of communication."""

    format: Format = FORMAT
    results: tuple[Exchange, ...]


class ForeignRun(RunFolder):
    """Imported trainings."""

    kind = f"foreign {TRAINING}"

    @property
    def speeds(self) -> tuple[Speed, ...]:
        """Every imported speed, in file order; StoreError if they cannot be read."""
        return read(self.path / FILE, Speeds, REMEDY).results

    @property
    def cases(self) -> tuple[CaseEntry, ...]:
        """Every imported case, once, in file order."""
        return tuple({one.case.id: CaseEntry(id=one.case.id, case=one.case) for one in self.speeds}.values())


class ForeignComm(CommFolder):
    """Imported measurements of communication."""

    kind = f"foreign {KIND}"

    @property
    def exchanges(self) -> tuple[Exchange, ...]:
        """Every imported exchange, in file order; StoreError if they cannot be read."""
        return read(self.path / FILE, Exchanges, REMEDY).results

    @property
    def cases(self) -> tuple[CommEntry, ...]:
        """Every imported case, once, in file order."""
        return tuple({one.case.id: CommEntry(id=one.case.id, case=one.case) for one in self.exchanges}.values())


Found = TypeVar("Found", bound=ResultFolder[Any, Any])
KINDS: tuple[type[ResultFolder[Any, Any]], ...] = (RunFolder, CommFolder, ForeignRun, ForeignComm)


def opened(path: Path, as_: type[Found]) -> Found:
    """Open a run folder, measured or imported; RequestError if it is not of a kind that `as_` includes."""
    kind = about_of(path).kind
    return next((each for each in KINDS if each.kind == kind and issubclass(each, as_)), as_).open(path)


def is_comm(path: Path) -> bool:
    """Return True for measurements of communication, measured or imported; RequestError for no run folder."""
    return about_of(path).kind in (CommFolder.kind, ForeignComm.kind)


def stated(case: Case | CommCase) -> dict[str, Any]:
    """Return the values of a case that the output states, JSON-ready, without our defaults."""
    values = case.to_dict()
    place = {name: values["placement"][name] for name in ("nodes", "ranks_per_node", "devices", "device")}
    names = SAID if isinstance(case, Case) else SAID_OF_LINKS
    repeat = {"input": {"repeat": case.input.repeat}} if isinstance(case, Case) and case.input.repeat > 1 else {}
    return {name: values[name] for name in names if values[name] != UNKNOWN} | {"placement": place} | repeat


def write(results: Sequence[Speed | Exchange], path: Path, command: tuple[str, ...]) -> None:
    """Write a new folder; RequestError if it is a run folder already, or if trainings and exchanges are mixed."""
    if (path / "run.json").exists():
        raise RequestError(f"{path} is a run folder already; name a new one with -o")
    speeds = tuple(one for one in results if isinstance(one, Speed))
    exchanges = tuple(one for one in results if isinstance(one, Exchange))
    if speeds and exchanges:
        raise RequestError("training speeds and communication are different runs; import each into a folder of its own")
    content = Speeds(results=speeds) if speeds else Exchanges(results=exchanges)
    kind = (ForeignRun if speeds else ForeignComm).kind
    created = datetime.now(UTC).isoformat(timespec="seconds")
    about = About(kind=kind, id=uuid4().hex, stagebench=__version__, created=created, command=command)
    with usable(path):
        path.mkdir(parents=True, exist_ok=True)
    write_whole(path / FILE, content.model_dump_json(indent=1) + "\n")
    write_whole(path / "run.json", about.model_dump_json(indent=1) + "\n")
