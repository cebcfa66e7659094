"""The cases of `stagebench comm`: an operation over its sizes, or a network's gradient tensors, on one backend."""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from math import prod
from typing import Any

from suite.comm.offers import Offer
from suite.contracts import knobs
from suite.contracts.adapter import FLOAT32, OPERATIONS
from suite.contracts.case import Configuration, Placement
from suite.contracts.launcher import starters
from suite.errors import RequestError
from suite.plugins import launchers
from suite.processes.attempt import Limits
from suite.text import shown
from suite.worker.communicator import ITEMSIZES
from suite.worker.job import Communicate
from workloads.catalogue import Workload

GRADIENTS = "all-reduce"  # what training does with gradients
HIDDEN = (1 << 16, 1 << 20, 1 << 24)  # bytes of the messages that are also measured during computation
TIME_LIMIT = 1800.0  # seconds of a case, at least
SAMPLED = 3.0  # times the seconds asked for: a warm-up, and a last block of samples as long as all before it
OVERLAPPED = 5  # further sets of samples of an overlapped message: one begun and waited for, four in turns
WAYS = 3  # further sets of samples of a network's tensors, all at once
SILENCE_LIMIT = 120.0  # without a message that has arrived: a rank hangs
# Message sizes on the command line.
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}  # binary, as the powers of 4 are
FACTOR = 4
ITEMSIZE = 4  # every size is a multiple of it: a number of float32, two of the smaller types
LARGEST = 1 << 33  # bytes; beyond it counts no longer fit the libraries' integers


