"""The cases of `stagebench comm`: the backends that adapters offer, and what each of them is asked to exchange."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

from stagebench.suite.contracts import knobs
from stagebench.suite.contracts.adapter import Adapter, Backend
from stagebench.suite.contracts.case import ALL_REDUCE, FLOAT32, OPERATIONS, Case, Collective, Placement
from stagebench.suite.contracts.launcher import starters
from stagebench.suite.errors import RequestError
from stagebench.suite.plan.resolve import Resolved
from stagebench.suite.plugins import adapters, launchers
from stagebench.suite.processes.interpreters import Needs
from stagebench.suite.worker.case_parts import ITEMSIZES, Sampling
from stagebench.workloads.catalogue import Workload

TIME_LIMIT = 1800.0  # seconds of a case, at least
SAMPLED = 3.0  # times the seconds asked for: a warm-up, and a last block of samples as long as all before it
OVERLAPPED = 5  # further sets of samples of an overlapped message: one begun and waited for, four in turns
WAYS = 3  # further sets of samples of a network's tensors, all at once
SILENCE_LIMIT = 120.0  # without a message that has arrived: a rank hangs


class Offer(NamedTuple):
    """A backend with the adapter that brings it."""

    adapter: Adapter
    backend: Backend

    @property
    def needs(self) -> Needs:
        """The owner of its environment: the backend if it has one of its own, else the adapter."""
        return self.backend if self.backend.environment else self.adapter


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
