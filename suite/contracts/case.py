"""A case: everything that decides one measurement, resolved; its id is a hash of these values."""

import hashlib
import json
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, Self

from stagebench.suite.contracts.deep import Part
from stagebench.suite.worker.case_parts import ITEMSIZES, Input, Sampling, Schedule, Serving, Training
from stagebench.suite.worker.pass_kinds import LOADS, NATIVE, OFFLINE, USUAL
from stagebench.workloads.catalogue import Workload

MOST = 10**9  # the upper bound of every count in a case
ALL_REDUCE = "all-reduce"  # what training does with gradients
OPERATIONS = (ALL_REDUCE, "broadcast", "reduce-scatter", "all-gather", "point-to-point", "all-to-all")
FLOAT32 = "float32"
DTYPES = tuple(ITEMSIZES)
OVERLAPPED = (1 << 16, 1 << 20, 1 << 24)  # bytes of the messages that are also measured during computation
MOST_NUMBERS = 10**12  # of a message
AUTO = "auto"  # a launcher's name in a plan: the first that can start the strategy


@dataclass(frozen=True)
class Placement:
    """The place of a case; written once, it means the same on every launcher."""

    nodes: int = 1
    ranks_per_node: int = 1
    device: str = "cpu"  # "cpu" or "cuda"
    devices: int = 1  # per rank, all driven by one process
    threads: int = 1  # per device
    launcher: str = AUTO  # a launcher's name, or AUTO
    binding: str = "none"  # "none" or "cores": each rank has cores of its own (stagebench.suite.worker.binding)
    hosts: tuple[str, ...] = ()  # one for each node, in order; (): this machine, or those that the launcher chooses
    share_devices: bool = False  # True: several ranks may drive one GPU; False: that is an error
    memory_limit: int = 0  # bytes that a process of a rank or server may allocate (RLIMIT_DATA); 0: no limit

    @property
    def ranks(self) -> int:
        """The number of ranks on all nodes."""
        return self.nodes * self.ranks_per_node

    @property
    def device_count(self) -> int:
        """The number of devices of all ranks."""
        return self.ranks * self.devices

    @property
    def devices_per_node(self) -> int:
        """The number of devices of all ranks on one node."""
        return self.ranks_per_node * self.devices

    @property
    def words(self) -> str:
        """The size in words: 1 rank, 2 ranks, 2 devices, 2 ranks of 4 devices."""
        ranks = f"{self.ranks} rank{'s' if self.ranks > 1 else ''}"
        if self.devices == 1:
            return ranks
        return f"{self.devices} devices" if self.ranks == 1 else f"{ranks} of {self.devices} devices"


def check_counts(place: Placement, *more: int) -> None:
    """Raise ValueError if a placement's counts, all its devices, or `more` (samples, processes) are not 1 to MOST."""
    counts = (place.nodes, place.ranks_per_node, place.devices, place.threads)
    if min(counts) < 1 or max(*counts, place.device_count) > MOST:
        raise ValueError(
            f"{str(counts)[:80]} nodes, ranks a node, devices a rank and threads; 1 to {MOST:,} are possible, "
            "of devices in all, too"
        )
    if more and (min(more) < 1 or max(more) > MOST):
        raise ValueError(f"{str(more)[:80]} samples and processes; 1 to {MOST:,} are possible")


