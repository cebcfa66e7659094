"""What a run folder holds, one definition each, with units in the names; docs/record-format.md.

A type's fields are the file's: `suite.results.run_folder` reads and writes them, and nothing else does. What the ranks
report is in `suite.results.rank_report`. Times are seconds. null is what was not measured, not reported, or no number.
"""

from datetime import datetime
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import AfterValidator, StringConstraints

from suite.contracts.case import Case, check_counts
from suite.contracts.engine_messages import EngineMessage
from suite.processes.evidence import Login
from suite.processes.watchdog import Limits, Stopped
from suite.results.rank_report import AnyRank, Rank
from suite.results.stored import FORMAT, FileName, Format, Kept, Stored
from suite.worker.messages import Machine

METHOD = 8  # what the figures mean. Another definition of a pass or of a stage is another method: never compared

TRAINING = "training"
Outcome = Literal["ok", "unsupported", "unavailable", "oom", "timeout", "crash", "diverged", "cancelled"]
CANCELLED: Outcome = "cancelled"  # the outcome of what a person stopped: measured when the run goes on


def _moment(text: str) -> str:
    if text and datetime.fromisoformat(text).year < 1970:  # ValueError names what is none
        raise ValueError(f"{text} is before the year in which computers begin to count, 1970")
    return text


Moment = Annotated[str, AfterValidator(_moment)]  # ISO 8601, UTC; "" where nobody wrote it down


class About(Stored):
    """run.json: which run this is."""

    format: Format = FORMAT
    method: int = METHOD
    kind: Annotated[str, StringConstraints(pattern="^(foreign )?(training|comm)$")] = TRAINING  # see suite.comm.records
    id: str = ""  # of this run, which its records name
    stagebench: str = ""  # the version that began it
    created: Moment = ""
    command: tuple[str, ...] = ()
    plan: str = ""  # as asked for: a ready-made plan's name, or a file
    commit: str = ""  # of the git repository that the command ran in, "-dirty" after it where files had changed
    until: float | None = None  # half-width of an interval at which it ended; None: with the plan's processes
    collected: tuple[str, ...] = ()  # the run folders that it was joined from


def _possible(case: Case) -> Case:
    check_counts(case.placement, case.batch, case.sampling.processes)
    return case


PossibleCase = Annotated[Case, AfterValidator(_possible)]


class AnyEntry(Stored):
    """A case of a run, and why it cannot run, if so."""

    id: FileName
    case: Any  # its subclasses say of what type
    outcome: Literal["unsupported", "unavailable"] | None = None
    reason: str = ""


Entry = TypeVar("Entry", bound=AnyEntry)


class CaseEntry(AnyEntry):
    """A case of the plan."""

    case: PossibleCase


class Cases(Stored, Generic[Entry]):
    """cases.json: the plan as resolved."""

    format: Format = FORMAT
    scale: str | None = None  # of the plan; None: the plan itself
    cases: tuple[Entry, ...]


class Host(Stored):
    """hosts/NAME.json: a host of the run, as this process found it or as its ranks reported it."""

    format: Format = FORMAT
    host: FileName  # its name
    machine: Kept[Machine]
    cores: int | None = None  # that a process may use
    cores_installed: int | None = None
    python: str | None = None  # the controller's


class Interpreter(Stored):
    """Where a framework ran."""

    path: str
    origin: str  # in words: "tox environment pytorch"
    version: str
    packages: dict[str, str] = {}  # the modules that the adapter requires, and NumPy


class Declared(Stored):
    """What the adapter declared for a case when it was measured, whatever is installed when the record is read."""

    knob_defaults: dict[str, Any]
    synchronous: bool  # all devices together do what one does with the joined batch
    separable: tuple[str, ...]  # the stages that can be told apart
    model_parallel_size: int  # devices that hold one network together
    microbatches: int  # equal pieces in which a network takes its batch


class Load(Stored):
    """Load averages over 1, 5 and 15 minutes."""

    before: tuple[float, float, float]
    after: tuple[float, float, float]


class Evidence(Stored):
    """How an attempt ended, whatever its ranks reported."""

    exit_codes: dict[str, int] = {}
    stopped: Stopped | None = None
    engine: tuple[Kept[EngineMessage], ...] = ()  # its messages
    lost_logins: tuple[Login, ...] = ()
    oom_kills: int = 0  # of the kernels, meanwhile
    logs: dict[str, tuple[str, ...]] = {}  # the last lines
    unreadable_lines: int = 0
    limits: Limits | None = None


class AnyRecord(Stored):
    """What a record of a training and one of communication have in common."""

    format: Format = FORMAT
    digest: str = ""  # of the file's text with "" here
    run: str = ""  # the id of the run
    plan: str = ""  # the digest of its plan.toml
    method: int = METHOD
    stagebench: str = ""  # the version that wrote it
    case_id: FileName
    case: Any  # its subclasses say of what type
    repeat: int
    outcome: Outcome
    reason: str = ""
    started: Moment
    seconds: float  # from the first process's start until all had ended, without what others had between its turns
    turns_with: tuple[str, ...] = ()  # the ids of the cases that were measured side by side with it
    session: str = ""  # the id of the command that measured it, a new one each time that a run goes on; "": not kept
    interpreter: Interpreter
    bundle: str  # the digest of the code that ran
    load: Load
    evidence: Evidence | None = None
    ranks: tuple[AnyRank, ...]


Measured = TypeVar("Measured", bound=AnyRecord)


class Record(AnyRecord):
    """records/ID-rN.json: one process group of one case."""

    case: PossibleCase
    declared: Declared | None = None
    proof: str | None = None  # the key of a proof
    proof_reason: str = ""  # why there is none, or it failed
    ranks: tuple[Rank, ...]
