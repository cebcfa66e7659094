"""The messages that a rank sends while it works: the only definition of what a rank reports and a record keeps.

A rank writes them to rank-N.jsonl, one JSON object per line: `type`, `time_s` (seconds since the epoch), and the fields
of the message. The controller reads the file as it grows, and takes its growth as the sign of life. Both halves of a
run are of one release, so both directions are strict: an unknown type, an unknown or missing field, or a value of the
wrong type is an error. `Notes` hold whatever an adapter adds. A record keeps the messages as they are.

Times are seconds on the rank's own clock; lists hold one item per step, epoch or sample, in order. None is a value
that was not measured or reported; in a record also a loss that is not a finite number. `typed_json` explains None and
NaN.
"""

from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Tuple, Type, TypeVar, Union

from stagebench.suite.worker.contract import KernelTimes, LayerTimes
from stagebench.suite.worker.typed_json import LineCodec

# --- life ----------------------------------------------------------------


class GpuSettings(NamedTuple):
    """GPU settings that an administrator can change; None if unsupported or not readable."""

    most_sm_clock_hz: Optional[float] = None
    power_limit_watts: Optional[float] = None
    persistence: Optional[bool] = None  # whether the driver stays loaded while no process uses it
    ecc: Optional[bool] = None  # whether its memory corrects errors


class Machine(NamedTuple):
    """The host of a rank; None is a value that it hides."""

    cpu: Optional[str] = None  # the model
    memory_bytes: Optional[int] = None
    kernel: Optional[str] = None
    governor: Optional[str] = None  # of the first core's clock
    os: Optional[str] = None
    gpus: List[str] = []  # as nvidia-smi lists them: number, model, UUID
    gpu_driver: Optional[str] = None
    sockets: Optional[int] = None  # processors
    gpu_links: List[str] = []  # of every graphics device on PCI: "8.0 GT/s PCIe x16"
    networks: List[str] = []  # interfaces that are up: "eth0, 10000 Mbit/s", without a speed that they do not report
    cpu_quota: Optional[float] = None  # cores' worth of time that its control groups allow; None: no limit
    gpu_settings: List[GpuSettings] = []  # of each of `gpus`


class Arithmetic(NamedTuple):
    """The environment variables that change what a rank computes (stagebench.suite.worker.variables)."""

    names: List[str]  # their values are among its settings
    digest: str  # of the values, of which settings show less


class Hello(NamedTuple):
    """The first message: the process runs, nothing has been imported from the adapter yet."""

    format: int  # stagebench.suite.worker.job.FORMAT
    rank: int
    world: int
    host: str  # its name
    pid: int
    python: str
    numpy: str
    cores: List[int]  # that this rank may use
    threads: Dict[str, str]  # the variables stagebench.suite.worker.variables.THREADS, where set
    settings: Dict[str, str]  # variables that libraries of communication read, or that change what is computed
    boot: str = ""  # identifies the running kernel; "" if the system has no such mark
    host_cores: Optional[int] = None
    machine: Optional[Machine] = None
    core_of: List[int] = []  # the physical core under each of `cores`, named by the lowest CPU on it
    arithmetic: Optional[Arithmetic] = None


class Joined(NamedTuple):
    """The engine has connected this rank: stagebench.suite.worker.contract.Joined, and the settings as they are now.

    It is sent once more, after the task, if libraries have bound threads or readers since.
    """

    rank: int
    world: int
    transport: str
    versions: Dict[str, str]
    devices: int
    settings: Dict[str, str]
    device_ids: List[str] = []  # UUIDs of the GPUs that it drives; empty where unknown
    cores: List[int] = []  # that its first thread may use, now that the framework is loaded
    bound: List[int] = []  # the core of each other thread that a library bound to one, unlike the first thread
    load_s: Optional[float] = None  # from this program's start: the framework was imported, the device set, ranks met


class Built(NamedTuple):
    """The network exists, with its optimiser and its initial weights."""

    seconds: float  # that the trainer took for it


class Phase(NamedTuple):
    """A part of the task begins: "join", "build", "proof", a pass's name, ..."""

    name: str


