"""What a run folder holds, one definition each, with units in the names: format 4, docs/record-format.md.

A type's fields are the file's: `suite.results.run_folder` reads and writes them, and nothing else does. Times are
seconds. Lists of a rank hold an item a step, in order. null is what was not measured, not reported, or no number.
"""

from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import AfterValidator, Field

from suite.contracts.case import Case
from suite.results.stored import FileName, Finite, Stored

FORMAT: Literal[4] = 4  # of every file below; suite.results.older reads those before
METHOD = 3  # what the figures mean. Another definition of a pass or of a stage is another method: never compared

TRAINING = "training"
Outcome = Literal["ok", "unsupported", "unavailable", "oom", "timeout", "crash", "diverged", "cancelled"]
CANCELLED: Outcome = "cancelled"  # the outcome of what a person stopped: measured when the run goes on


class About(Stored):
    """run.json: which run this is."""

    format: Literal[4] = FORMAT
    method: int = METHOD
    kind: str = TRAINING  # or "comm", see suite.comm.records
    id: str = ""  # of this run, which its records name; "": before format 3
    stagebench: str = ""  # the version that began it; "" and the like: format 1 did not say
    created: str = ""  # ISO 8601, UTC
    command: tuple[str, ...] = ()
    plan: str = ""  # as asked for: a ready-made plan's name, or a file
    collected: tuple[str, ...] = ()  # the run folders that it was joined from


def _possible(case: Case) -> Case:
    place = case.placement
    counts = (place.nodes, place.ranks_per_node, place.devices, place.threads, case.batch, case.sampling.processes)
    if min(counts) < 1:
        raise ValueError(f"{counts} nodes, ranks, devices, threads, samples and processes; there is 1 of each at least")
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

    format: Literal[4] = FORMAT
    scale: str | None = None  # of the plan; None: the plan itself
    cases: tuple[Entry, ...]


class Machine(Stored):
    """What a host is; it may hide any of it."""

    cpu: str | None = None  # the model
    memory_bytes: int | None = None
    kernel: str | None = None
    governor: str | None = None  # of the first core's clock
    os: str | None = None
    gpus: tuple[str, ...] = ()
    gpu_driver: str | None = None


class Host(Machine):
    """hosts/NAME.json: a host of the run; of one where only ranks ran, what they reported of it."""

    format: Literal[4] = FORMAT
    host: FileName  # its name
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
    """What the adapter said of a case when it was measured, whatever is installed when the record is read."""

    knob_defaults: dict[str, Any]
    synchronous: bool  # all devices together do what one does with the joined batch
    separable: tuple[str, ...]  # the stages that can be told apart
    model_parallel_size: int  # devices that hold one network together
    microbatches: int  # equal pieces in which a network takes its batch


class Load(Stored):
    """Load averages over 1, 5 and 15 minutes."""

    before: tuple[float, float, float]
    after: tuple[float, float, float]


class Hello(Stored):
    """A rank's process, before anything of the framework was imported."""

    host: str  # its name
    machine: Machine | None = None  # None: format 1
    world: int | None = None
    pid: int | None = None
    python: str | None = None
    numpy: str | None = None
    cores: tuple[int, ...] = ()  # that this rank may use
    host_cores: int | None = None
    boot: str = ""  # tells the running kernel from every other
    threads: dict[str, str] = {}  # the variables that say how many threads a library runs
    settings: dict[str, str] | None = None  # those that libraries of communication read; None: format 1, early


class Joined(Stored):
    """What the engine connected."""

    rank: int
    world: int
    devices: int | None = None  # of this rank
    transport: str = ""
    versions: dict[str, str] = {}
    settings: dict[str, str] | None = None  # as of Hello, after joining


class Failed(Stored):
    """A rank's own account of its end."""

    kind: str
    message: str
    traceback: str = ""


class Pass(Stored):
    """One pass on one rank."""

    name: str
    samples: int  # that this rank consumed in all measured steps
    steady: bool  # whether no trend was left in the warm-up when measuring began
    warmup_s: tuple[float, ...]
    step_s: tuple[float, ...]
    wall_s: float  # from the common barrier until this rank's last step is done
    io_s: tuple[float, ...] | None = None  # the wait for each batch
    stage_s: dict[str, tuple[float, ...]] | None = None  # by stage; "staged" only
    loss: Finite = None  # the last step's; None: not a finite number, or a pass that has none (LOSSES)
    # Of a pass that takes turns with native steps, (native, its own) seconds per step of every pair of blocks.
    pairs_s: tuple[tuple[float, float], ...] | None = None
    gradient_bytes: int | None = None  # of "native": what each device contributes to one exchange; None: nobody can say


LOSSES = ("native", "staged", "compute_only")  # the passes that have one


