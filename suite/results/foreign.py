"""Imported results: run folders of kinds of their own, which nothing measures, resumes or compares.

RUN/
run.json        kind "foreign training" or "foreign comm", and the command that imported
cases.json      every imported case
foreign.json    what each program printed
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any
from uuid import uuid4

from pydantic import Field

from stagebench.suite import __version__
from stagebench.suite.contracts.case import Case
from stagebench.suite.errors import RequestError
from stagebench.suite.files import usable, write_whole
from stagebench.suite.results.records import COMM, TRAINING, About, CaseEntry, PossibleCase
from stagebench.suite.results.run_folder import RunFolder
from stagebench.suite.results.stored import Sealed, Stored, read

FILE = "foreign.json"
UNKNOWN = "unknown"  # a value that a program did not print
SYSTEM = "system"  # the knob of an imported case that names its machine, or its accelerator
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

    case: PossibleCase
    hosts: tuple[str, ...]
    bytes: int
    seconds: float  # the mean of `samples`
    samples: int
    origin: Origin


class Imported(Sealed):
    """foreign.json: the results of either kind, in file order."""

    speeds: tuple[Speed, ...] = ()
    exchanges: tuple[Exchange, ...] = ()

    @property
    def programs(self) -> list[str]:
        """The programs that printed them, each once."""
        results: tuple[Speed | Exchange, ...] = (*self.speeds, *self.exchanges)
        return list(dict.fromkeys(one.origin.program for one in results))


def imported(folder: RunFolder) -> Imported:
    """Return a folder's imported results; StoreError if they cannot be read."""
    return read(folder.path / FILE, Imported, REMEDY)


def stated(case: Case) -> dict[str, Any]:
    """Return the values of a case that the output states, JSON-ready, without our defaults."""
    values = case.to_dict()
    place = {name: values["placement"][name] for name in ("nodes", "ranks_per_node", "devices", "device")}
    if case.collective:
        return {name: values["collective"][name] for name in SAID_OF_LINKS} | {"placement": place}
    more = {"input": {"repeat": case.input.repeat}} if case.input.repeat > 1 else {}
    more |= {"knobs": case.knobs} if case.knobs else {}
    return {name: values[name] for name in SAID if values[name] != UNKNOWN} | {"placement": place} | more


def write(results: Sequence[Speed | Exchange], path: Path, command: tuple[str, ...]) -> None:
    """Write a new folder; RequestError if it is a run folder already, or if trainings and exchanges are mixed."""
    if (path / "run.json").exists():
        raise RequestError(f"{path} is a run folder already; name a new one with -o")
    speeds = tuple(one for one in results if isinstance(one, Speed))
    exchanges = tuple(one for one in results if isinstance(one, Exchange))
    if speeds and exchanges:
        speed, exchange = (f"{one.origin.file}, line {one.origin.line}," for one in (speeds[0], exchanges[0]))
        why = f"{speed} has a training's speed, {exchange} communication, which are different runs"
        raise RequestError(f"{why}; import each, from a file of its own, into a folder of its own")
    kind, created = TRAINING if speeds else COMM, datetime.now(UTC).isoformat(timespec="seconds")
    about = About(kind=f"foreign {kind}", id=uuid4().hex, stagebench=__version__, created=created, command=command)
    folder = RunFolder(path)
    with usable(path):
        path.mkdir(parents=True, exist_ok=True)
    content = Imported(speeds=speeds, exchanges=exchanges)
    write_whole(path / FILE, content.text)
    folder.write_cases({one.case.id: CaseEntry(id=one.case.id, case=one.case) for one in results}.values())
    folder.write_about(about)