class Progress(NamedTuple):
    """The progress of a part of the task; at most one message in Outbox.PROGRESS_EVERY seconds."""

    name: str  # of the pass, of the task, or of what is exchanged
    phase: str  # "warmup", "measure", "epoch 2 of 5", ...
    step: int
    of: int


class Waiting(NamedTuple):
    """A rank waits for its turn, which it takes with other measurements on its host (stagebench.suite.worker.turns)."""

    more: bool  # whether it will wait again within this pass


class Failed(NamedTuple):
    """The last message of a rank that met an error."""

    kind: str  # the outcome that the error means: "unsupported", "unavailable", "diverged", "oom", "crash"
    message: str
    traceback: str
    time_s: float  # seconds since the epoch: the rank that failed first is blamed


class Done(NamedTuple):
    """The last message of a rank whose task is finished."""


# --- results ---------------------------------------------------------------


class GpuUse(NamedTuple):
    """The activity of one GPU, of all its users, by NVML; None is a value that its card or driver does not report."""

    uuid: str
    busy_share: Optional[float] = None  # of the time, when a kernel ran; the mean of samples
    memory_bytes: Optional[int] = None  # in use at most, with what the driver keeps to itself
    watts: Optional[float] = None  # the mean
    most_watts: Optional[float] = None
    sm_clock_hz: Optional[float] = None  # of its multiprocessors, the mean
    least_sm_clock_hz: Optional[float] = None
    memory_clock_hz: Optional[float] = None  # the mean
    least_memory_clock_hz: Optional[float] = None
    celsius: Optional[int] = None  # at most
    throttled_by: Optional[List[str]] = None  # the reasons of lower clocks (stagebench.suite.worker.gpu_watch.REASONS)
    joules: Optional[float] = None  # by its own counter


class HostUse(NamedTuple):
    """The system's counts on a rank's cores during the measured steps of a pass, and the activity of its GPUs."""

    seconds: float
    busy_cpu_s: float  # of all processes, on the rank's cores
    steal_cpu_s: float  # of these cores, that a hypervisor gave to other guests
    cores: int  # that the rank may use
    own_cpu_s: Optional[float] = None  # of this measurement's processes that may use them; None: unknown
    clock_hz: Optional[float] = None  # of the rank's cores, the mean right after the last step
    cpu_joules: Optional[float] = None  # of the host's processors and their memory (RAPL); None: not readable
    gpu_joules: Optional[float] = None  # of the GPUs that this rank drives (NVML); None: not readable
    gpus: List[GpuUse] = []  # the GPUs that this rank drives; empty on a CPU, and where unknown


class Pass(NamedTuple):
    """The measurement of one pass."""

    name: str
    samples: int  # that entered the model in this rank's measured steps; of a network on several ranks, its share
    steady: bool  # whether no trend was left in the warm-up when measuring began
    warmup_s: List[float]
    step_s: List[float]  # on the trainer's time line, mark to mark
    wall_s: float  # from the common barrier until this rank's last step is done
    io_s: Optional[List[float]] = None  # of each step, the wait for its batch
    stage_s: Optional[Dict[str, List[float]]] = None  # of each step, by stage; of "staged"
    loss: Optional[float] = None  # the last step's, if the pass trains
    # If the pass takes turns with native steps: (native, this pass) seconds per step of every pair of blocks.
    pairs_s: Optional[List[Tuple[float, float]]] = None
    gradient_bytes: Optional[int] = None  # of "native": exchanged by each device in a step, in the mean
    spans_s: Optional[List[Tuple[float, float]]] = None  # of "staged": begin and end of each block, on the common clock
    clock_error_s: Optional[float] = None  # bound on the common clock's error there
    set_aside_s: Optional[List[float]] = None  # of "native": steps that do not count: other programs used the host
    own_pace: bool = False  # of "native": no rank waited for another one, and each made as many steps as it could
    host_use: Optional[HostUse] = None  # during the whole pass; of "native" it is in the rank's noise
    dropped_steps: int = 0  # of `step_s`, whose batch did not enter the model (backup workers)


class InFlight(NamedTuple):
    """A closed loop: a query is sent for each that is answered, so that as many are under way at any time."""

    queries: int
    per_s: float  # answers
    latency_s: float  # the median


