"""A case: everything that decides one measurement, resolved; its id is a hash of these values."""

import hashlib
import json
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, Self

from suite.worker.pass_kinds import NATIVE, USUAL

MOST = 10**9  # the upper bound of every count in a case
AUTO = "auto"  # a launcher's name in a plan: the first that can start the strategy


@dataclass(frozen=True)
class Placement:
    """Where a case runs; written once, it means the same on every launcher."""

    nodes: int = 1
    ranks_per_node: int = 1
    device: str = "cpu"  # "cpu" or "cuda"
    devices: int = 1  # per rank, all driven by one process
    threads: int = 1  # per device
    launcher: str = AUTO  # a launcher's name, or AUTO
    binding: str = "none"  # "none" or "cores": each rank has cores of its own (suite.worker.binding)
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
class Sampling:
    """How long to measure, and how much of it before a number counts."""

    warmup_steps: int = 10  # at least; then until the steps no longer get quicker
    warmup_limit: float = 30.0  # seconds, after which a warm-up that still gets quicker ends and its row is marked
    steps: int = 50  # at least
    seconds: float = 10.0  # at least, per pass and process
    processes: int = 5  # process groups per case, started one after the other; each measures the speed
    breakdowns: int = 3  # the number of them that run the other passes, too
    quick: bool = False  # True: less than a full measurement, whose rows are marked


@dataclass(frozen=True)
class Input:
    """How real data are read."""

    mode: str = "disk"  # "disk": decoded during training; "memory": decoded once, before it begins
    page_cache: str = "as is"  # before every pass: "cold" drops the files from it, "warm" reads them into it
    prefetch: int = 2  # batches read ahead, per reader
    repeat: int = 1  # passes over the data set per epoch
    augment: str = "centre"  # "centre": the centre crop; "random": resized crops and flips (image folders)
    on_error: str = "fail"  # "fail", or "skip": an unreadable sample is replaced by the next one, and counted
    format: str = "files"  # "files": unpacked; else packed for the framework's own reader: "tfrecord", ...


@dataclass(frozen=True)
class Training:
    """What the pass `train` does."""

    epochs: int = 10
    held_out: float = 0.2  # the share of the data set on which accuracy is tested, which is not trained on
    target: float = 0.98  # an accuracy; the first epoch that reaches it, and its time, are reported
    patience: int = 0  # the number of epochs without a better accuracy after which training stops early; 0: never


@dataclass(frozen=True)
class Schedule:
    """How the learning rate changes in the pass `train`; `suite.worker.schedule` says what the words mean."""

    warmup_epochs: float = 0.0
    decay: str = "none"

    @property
    def words(self) -> str:
        """The addition to the optimiser in a label; "" for a constant rate."""
        rising = f"warm-up of {self.warmup_epochs:g} epochs" if self.warmup_epochs else ""
        falling = f"{self.decay} decay" if self.decay != "none" else ""
        return ", ".join(filter(None, (rising, falling)))


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
    optimiser: str = "sgd"  # "sgd" or "adam"
    lr: float = 0.01  # resolved: the workload's, scaled to the global batch; Adam's is not scaled
    momentum: float = 0.9  # SGD only
    beta1: float = 0.0  # Adam only, like `beta2` and `epsilon`
    beta2: float = 0.0
    epsilon: float = 0.0
    weight_decay: float = 0.0
    schedule: Schedule = field(default_factory=Schedule)  # changes of the rate in the pass `train`
    straggler: float = 0.0  # the share of its cores' time that the last rank loses to a concurrent load
    seed: int = 1
    readers: int = 1  # processes or threads per rank that decode; 0: the training process does
    input: Input = field(default_factory=Input)
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
        return asdict(self)


# Fields added later: at these values they are left out of the hash, so the ids of older cases stay valid.
YOUNGER: dict[str, Any] = {"schedule": asdict(Schedule()), "scaling": "weak", "straggler": 0.0}
YOUNGER_WITHIN: dict[str, dict[str, Any]] = {
    "placement": {"share_devices": False, "memory_limit": 0},
    "training": {"patience": 0},
}


@dataclass(frozen=True)
class Case(Configuration):
    """adapter x strategy x workload x placement x batch x data x knobs, and how it is measured."""

    data: str = "synthetic"  # "synthetic", a data set's name, or the full path of one of the user's
    passes: tuple[str, ...] = USUAL
    sampling: Sampling = field(default_factory=Sampling)
    training: Training = field(default_factory=Training)
    # "strong": the plan gives one batch for all devices together, the same for every number of devices. A case on one
    # device is "weak".
    scaling: Literal["weak", "strong"] = "weak"
    graph_digest: str = ""
    time_limit: float = 1800.0  # seconds for one process group
    silence_limit: float = 300.0  # seconds without any sign of progress from a rank

    @property
    def id(self) -> str:
        """A hash of every value, in twelve hexadecimal digits."""
        values = self.to_dict()
        within = {name: _but(values[name], younger) for name, younger in YOUNGER_WITHIN.items()}
        kept = {**_but(values, YOUNGER), **within}
        text = json.dumps(kept, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def passes_of(self, repeat: int) -> tuple[str, ...]:
        """Return the passes of process group `repeat`, from 0: a speed needs many groups, a breakdown a few.

        Unless every group has a breakdown, the first one measures only the speed, so that every case soon has one; the
        second has the first breakdown, and the last ones have the others. A run that is stopped early thus lacks
        breakdowns rather than speeds.
        """
        of = self.sampling
        soon = 1 if of.processes > of.breakdowns > 0 else None
        late = range(of.processes - of.breakdowns + (soon is not None), of.processes)
        whole = NATIVE not in self.passes or repeat == soon or repeat in late
        return self.passes if whole else (NATIVE,)

    @property
    def label(self) -> str:
        """The case in words, for a person: adapter/strategy, workload, size, batch and data."""
        where = self.placement.words
        return f"{self.adapter}/{self.strategy} {self.workload} {where} batch {self.batch} {self.data_name}"

    @property
    def data_name(self) -> str:
        """The data set's short name: its name, or the last component of its path."""
        return self.data.rstrip("/").rsplit("/", 1)[-1]


def _but(values: dict[str, Any], unless: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in unless or value != unless[name]}
