"""The types of a run folder's files, one definition each, with units in the names; docs/record-format.md.

A type's fields are the file's: only `stagebench.suite.results.run_folder` reads and writes them. The ranks' reports are
in `stagebench.suite.results.rank_report`. Times are seconds. null is a value that was not measured, not reported, or
not finite.
"""

import os
import platform
import socket
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, StringConstraints

from stagebench.suite.contracts.case import Case, check_counts
from stagebench.suite.contracts.engine_messages import EngineMessage
from stagebench.suite.files import file_name
from stagebench.suite.processes.evidence import Login
from stagebench.suite.processes.hosts import this_machine
from stagebench.suite.processes.watchdog import Limits, Stopped
from stagebench.suite.results.rank_report import Rank
from stagebench.suite.results.stored import FORMAT, FileName, Finite, Format, Kept, Sealed, Stored, intact, sealed
from stagebench.suite.worker.machine import cores
from stagebench.suite.worker.messages import Hello, Machine, Memory, ProofLosses
from stagebench.suite.worker.pass_kinds import TRAIN

METHOD = 9  # the definition of the figures; another definition of a pass or a stage is another method: never compared

TRAINING, COMM = "training", "comm"  # kinds of runs
Outcome = Literal["ok", "unsupported", "unavailable", "oom", "timeout", "crash", "diverged", "cancelled"]
CANCELLED: Outcome = "cancelled"  # the outcome if a person stopped it: measured again when the run is resumed


def _moment(text: str) -> str:
    if text and datetime.fromisoformat(text).year < 1970:  # a malformed text raises ValueError
        raise ValueError(f"{text} is before the year in which computers begin to count, 1970")
    return text


Moment = Annotated[str, AfterValidator(_moment)]  # ISO 8601, UTC; "": unknown


class About(Sealed):
    """run.json: which run this is."""

    method: int = METHOD
    kind: Annotated[str, StringConstraints(pattern="^(foreign )?(training|comm)$")] = TRAINING
    id: str = ""  # the run's id, which its records name
    stagebench: str = ""  # the version that began it
    created: Moment = ""
    command: tuple[str, ...] = ()
    plan: str = ""  # as given to the command: a ready-made plan's name, or a file
    commit: str = ""  # of the git repository in which the command ran, with "-dirty" after it if files had changed
    until: float | None = None  # relative half-width of an interval (`--until`); None: the plan's processes
    collected: tuple[str, ...] = ()  # the run folders from which it was joined

    @property
    def of_comm(self) -> bool:
        """True if the run's cases are collectives, measured or imported."""
        return self.kind.endswith(COMM)

    @property
    def imported(self) -> bool:
        """True if another program measured it (stagebench.suite.results.foreign)."""
        return self.kind.startswith("foreign")


def _possible(case: Case) -> Case:
    check_counts(case.placement, case.batch, case.sampling.processes)
    return case


PossibleCase = Annotated[Case, AfterValidator(_possible)]


class CaseEntry(Stored):
    """A case of a run, with the reason if it cannot run."""

    id: FileName
    case: PossibleCase
    outcome: Literal["unsupported", "unavailable"] | None = None  # None: it can run
    reason: str = ""


class Cases(Sealed):
    """cases.json: the plan as resolved."""

    plan: str = ""  # the digest of plan.toml; "": there is none
    scale: str | None = None  # the plan's scale profile (`--scale`); None: the plan itself
    cases: tuple[CaseEntry, ...]


class Host(Sealed):
    """hosts/NAME.json: a host of the run, as this process found it or as its ranks reported it."""

    host: FileName  # its name
    machine: Kept[Machine]
    cores: int | None = None  # cores that a process may use
    cores_installed: int | None = None
    python: str | None = None  # the controller's


class Interpreter(Stored):
    """The place where a framework ran."""

    path: str
    origin: str  # in words: "tox environment pytorch"
    version: str
    packages: dict[str, str] = {}  # the modules that the adapter requires, and NumPy


class Declared(Stored):
    """The adapter's declarations for a case when it was measured, whatever is installed when the record is read."""

    knob_defaults: dict[str, Any]
    synchronous: bool  # all devices together compute what one does with the joined batch
    separable: tuple[str, ...]  # the stages that can be timed separately
    model_parallel_size: int  # devices that hold one network together
    microbatches: int  # equal pieces of a network's batch


class Load(Stored):
    """The load averages over 1, 5 and 15 minutes."""

    before: tuple[float, float, float]
    after: tuple[float, float, float]


class Evidence(Stored):
    """How an attempt ended, whatever its ranks reported."""

    exit_codes: dict[str, int] = {}
    stopped: Stopped | None = None
    engine: tuple[Kept[EngineMessage], ...] = ()  # the engine's messages
    lost_logins: tuple[Login, ...] = ()
    oom_kills: int = 0  # processes that the hosts' kernels killed for lack of memory during the attempt
    logs: dict[str, tuple[str, ...]] = {}  # the last lines of each log
    unreadable_lines: int = 0
    limits: Limits | None = None
    first_try: str = ""  # the reason for a second one, if the ranks did not meet