class ServerUse(NamedTuple):
    """The model server that took the queries of the load `server`, and what a queue's model must know of it.

    None of the server's own is known of one that runs elsewhere.
    """

    name: str
    version: str  # "": unknown
    closed_loops: List[InFlight]  # of 1, 2, 4, ... queries, up to two full batches a worker
    ready_s: Optional[float] = None  # from its start to its first right answer
    delay_s: Optional[float] = None  # that the oldest query of a batch waits for others
    since_arrival: bool = False  # whether it waits from its arrival, or from when a worker takes it
    alone_s: Optional[float] = None  # of a lone query, beyond its delay and the predictor's time; the median
    gap_s: Optional[float] = None  # between two batches of the predictor while there always are queries; the mean
    processes: Optional[int] = None  # of the server, at the end
    resident_bytes: Optional[int] = None  # of all of them
    cores: Optional[float] = None  # that they kept busy while they were asked, in the mean


PREDICTOR_PARTS = ("assembly", "h2d", "forward", "d2h")  # of a query's latency
PARTS_INSIDE = ("queue", *PREDICTOR_PARTS)
PARTS_BEHIND = ("lag", "server", "hop", *PREDICTOR_PARTS)


class Try(NamedTuple):
    """Queries of one sample that arrive at one rate, by a Poisson process: the load `server`."""

    rate: float  # scheduled queries/s
    scheduled: int  # queries; fewer are answered where the queue grew beyond hope
    latency_s: List[float]  # of each answered query, from its scheduled arrival to its answer
    batches: List[int]  # queries of each batch, in order; empty of a model server elsewhere, where none is seen
    batch_s: List[float]  # seconds of the predictor for each batch
    # The mean over queries, together the mean latency: PARTS_INSIDE; behind a model server PARTS_BEHIND: "lag" of the
    # generator, "hop" through shared memory there and back, "server" for the way to the hop, its queue and its own
    # work. The way back is "back", or in "server" too if not every query was answered. Elsewhere: "lag" and "server".
    stage_s: Dict[str, float]
    wall_s: float
    compared: int = 0  # answers that were compared with the usual ones to their queries
    wrong: int = 0  # of them, those that were others
    # Of a model server; with the answered ones these are all queries that were sent:
    malformed: int = 0  # answers of another length
    refused: int = 0  # too many requests, or unavailable (429, 503)
    timed_out: int = 0  # by the server (408, 504), or not answered in time
    failed: int = 0  # any other status, or a broken connection
    lag_s: List[float] = []  # of each query, from its scheduled arrival to when it is sent, or a connection is opened


class Noise(NamedTuple):
    """The machine's noise: times of a fixed computation before the first pass and after the last, and system counts."""

    reference_before_s: List[float]
    reference_after_s: List[float]
    native: Optional[HostUse] = None  # None: no native pass, or a system that does not count
    train: Optional[HostUse] = None  # of the pass `train`: all of its epochs, without the tests between them
    comm: Optional[HostUse] = None  # of the task `comm`: all of it


class Memory(NamedTuple):
    """The peak memory of this rank, from its start to the end of its task."""

    host_bytes: int  # resident, of the process itself
    device_bytes: Optional[int] = None  # that the framework allocated on its devices; None: not reported


class Peaks(NamedTuple):
    """The peak rates of this rank's devices, measured on all ranks of the host at once."""

    flop_per_s: float  # of a matrix product, in the precision of the training
    bytes_per_s: float  # of a copy, read and written
    library: str  # that did both


class Layers(NamedTuple):
    """Medians of each layer's forward and backward, from adapters that can time single layers."""

    layers: List[LayerTimes]


class Kernels(NamedTuple):
    """The pass `kernels`: the framework's own profile of a few staged iterations."""

    stages: Dict[str, float]  # seconds of an iteration in which any kernel ran, overlaps once; medians
    rows: List[KernelTimes]  # the longest first; the rest is summed by stage and kind
    profiler: str  # "torch.profiler 2.13.0 (CUPTI)"
    trace: str = ""  # the file with the whole profile, next to this rank's messages; "": not kept