@dataclass(frozen=True)
class CommCase:
    """A case; its id is a hash of these values."""

    backend: str
    operation: str
    placement: Placement
    seconds: float  # of samples, a message size
    counts: tuple[int, ...] = ()  # numbers of each message
    budget: float = 0.0  # seconds for all of them without overlap, sizes beyond are skipped; 0: no limit
    workload: str | None = None  # instead of counts: its gradient tensors
    graph_digest: str = ""
    dtype: str = FLOAT32  # of the numbers

    def __post_init__(self) -> None:
        """Raise ValueError for an unknown operation or type, since cases are read from files, too."""
        for value, known in ((self.operation, OPERATIONS), (self.dtype, tuple(ITEMSIZES))):
            if value not in known:
                raise ValueError(f"{shown(value)} is none of {', '.join(known)}")

    @property
    def id(self) -> str:
        values = asdict(self)
        if self.dtype == FLOAT32:  # ids are older than types
            del values["dtype"]
        text = json.dumps(values, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def label(self) -> str:
        """The case in words: gloo all-reduce, 2 ranks."""
        what = f"gradients of {self.workload}" if self.workload else self.operation
        return f"{self.backend} {what}{self.of_dtype}, {self.placement.words}"

    @property
    def of_dtype(self) -> str:
        """The type in words, such as " of float16"; "" for the usual one."""
        return "" if self.dtype == FLOAT32 else f" of {self.dtype}"

    @property
    def itemsize(self) -> int:
        """Bytes of a number."""
        return ITEMSIZES[self.dtype]

    @property
    def hidden(self) -> tuple[int, ...]:
        """The counts that are also measured during computation: of all-reduce, which training overlaps."""
        sizes = {size // self.itemsize for size in HIDDEN} if self.operation == GRADIENTS else set()
        return tuple(count for count in self.counts if count in sizes)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Asked:
    """A request of the command line, its names checked."""

    operations: tuple[str, ...]
    sizes: tuple[int, ...]  # bytes
    workloads: tuple[str, ...]
    seconds: float
    ranks: int  # on each node
    hosts: tuple[str, ...] = ()
    launcher: str | None = None
    budget: float = 0.0  # seconds for all sizes of an operation; 0: no limit
    nodes: int = 1  # as many as hosts, where these are named
    dtypes: tuple[str, ...] = (FLOAT32,)


def cases(asked: Asked, offer: Offer, workloads: Mapping[str, Workload]) -> Iterator[CommCase]:
    """Yield every case of a backend, operations in the usual order."""
    backend, placement = offer.backend, _placement(asked, offer)
    for dtype in asked.dtypes:
        counts = tuple(size // ITEMSIZES[dtype] for size in asked.sizes)
        for operation in OPERATIONS:
            if operation in asked.operations:
                yield CommCase(backend.name, operation, placement, asked.seconds, counts, asked.budget, dtype=dtype)
        for name in asked.workloads:
            case = CommCase(backend.name, GRADIENTS, placement, asked.seconds, dtype=dtype)
            yield replace(case, workload=name, graph_digest=workloads[name].graph().digest)


def refusal(case: CommCase, offer: Offer) -> str | None:
    """Return why a backend cannot do a case; None if it can, as far as is known without running it."""
    backend, strategy = offer.backend, offer.adapter.capabilities.strategy(offer.backend.strategy)
    if case.operation not in backend.operations:
        return f"{backend.name} has no {case.operation}; it has {', '.join(backend.operations)}"
    if case.dtype not in backend.dtypes:
        return f"{backend.name} exchanges no {case.dtype}; it exchanges {', '.join(backend.dtypes)}"
    assert strategy is not None, f"{backend.name} names the strategy {backend.strategy!r}, which does not exist"
    starting = starters(strategy, launchers())
    if case.placement.launcher not in starting:
        return f"{backend.name} is started by {', '.join(starting)}, not by {case.placement.launcher}"
    return None


def configuration(case: CommCase, offer: Offer, workloads: Mapping[str, Workload]) -> Configuration:
    """Return the configuration of the training that these processes imitate, for variables and sidecars."""
    able = offer.adapter.capabilities
    return Configuration(
        offer.adapter.name,
        offer.backend.strategy,
        case.workload or next(iter(workloads)),
        case.placement,
        tuning=able.tunings[0],
        knobs=knobs.values(able.knobs),
    )


def limits(case: CommCase, workloads: Mapping[str, Workload]) -> Limits:
    """Return a case's time limits: its samples, its budget and the usual limit together."""
    sampled = len(case.counts) + OVERLAPPED * len(case.hidden)
    if case.workload:
        sampled = len({numbers for _, numbers in gradient_tensors(workloads[case.workload])}) + WAYS
    return Limits(TIME_LIMIT + case.budget + SAMPLED * case.seconds * sampled, SILENCE_LIMIT)


def task(case: CommCase, offer: Offer, workloads: Mapping[str, Workload]) -> Communicate:
    return Communicate(
        communicator=offer.backend.communicator,
        operation=case.operation,
        counts=list(case.counts),
        overlap=list(case.hidden),
        seconds=case.seconds,
        budget_s=case.budget,
        tensors=[count for _, count in gradient_tensors(workloads[case.workload])] if case.workload else None,
        dtype=case.dtype,
    )


def gradient_tensors(workload: Workload) -> list[tuple[str, int]]:
    """Return (name, numbers) of every gradient tensor, in the order in which backward completes them."""
    graph = workload.graph()
    return [
        (parameter.name, prod(parameter.shape))
        for layer in reversed(graph.layers)
        for parameter in reversed(layer.parameters)
    ]


def _placement(asked: Asked, offer: Offer) -> Placement:
    strategy, known = offer.adapter.capabilities.strategy(offer.backend.strategy), launchers()
    starting = starters(strategy, known) if strategy else ()
    reaching = [name for name in starting if asked.nodes == 1 or (name in known and known[name].several_hosts)]
    return Placement(
        nodes=asked.nodes,
        ranks_per_node=asked.ranks,
        device=offer.backend.device,
        launcher=asked.launcher or next(iter((*reaching, *starting)), ""),
        hosts=asked.hosts,
    )


def sizes_from(option: str) -> tuple[int, ...]:
    """Read "LOW:HIGH" as low, 4 x low, ... up to high, in bytes, and "SIZE" as one size.

    RequestError for another form, a size that is no multiple of 4 bytes, or HIGH below LOW.
    """
    low, colon, high = option.partition(":")
    begin = _bytes(low, option)
    end = _bytes(high, option) if colon else begin
    if end < begin:
        raise RequestError(f"--sizes {option!r} ends below its beginning; write LOW:HIGH, such as 4:64M")
    sizes = [begin]
    while sizes[-1] * FACTOR <= end:
        sizes.append(sizes[-1] * FACTOR)
    return tuple(sizes)


def _bytes(text: str, option: str) -> int:
    match = re.fullmatch(r"(\d+)\s*([KMG]?)I?B?", text.strip().upper())
    size = int(match.group(1)) * UNITS[match.group(2)] if match else 0
    if not 0 < size <= LARGEST or size % ITEMSIZE:
        raise RequestError(
            f"--sizes {option!r}: {text!r} is no message size; write bytes in multiples of {ITEMSIZE} with K, M or G, "
            "at most 8G: 4:64M, 1K:1M, 16M"
        )
    return size


def written(size: int) -> str:
    """Write 4 B, 1 KiB, 97.5 MiB; exact for whole numbers of a unit."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size / unit:.4g} {name}"
    return f"{size} B"