@dataclass(frozen=True)
class Configuration:
    """The set-up and the placement of trainers: the argument of an adapter's methods.

    A case is one, and every other launch has one: a proof, a trial start, a measurement of communication.
    """

    adapter: str
    strategy: str
    workload: str
    placement: Placement = field(default_factory=Placement)
    batch: int = 8  # samples per device
    precision: str = "float32"
    tuning: str = "default"
    optimiser: str = "sgd"  # one of OPTIMISERS
    lr: float = 0.01  # resolved: the workload's, scaled to the global batch; Adam's is not scaled
    momentum: float = 0.9  # SGD only
    beta1: float = 0.0  # Adam only, like `beta2` and `epsilon`
    beta2: float = 0.0
    epsilon: float = 0.0
    weight_decay: float = 0.0
    clip_norm: float = 0.0  # the largest global norm of the gradients: larger ones are scaled down; 0: none is
    schedule: Part[Schedule] = field(default_factory=Schedule)  # changes of the rate in the pass `train`
    straggler: float = 0.0  # the share of its cores' time that the last rank loses to a concurrent load
    seed: int = 1
    readers: int = 1  # processes or threads per rank that decode; 0: the training process does
    input: Part[Input] = field(default_factory=Input)
    knobs: dict[str, Any] = field(default_factory=dict)  # a value for every knob of the adapter, defaults too

    @property
    def global_batch(self) -> int:
        """The number of samples of one iteration over all devices."""
        return self.batch * self.placement.device_count

    def on(self, **changes: Any) -> Self:
        """Return a copy with these fields changed."""
        return replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """Return the values of all fields by name, ready for JSON."""
        values = asdict(self)
        return {name: value._asdict() if hasattr(value, "_fields") else value for name, value in values.items()}


@dataclass(frozen=True)
class Collective:
    """The exchanges of a case of `stagebench comm`: one operation, message size by message size or tensor by tensor."""

    backend: str
    operation: str
    counts: tuple[int, ...]  # numbers of each message
    seconds: float  # of samples, a message size
    # The messages' names, if they are a network's gradient tensors, in the order in which backward completes them.
    tensors: tuple[str, ...] = ()
    budget: float = 0.0  # seconds for all messages without overlap, sizes beyond are skipped; 0: no limit
    dtype: str = FLOAT32  # of the numbers

    def __post_init__(self) -> None:
        """Raise ValueError for an unknown operation or type, or an impossible count: cases are read from files, too."""
        for value, known in ((self.operation, OPERATIONS), (self.dtype, DTYPES)):
            if value not in known:
                raise ValueError(f"{repr(value)[:80]} is none of {', '.join(known)}")
        if len(self.tensors) not in (0, len(self.counts)):
            raise ValueError(f"{len(self.tensors)} names of {len(self.counts)} messages")
        if not all(0 <= count <= MOST_NUMBERS for count in self.counts):
            raise ValueError(f"{str(self.counts)[:80]} numbers a message; 0 to {MOST_NUMBERS:,} are possible")

    @property
    def of_dtype(self) -> str:
        """The type in words, such as " of float16"; "" for the usual one."""
        return "" if self.dtype == FLOAT32 else f" of {self.dtype}"

    @property
    def sizes(self) -> list[int]:
        """Bytes of each message."""
        return [count * ITEMSIZES[self.dtype] for count in self.counts]

    @property
    def overlapped(self) -> tuple[int, ...]:
        """The counts that are also measured during computation: of all-reduce, which training overlaps."""
        if self.operation != ALL_REDUCE or self.tensors:
            return ()
        return tuple(count for count, size in zip(self.counts, self.sizes, strict=True) if size in OVERLAPPED)


# Fields added later: at these values they are left out of the hash, so the ids of older cases stay valid.
YOUNGER: dict[str, Any] = {
    "schedule": Schedule()._asdict(),
    "scaling": "weak",
    "straggler": 0.0,
    "collective": None,
    "clip_norm": 0.0,
    "serving": Serving()._asdict(),
}
YOUNGER_WITHIN: dict[str, dict[str, Any]] = {
    "placement": {"share_devices": False, "memory_limit": 0},
    "training": {"patience": 0},
    "serving": {"model_server": "inprocess", "workers": 1, "arrivals": "poisson", "address": "", "options": {}},
}