class Epoch(NamedTuple):
    """The result of one epoch of the pass `train`."""

    train_s: float  # training alone, from a common barrier until all is done
    test_s: float
    samples: int  # of this rank
    steps: int
    accuracy: float  # the share of test samples answered right
    loss: Optional[float] = None  # of its last step; None: not finite
    host_use: Optional[HostUse] = None  # while it trained; None: a system that does not count


class Training(NamedTuple):
    """The result of the pass `train`."""

    epochs: List[Epoch]
    loss_steps: List[int]  # the steps whose losses were kept
    losses: List[Optional[float]]
    loss_s: List[float]  # the time of each: seconds of training, without the tests between epochs
    open_s: Optional[float] = None  # to open the input, before the first epoch


class ProofLosses(NamedTuple):
    """The losses of the proof's iterations."""

    staged: List[Optional[float]]
    native: List[Optional[float]]
    oracle: List[Optional[float]]


class Proof(NamedTuple):
    """Distances from the float64 oracle; the verdict is the controller's."""

    losses: ProofLosses
    errors: Dict[str, Dict[str, float]]  # relative, by kind ("gradient", "native movement", ...) and tensor
    graph_digest: str
    weights_digest: str
    parameter_count: Optional[int] = None  # None, as `macs`: of a predictor, whose layers may be folded
    macs: Optional[int] = None  # multiply-accumulates of one sample's forward pass
    wrong: Dict[str, str] = {}  # "gradient of fc.weight": "is missing", "has shape (2, 3), not (3, 2)", ...
    factors: Dict[str, float] = {}  # "gradient of fc.weight": 8.0, where it is a multiple of the right one


class Behaviour(NamedTuple):
    """The errors of dropout, `predict` or `step_alone`; empty: none."""

    problems: List[str]


class ExchangeTimes(NamedTuple):
    """The timed exchanges of the task `comm`: of one message alone, or of all gradient tensors of a network."""

    kind: str  # "single"; of tensors: "row" (one after the other), "together" (all begun, then waited for)
    operation: str
    bytes: int  # of all messages of a sample
    messages: int
    sample_s: List[float]  # from the scheduled start, on the common clock, to this rank's end
    late_s: List[float] = []  # how long after it this rank began; empty without a schedule
    clock_error_s: Optional[float] = None  # bound on the common clock's error


class OverlapTimes(NamedTuple):
    """An exchange concurrent with computation: each alone, then both, samples taken in turns."""

    operation: str
    bytes: int
    exchange_s: List[float]
    compute_s: List[float]
    both_s: List[float]
    progressed_s: List[float]  # both, with calls between slices of computation that let the library progress
    slices: int  # of computation
    late_s: List[float] = []  # of each turn, the latest start of its four samples
    clock_error_s: Optional[float] = None


class SkippedSizes(NamedTuple):
    """Messages of the task `comm` that its budget had no time for."""

    bytes: List[int]


class Traffic(NamedTuple):
    """The traffic of one interface."""

    received_bytes: int
    sent_bytes: int


class Connection(NamedTuple):
    """An open TCP connection, both as "address:port"."""

    own: str
    other: str


class Wire(NamedTuple):
    """The traffic of this rank's host from before it joined to the end of its task, and its connections then."""

    interfaces: Dict[str, Traffic]
    connections: List[Connection] = []


class Notes(NamedTuple):
    """Notes for the reader of a record; a later note replaces an earlier one of the same name."""

    notes: Dict[str, Any]


Message = Union[
    Hello,
    Joined,
    Built,
    Phase,
    Progress,
    Waiting,
    Failed,
    Done,
    Pass,
    ServerUse,
    Try,
    Noise,
    Memory,
    Peaks,
    Layers,
    Kernels,
    Training,
    Proof,
    Behaviour,
    ExchangeTimes,
    OverlapTimes,
    SkippedSizes,
    Wire,
    Notes,
]
CODEC = LineCodec(Message)
encode = CODEC.encode
decode = CODEC.decode
name_of = CODEC.name_of
Kind = TypeVar("Kind")


def of_type(kind: Type[Kind], found: Iterable[Message]) -> List[Kind]:
    """Return the messages of one type, in order."""
    return [message for message in found if isinstance(message, kind)]