class HostUse(Stored):
    """What the system counted on a rank's host during the measured steps of the native pass."""

    seconds: float
    involuntary_switches: int  # of the rank's process, by the kernel
    busy_cpu_s: float  # of everybody, on all cores
    steal_cpu_s: float  # that a hypervisor gave to other guests
    cores: int  # of the host
    own_cpu_s: float | None = None  # of this measurement's ranks, readers, servers; None: nothing tells them apart
    clock_hz: float | None = None  # of the rank's cores, the mean right after the last step


class Noise(Stored):
    """How quiet the machine was: a fixed computation, the same everywhere, before the first pass and after the last."""

    reference_before_s: tuple[float, ...]
    reference_after_s: tuple[float, ...]
    native: HostUse | None = None  # None: no native pass, or a system that does not count


class Memory(Stored):
    """The most that a rank held at a time, from its start to the end of its passes."""

    host_bytes: int  # resident, of the process itself
    device_bytes: int | None = None  # that the framework allocated on its devices; None: it does not say


class Layer(Stored):
    """Where one layer's time went: medians over the steps of the staged pass."""

    layer: str
    kind: str
    forward_s: float
    backward_s: float
    communication_s: float
    bytes: int  # of its gradients


class Epoch(Stored):
    """One epoch on one rank."""

    train_s: float  # training alone
    test_s: float | None = None
    samples: int
    steps: int | None = None
    accuracy: float  # on what was held out
    loss: Finite  # the last step's


class Training(Stored):
    """The pass `train` on one rank."""

    epochs: tuple[Epoch, ...]
    loss_steps: tuple[int, ...]  # the steps whose losses were kept
    losses: tuple[Finite, ...]
    loss_s: tuple[float, ...] = ()  # when: seconds of training; () where not kept


class Traffic(Stored):
    """What an interface of a rank's host carried while it ran."""

    received_bytes: int
    sent_bytes: int


class AnyRank(Stored):
    """What every rank reports, whatever it was asked to do."""

    rank: int
    hello: Hello | None = None
    joined: Joined | None = None
    wire: dict[str, Traffic] | None = None  # by interface
    failed: Failed | None = None


class Rank(AnyRank):
    """What a rank of a training reports."""

    passes: dict[str, Pass] = {}
    noise: Noise | None = None  # None: format 2 and before; so is the next one
    memory: Memory | None = None
    layers: tuple[Layer, ...] | None = None
    training: Training | None = None
    notes: dict[str, Any] = {}  # the trainer's own words


class Stopped(Stored):
    """Why the processes were ended by us."""

    why: Literal["time", "silence", "grace"]
    rank: int | None = None
    limit_s: float  # the one that was passed


class Login(Stored):
    """An engine's login on another host that ended badly."""

    host: str
    code: int
    time_s: float  # seconds since the epoch


class Limits(Stored):
    """What the processes had (suite.supervision.watchdog.Limits)."""

    total_s: float
    silence_s: float
    joining_s: float | None = None


class Begun(Stored):
    """An engine's message: the ranks' turn has come (suite.contracts.engine_messages has both)."""

    type: Literal["begun"]
    job: str = ""
    nodes: str = ""


class EngineFailed(Stored):
    """Likewise: why it ended badly."""

    type: Literal["failed"]
    kind: str
    message: str
    time_s: float
    certain: bool = False


class Evidence(Stored):
    """How an attempt ended, whatever its ranks reported."""

    exit_codes: dict[str, int] = {}
    stopped: Stopped | None = None
    engine: tuple[Annotated[Begun | EngineFailed, Field(discriminator="type")], ...] = ()  # its messages
    lost_logins: tuple[Login, ...] = ()
    oom_kills: int = 0  # of the kernel, meanwhile
    logs: dict[str, tuple[str, ...]] = {}  # the last lines
    unreadable_lines: int = 0
    limits: Limits | None = None


class AnyRecord(Stored):
    """What a record of a training and one of communication have in common."""

    format: Literal[4] = FORMAT
    digest: str = ""  # of the file's text with "" here; this and the next two: "" before format 3
    run: str = ""  # the id of the run
    plan: str = ""  # the digest of its plan.toml
    method: int = METHOD
    stagebench: str = ""  # the version that wrote it
    case_id: FileName
    case: Any  # its subclasses say of what type
    repeat: int
    outcome: Outcome
    reason: str = ""
    started: str  # ISO 8601, UTC
    seconds: float  # from the first process's start until all had ended
    interpreter: Interpreter
    bundle: str  # the digest of the code that ran
    load: Load
    evidence: Evidence | None = None
    ranks: tuple[AnyRank, ...]


Measured = TypeVar("Measured", bound=AnyRecord)


class Record(AnyRecord):
    """records/ID-rN.json: one process group of one case."""

    case: PossibleCase
    declared: Declared | None = None  # None: format 1 did not keep it
    proof: str | None = None  # the key of a proof
    proof_reason: str = ""  # why there is none, or it failed
    ranks: tuple[Rank, ...]
