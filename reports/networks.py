"""The networks of a run: how many parameters each has, how deep it is, and whose it is."""

from collections.abc import Iterable
from dataclasses import dataclass

from suite import plugins
from suite.analysis.rows import Row
from suite.plan.networks import network_of
from suite.results.run_folder import RunFolder
from suite.text import grouped
from workloads.graph import Graph


@dataclass(frozen=True)
class Network:
    """One network, of all the run's cases with it."""

    name: str
    layers: int | None  # with weights, one behind the other, as networks are named by; None: it is not here
    parameters: int | None  # as proven, where it is not here
    batches: tuple[int, ...]  # per device
    source: str  # what its workload says of where it is from; "" where it is not a registered one


def networks_of(folder: RunFolder, rows: Iterable[Row]) -> list[Network]:
    """In the rows' order; of a network that has changed since they were measured, what the run itself knows."""
    return [_network(folder, name, own) for name, own in grouped(rows, lambda row: row.case.workload).items()]


def _network(folder: RunFolder, name: str, rows: list[Row]) -> Network:
    graph, known = network_of(folder.path, rows[0].case), plugins.workloads().get(name)
    counted = [row.proof.parameter_count for row in rows if row.proof and row.proof.parameter_count]
    parameters = graph.parameter_count if graph else next(iter(counted), None)
    source = known.source if known and graph and known.graph().digest == graph.digest else ""
    batches = tuple(sorted({row.case.batch for row in rows}))
    return Network(name, depth(graph) if graph else None, parameters, batches, source)


def depth(graph: Graph) -> int:
    """Layers with weights on the longest way through a network: AlexNet 8, GoogLeNet 22, ResNet-50 50."""
    behind: dict[str, int] = {}
    for layer in graph.layers:
        before = max((behind.get(name, 0) for name in layer.inputs), default=0)
        behind[layer.name] = before + layer.has_weights
    return max(behind.values())
