"""A case: everything that decides one measurement, resolved; its id is a hash of these values."""

import hashlib
import json
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, Self

from suite.worker.pass_kinds import NATIVE, USUAL

MOST = 10**9  # of anything that a case counts
AUTO = "auto"  # for a launcher: the first of the strategy's


@dataclass(frozen=True)
class Placement:
    """Where a case runs; written once, it means the same on every launcher."""

    nodes: int = 1
    ranks_per_node: int = 1
    device: str = "cpu"  # "cpu" or "cuda"
    devices: int = 1  # per rank: one process drives them all
    threads: int = 1  # per device
    launcher: str = AUTO  # a launcher's name, or the first of the strategy's
    binding: str = "none"  # "none" or "cores": each rank has cores of its own (suite.worker.binding)
    hosts: tuple[str, ...] = ()
    share_devices: bool = False  # ranks may drive the same GPU; without it that is an error
    memory_limit: int = 0  # bytes that a process of a rank or server may allocate (RLIMIT_DATA); 0: no limit

    @property
    def ranks(self) -> int:
        """All ranks of the case."""
        return self.nodes * self.ranks_per_node

    @property
    def device_count(self) -> int:
        """All devices of the case."""
        return self.ranks * self.devices

    @property
    def devices_per_node(self) -> int:
        """Devices of all ranks on a node."""
        return self.ranks_per_node * self.devices

    @property
    def words(self) -> str:
        """1 rank, 2 ranks, 2 devices, 2 ranks of 4 devices."""
        ranks = f"{self.ranks} rank{'s' if self.ranks > 1 else ''}"
        if self.devices == 1:
            return ranks
        return f"{self.devices} devices" if self.ranks == 1 else f"{ranks} of {self.devices} devices"


def check_counts(place: Placement, *more: int) -> None:
    """ValueError for counts that are impossible, a placement's, each or multiplied, and `more`: samples, processes."""
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
    processes: int = 5  # that measure the speed; `breakdowns` of them run the other passes, too
    breakdowns: int = 3
    quick: bool = False  # fewer than the design asks for: such rows are marked


@dataclass(frozen=True)
class Input:
    """How real data are read."""

    mode: str = "disk"  # "disk": decoded as training goes; "memory": decoded once before it begins
    page_cache: str = "as is"  # before every pass: "cold" drops the files from it, "warm" reads them into it
    prefetch: int = 2  # batches read ahead, per reader
    repeat: int = 1  # times that the data set counts in an epoch
    augment: str = "centre"  # the centre crop, or "random" resized crops and flips (image folders)
    on_error: str = "fail"  # or "skip": an unreadable sample is replaced by the next one, and counted
    format: str = "files"  # the set as it stands, or packed for a framework's own reader: "tfrecord", ...


@dataclass(frozen=True)
class Training:
    """What the pass `train` does."""

    epochs: int = 10
    held_out: float = 0.2  # the share of the data set that accuracy is tested with
    target: float = 0.98  # the accuracy whose epoch and time are looked for
    patience: int = 0  # epochs without a better accuracy, after which training stops early; 0: never


@dataclass(frozen=True)
class Schedule:
    """How the learning rate changes in the pass `train`; `suite.worker.schedule` says what the words mean."""

    warmup_epochs: float = 0.0
    decay: str = "none"

    @property
    def words(self) -> str:
        """What a label adds to the optimiser: "" for one rate throughout."""
        rising = f"warm-up of {self.warmup_epochs:g} epochs" if self.warmup_epochs else ""
        falling = f"{self.decay} decay" if self.decay != "none" else ""
        return ", ".join(filter(None, (rising, falling)))


@dataclass(frozen=True)
class Configuration:
    """How trainers are set up and placed: what an adapter is asked about, and what its worker half is given.

    A case has one, and so has every other launch: a proof, a trial start, a measurement of communication.
    """

    adapter: str
    strategy: str
    workload: str
    placement: Placement = field(default_factory=Placement)
    batch: int = 8  # samples per device
    precision: str = "float32"
    tuning: str = "default"
    optimiser: str = "sgd"  # or "adam"
    lr: float = 0.01  # resolved: the workload's, scaled to the global batch; Adam's is not scaled
    momentum: float = 0.9  # of SGD
    beta1: float = 0.0  # of Adam; so are the next two
    beta2: float = 0.0
    epsilon: float = 0.0
    weight_decay: float = 0.0
    schedule: Schedule = field(default_factory=Schedule)  # of the rate
    straggler: float = 0.0  # share of its cores' time that the last rank loses to a load beside it
    seed: int = 1
    readers: int = 1
    input: Input = field(default_factory=Input)
    knobs: dict[str, Any] = field(default_factory=dict)  # every one of the adapter's (suite.contracts.knobs.values)

    @property
    def global_batch(self) -> int:
        """Samples of one iteration over all devices."""
        return self.batch * self.placement.device_count

    def on(self, **changes: Any) -> Self:
        """The same with some values changed."""
        return replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready values."""
        return asdict(self)


# Younger than the rest: a case that has these values keeps the id that it had before they came.
YOUNGER: dict[str, Any] = {"schedule": asdict(Schedule()), "scaling": "weak", "straggler": 0.0}
YOUNGER_WITHIN: dict[str, dict[str, Any]] = {
    "placement": {"share_devices": False, "memory_limit": 0},
    "training": {"patience": 0},
}


@dataclass(frozen=True)
class Case(Configuration):
    """adapter x strategy x workload x placement x batch x data x knobs, and how it is measured."""

    data: str = "synthetic"  # or a data set's name, or the full path of one of your own
    passes: tuple[str, ...] = USUAL
    sampling: Sampling = field(default_factory=Sampling)
    training: Training = field(default_factory=Training)
    # "strong": made from a batch for all devices together, which a sweep over devices keeps; one device is "weak".
    scaling: Literal["weak", "strong"] = "weak"
    graph_digest: str = ""
    time_limit: float = 1800.0  # seconds for one process group
    silence_limit: float = 300.0  # seconds without any sign of progress from a rank

    @property
    def id(self) -> str:
        """Twelve hexadecimal digits over every value."""
        values = self.to_dict()
        within = {name: _but(values[name], younger) for name, younger in YOUNGER_WITHIN.items()}
        kept = {**_but(values, YOUNGER), **within}
        text = json.dumps(kept, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def passes_of(self, repeat: int) -> tuple[str, ...]:
        """What its process number `repeat` runs: a speed wants many processes, a breakdown a few.

        The first has the speed alone, so that every case soon has one; the second has the first breakdown, and the
        last ones have the others: a run whose time is up early lacks these, and not speeds.
        """
        of = self.sampling
        soon = 1 if of.processes > of.breakdowns > 0 else None
        late = range(of.processes - of.breakdowns + (soon is not None), of.processes)
        whole = NATIVE not in self.passes or repeat == soon or repeat in late
        return self.passes if whole else (NATIVE,)

    @property
    def label(self) -> str:
        """What a person reads: adapter/strategy, workload, where, how much."""
        where = self.placement.words
        return f"{self.adapter}/{self.strategy} {self.workload} {where} batch {self.batch} {self.data_name}"

    @property
    def data_name(self) -> str:
        """The data set's short name: a named set's own, the last part of a path."""
        return self.data.rstrip("/").rsplit("/", 1)[-1]


def _but(values: dict[str, Any], unless: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in unless or value != unless[name]}
