"""The cases of `stagebench comm`: the backends that adapters offer, and what each of them is asked to exchange."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path

from suite.contracts import knobs
from suite.contracts.adapter import Adapter, Backend
from suite.contracts.case import ALL_REDUCE, FLOAT32, ITEMSIZES, OPERATIONS, Case, Collective, Placement
from suite.contracts.launcher import starters
from suite.errors import RequestError
from suite.plan.resolve import Resolved
from suite.plugins import adapters, launchers
from suite.worker.case_parts import Sampling
from workloads.catalogue import Workload

TIME_LIMIT = 1800.0  # seconds of a case, at least
SAMPLED = 3.0  # times the seconds asked for: a warm-up, and a last block of samples as long as all before it
OVERLAPPED = 5  # further sets of samples of an overlapped message: one begun and waited for, four in turns
WAYS = 3  # further sets of samples of a network's tensors, all at once
SILENCE_LIMIT = 120.0  # without a message that has arrived: a rank hangs


@dataclass(frozen=True)
class Offer:
    """A backend with the adapter that brings it; it has the attributes that `find` reads of an adapter."""

    adapter: Adapter
    backend: Backend

    @property
    def name(self) -> str:
        """The name in `--python NAME=PATH`: the backend's if it has an environment of its own, else the adapter's."""
        return self.backend.name if self.backend.environment else self.adapter.name

    @property
    def environment(self) -> str | None:
        return self.backend.environment or self.adapter.environment

    @property
    def requires(self) -> tuple[str, ...]:
        return self.backend.requires if self.backend.environment else self.adapter.requires

    @property
    def remedy(self) -> str:
        return self.backend.remedy if self.backend.environment else self.adapter.remedy

    def missing(self, interpreter: Path) -> str | None:
        """Return what the interpreter's environment lacks: the backend's programs, or the adapter's requirements."""
        if not self.backend.environment:
            return self.adapter.missing(interpreter)
        missing = [name for name in self.backend.programs if not (interpreter.parent / name).exists()]
        if not missing:
            return None
        absent = " and no ".join(missing)
        return f"there is no {absent} next to {interpreter}, so this is not its environment; {self.remedy}"


def offers() -> dict[str, Offer]:
    """Return every backend by name; RequestError if two adapters use one name."""
    by_name: dict[str, Offer] = {}
    for adapter in adapters().values():
        for backend in adapter.backends:
            if backend.name in by_name:
                raise RequestError(f"two adapters bring the backend {backend.name!r}; uninstall or rename one of them")
            by_name[backend.name] = Offer(adapter, backend)
    return by_name


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


def collectives(asked: Asked, offer: Offer, workloads: Mapping[str, Workload]) -> Iterator[Resolved]:
    """Yield every case of a backend, operations in the usual order, then networks' gradient tensors."""
    adapter, backend, known = offer.adapter, offer.backend, launchers()
    able, strategy = adapter.capabilities, adapter.capabilities.strategy(backend.strategy)
    assert strategy is not None, f"{backend.name} names the strategy {backend.strategy!r}, which does not exist"
    starting = starters(strategy, known)
    reaching = [name for name in starting if asked.nodes == 1 or (name in known and known[name].several_hosts)]
    placement = Placement(
        nodes=asked.nodes,
        ranks_per_node=asked.ranks,
        device=backend.device,
        launcher=asked.launcher or next(iter((*reaching, *starting)), ""),
        hosts=asked.hosts,
    )
    training = Case(  # that the processes imitate, for variables and sidecars
        adapter.name,
        backend.strategy,
        next(iter(workloads)),
        placement,
        tuning=able.tunings[0],
        knobs=knobs.values(able.knobs),
        passes=(),
        sampling=Sampling(processes=1),
        silence_limit=SILENCE_LIMIT,
    )
    for dtype in asked.dtypes:
        counts = tuple(size // ITEMSIZES[dtype] for size in asked.sizes)
        operations = [operation for operation in OPERATIONS if operation in asked.operations]
        exchanges = [(training, operation, counts, (), asked.budget) for operation in operations]
        for network in asked.workloads:
            case = training.on(workload=network, graph_digest=workloads[network].graph().digest)
            names, numbers = zip(*gradient_tensors(workloads[network]), strict=True)
            exchanges.append((case, ALL_REDUCE, numbers, names, 0.0))
        for case, operation, numbers, names, budget in exchanges:
            one = Collective(backend.name, operation, numbers, asked.seconds, names, budget, dtype)
            sampled = len(set(numbers)) + WAYS if names else len(numbers) + OVERLAPPED * len(one.overlapped)
            limit, reason = TIME_LIMIT + budget + SAMPLED * asked.seconds * sampled, ""
            if operation not in backend.operations:
                reason = f"{backend.name} has no {operation}; it has {', '.join(backend.operations)}"
            elif dtype not in backend.dtypes:
                reason = f"{backend.name} exchanges no {dtype}; it exchanges {', '.join(backend.dtypes)}"
            elif placement.launcher not in starting:
                reason = f"{backend.name} is started by {', '.join(starting)}, not by {placement.launcher}"
            yield Resolved(case.on(collective=one, time_limit=limit), "unsupported" if reason else None, reason)


def gradient_tensors(workload: Workload) -> list[tuple[str, int]]:
    """Return (name, numbers) of every gradient tensor, in the order in which backward completes them."""
    graph = workload.graph()
    return [
        (parameter.name, prod(parameter.shape))
        for layer in reversed(graph.layers)
        for parameter in reversed(layer.parameters)
    ]