@dataclass(frozen=True)
class Case(Configuration):
    """adapter x strategy x workload x placement x batch x data x knobs, and how it is measured.

    With a `collective`, its processes are those of that training, and exchange messages in place of its passes.
    """

    data: str = "synthetic"  # "synthetic", a data set's name, or the full path of one of the user's
    passes: tuple[str, ...] = USUAL
    sampling: Part[Sampling] = field(default_factory=Sampling)
    training: Part[Training] = field(default_factory=Training)
    serving: Part[Serving] = field(default_factory=Serving)
    # "strong": the plan gives one batch for all devices together, the same for every number of devices. A case on one
    # device is "weak".
    scaling: Literal["weak", "strong"] = "weak"
    graph_digest: str = ""
    time_limit: float = 1800.0  # seconds for one process group
    silence_limit: float = 300.0  # seconds without any sign of progress from a rank
    collective: Collective | None = None

    @property
    def id(self) -> str:
        """A hash of every value, in twelve hexadecimal digits."""
        values = self.to_dict()
        kept = _but(values, YOUNGER)
        kept |= {name: _but(values[name], younger) for name, younger in YOUNGER_WITHIN.items() if name in kept}
        text = json.dumps(kept, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def infers(self) -> bool:
        """True if its passes ask a predictor: they are loads."""
        return bool(self.passes) and self.passes[0] in LOADS

    @property
    def speed_pass(self) -> str:
        """The pass that gives its speed."""
        return OFFLINE if self.infers else NATIVE

    def passes_of(self, repeat: int) -> tuple[str, ...]:
        """Return the passes of process group `repeat`, from 0: a speed needs many groups, a breakdown a few.

        Unless every group has a breakdown, the first one measures only the speed, so that every case soon has one; the
        second has the first breakdown, and the last ones have the others. A run that is stopped early thus lacks
        breakdowns rather than speeds.
        """
        of = self.sampling
        soon = 1 if of.processes > of.breakdowns > 0 else None
        late = range(of.processes - of.breakdowns + (soon is not None), of.processes)
        whole = self.infers or NATIVE not in self.passes or repeat == soon or repeat in late
        return self.passes if whole else (NATIVE,)

    @property
    def label(self) -> str:
        """The case in words: adapter/strategy, workload, size, batch and data, or "gloo all-reduce, 2 ranks"."""
        where, collective = self.placement.words, self.collective
        if collective:
            what = f"gradients of {self.workload}" if collective.tensors else collective.operation
            return f"{collective.backend} {what}{collective.of_dtype}, {where}"
        return f"{self.adapter}/{self.strategy} {self.workload} {where} batch {self.batch} {self.data_name}"

    @property
    def data_name(self) -> str:
        """The data set's short name: its name, or the last component of its path."""
        return self.data.rstrip("/").rsplit("/", 1)[-1]


def _but(values: dict[str, Any], unless: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in unless or value != unless[name]}


OPTIMISERS = ("sgd", "adam", "adamw")
ADAM = {
    "lr": 1e-3,
    "momentum": 0.0,
    "beta1": 0.9,
    "beta2": 0.999,
    "epsilon": 1e-7,
}  # Kingma and Ba 2014; Keras' epsilon
ADAMW = {**ADAM, "epsilon": 1e-8, "weight_decay": 0.05}  # torch's epsilon; the decay of Touvron 2021


def optimiser_settings(name: str, workload: Workload, global_batch: int, lr: float | None = None) -> dict[str, Any]:
    """Return the optimiser's fields of a `Configuration`, by name.

    Without `lr`, SGD has the workload's rate, scaled linearly with the global batch (in samples), Adam and AdamW have
    0.001. AdamW's decay is its own: the workload's is that of a gradient.
    """
    usual = workload.optimiser
    if name == "adam":
        values = {**ADAM, "weight_decay": usual.weight_decay}
    elif name == "adamw":
        values = dict(ADAMW)
    else:
        scaled = usual.lr * global_batch / usual.reference_batch
        values = {"lr": scaled, "momentum": usual.momentum, "weight_decay": usual.weight_decay}
    return {"optimiser": name, **values, **({} if lr is None else {"lr": lr})}


def rate_of_proof(case: Configuration, workload: Workload) -> float:
    """Return the learning rate of a case's proof: the workload's, for Adam 0.001 at most.

    The length of Adam's steps is its rate, whatever the gradients are.
    """
    return workload.proof_lr if case.optimiser == "sgd" else min(ADAM["lr"], workload.proof_lr)