class Record(Sealed):
    """records/ID-rN.json: one process group of one case."""

    run: str = ""  # the run's id
    plan: str = ""  # the digest of the run's plan.toml
    method: int = METHOD
    stagebench: str = ""  # the version that wrote it
    case_id: FileName
    case: PossibleCase
    repeat: int
    outcome: Outcome
    reason: str = ""
    started: Moment
    seconds: float  # from the first process's start until all had ended, without the turns of other cases
    turns_with: tuple[str, ...] = ()  # the ids of the cases with which it was interleaved
    session: str = ""  # the id of the command that measured it: each resumption has a new one; "": unknown
    interpreter: Interpreter
    bundle: str  # the digest of the code that ran
    declared: Declared | None = None  # None: of a collective
    proof: str | None = None  # the key of a proof
    proof_reason: str = ""  # the reason why the proof does not exist or failed
    load: Load
    evidence: Evidence | None = None
    passes: dict[str, Outcome] = {}  # the end of each pass that began: ok once every rank has sent it
    ranks: tuple[Rank, ...]

    @property
    def result(self) -> Outcome:
        """The outcome of the speed, or of the training: ok if only a later pass ended badly, unless it diverged."""
        finished = self.passes.get(TRAIN if self.case.passes == (TRAIN,) else self.case.speed_pass) == "ok"
        return "ok" if finished and self.outcome != "diverged" else self.outcome


class Finding(Stored):
    """An error of a proof and its bound."""

    what: str
    tensor: str
    error: float  # 1e300 if it is not finite
    tolerance: float


class Environment(Stored):
    """The variables that change what is computed, as ranks of a proof found them."""

    values: dict[str, str]  # without home folders
    digest: str  # of the values as they were


def environment_of(hello: Hello) -> Environment | None:
    """Return a rank's variables that change what is computed; None if it did not report them."""
    if hello.arithmetic is None:
        return None
    values = {name: hello.settings.get(name, "") for name in hello.arithmetic.names}
    return Environment(values=values, digest=hello.arithmetic.digest)


class Verdict(Stored):
    """The result of one comparison with the oracle; a proof that could not be run has not passed."""

    passed: bool
    reason: str = ""
    outcome: str | None = None  # the failed run's; None if it did not fail
    worst: Finding | None = None  # the error nearest to its bound, or farthest beyond it
    losses: Kept[ProofLosses] | None = None  # the mean over ranks
    errors: Mapping[str, Mapping[str, Finite]] = {}  # relative, by kind and tensor; null: not finite
    parameter_count: int | None = None
    macs: int | None = None  # multiply-accumulates of one sample's forward pass
    graph: str = ""  # the digest of the layer graph
    weights: str = ""  # the digest of the initial weights
    versions: dict[str, str] = {}  # as one rank reported them
    processors: tuple[str, ...] = ()  # models of the CPUs and GPUs that the ranks ran on
    environments: tuple[Environment, ...] = ()  # the ranks', each once
    memory: tuple[Kept[Memory], ...] = ()  # the ranks'
    tolerance: dict[str, float] = {}  # the bounds
    looser_because: str = ""  # the reason of bounds that are looser than usual


class Identity(Stored):
    """A summary of the verdict in float64."""

    passed: bool
    reason: str = ""
    worst: Finding | None = None
    losses: Kept[ProofLosses] | None = None  # the mean over ranks


class Subject(Stored):
    """The configuration that is proven."""

    adapter: str
    strategy: str
    workload: str
    ranks: int
    devices: int = 1  # per rank
    device: str = "cpu"
    precision: str
    tuning: str
    optimiser: str = "sgd"
    knobs: dict[str, Any]


class Proof(Subject, Verdict):
    """proofs/KEY.json: the evidence that an adapter trains the workload."""

    format: Format = FORMAT
    key: FileName | None  # None: it could not be made, and is stored nowhere
    scope: str = ""  # the part of the case that is not proven, in words; "": none
    identity: Identity | None = None  # None: the adapter has no float64, or was proven in it
    digest: str = ""  # of the file's text with "" here

    @property
    def text(self) -> str:
        """The text of its file, with its digest."""
        return sealed(self.but(digest="").model_dump_json(indent=1) + "\n")

    def misfit(self, path: Path, text: bytes) -> str | None:
        """Return why a file, with this text, is not the proof that its name promises; None if it is."""
        if self.key != path.stem:
            return f"it holds the proof {self.key}, and its name is another one's"
        if not intact(text, self.digest):
            return "it was changed after it was written"
        beyond = self.worst is not None and not self.worst.error <= self.worst.tolerance
        failed = beyond or (self.identity is not None and not self.identity.passed)
        return "it passed, and its worst error or its float64 did not" if self.passed and failed else None


def this_host() -> Host:
    """Return this machine, as a run folder keeps it."""
    return Host(
        host=file_name(socket.gethostname()),
        machine=this_machine(),
        cores=cores(),
        cores_installed=os.cpu_count(),
        python=platform.python_version(),
    )


def load() -> list[float]:
    """Return the load averages over 1, 5 and 15 minutes."""
    return [round(value, 2) for value in os.getloadavg()]
