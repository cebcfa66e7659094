"""A network held in stages by several devices, and replicas of that: which device computes which microbatch when.

Each replica takes its devices' batches as one, in equal microbatches: forward of all, then backward of all (GPipe,
Huang et al. 2019; 1F1B takes as long, with less memory). Activations that cross a cut are sent on, and their gradients
come back. When a stage has ended its last backward, its replicas exchange its gradients in one message, and it updates.
If the exchange is part of backward, as in PyTorch's DDP, the gradients of activations wait for it. Stages that have
copies of a weight sum up its gradients before they update.
"""

from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import pairwise

import numpy as np

from stagebench.suite import plugins
from stagebench.suite.contracts.adapter import Strategy
from stagebench.suite.contracts.case import Configuration
from stagebench.suite.errors import RequestError
from stagebench.suite.plan.checks import INTO_STAGES
from stagebench.suite.predict.collectives import Link
from stagebench.suite.predict.data_parallel import INTERFERENCE
from stagebench.suite.predict.scenario import LayerCost, Layers, Scenario
from stagebench.suite.predict.timeline import INPUT, MESSAGE, Timeline
from stagebench.suite.worker.contract import Unsupported
from stagebench.workloads.graph import Graph


def pipeline(scenario: Scenario, ranks: int) -> Timeline:
    """Return one replica's iteration, until every stage has updated; RequestError for a fraction of a replica."""
    count = scenario.stages
    if ranks % count:
        raise RequestError(f"{ranks} ranks are no whole number of pipelines of {count} stages; ask for a multiple")
    if not all(layer.activations for layer in scenario.layers[:-1]):
        raise RequestError(
            "nothing says how many bytes cross a cut; give activation_bytes with the layers, or a workload"
        )
    line, slow, parts = Timeline(), scenario.jitter.slowest(ranks), cut(scenario)
    if scenario.input:
        line.add(INPUT, "reading", (), scenario.input)
    line.add("device 0", "h2d", (), scenario.h2d * count * slow)
    arrived: list[list[int]] = [[] for _ in range(scenario.microbatches)]
    for stage, part in enumerate(parts):
        seconds = sum(layer.forward for layer in part) * _piece(scenario) * slow
        for number, before in enumerate(arrived):
            span = line.add(f"device {stage}", "forward", (part[0].name, part[-1].name), seconds, before)
            if stage + 1 < len(parts):
                lane = f"link {stage} to {stage + 1}"
                arrived[number] = [line.add(lane, "activations", (), _crossing(scenario, part[-1]), (span,))]
    _backward(line, scenario, parts, slow, ranks // count)
    return line


def cut(scenario: Scenario) -> list[Layers]:
    """Return consecutive layers for each stage: by its borders, else such that the slowest stage is fastest.

    A stage takes, in forward and in backward, as long as it computes a microbatch, or as the cut after it is crossed.
    RequestError for fewer layers than stages.
    """
    layers, count = scenario.layers, scenario.stages
    if scenario.borders:
        return [layers[begin:end] for begin, end in pairwise([*scenario.borders, len(layers)])]
    if count > len(layers):
        raise RequestError(f"{len(layers)} layers with gradients cannot be cut into {count} stages; ask for fewer")
    crossing = np.array([0.0, *(_crossing(scenario, layer) for layer in layers[:-1]), 0.0])
    seconds = np.zeros((len(layers) + 1, len(layers) + 1))  # of a stage, by where it ends (rows) and begins
    for task in ("forward", "backward"):
        before = np.cumsum([0.0, *(getattr(layer, task) * _piece(scenario) for layer in layers)])
        seconds += np.maximum(before[:, np.newaxis] - before, crossing[:, np.newaxis])
    seconds[np.triu_indices(len(seconds))] = np.inf
    slowest, begins = seconds[:, 0], []  # of the stages so far, by where the last of them ends
    for _ in range(count - 1):
        options = np.maximum(slowest, seconds)
        begins.append(options.argmin(axis=1))
        slowest = options.min(axis=1)
    borders = [len(layers)]
    for begin in reversed(begins):
        borders.append(int(begin[borders[-1]]))
    return [layers[begin:end] for begin, end in pairwise([0, *reversed(borders)])]


def _backward(line: Timeline, scenario: Scenario, parts: list[Layers], slow: float, replicas: int) -> None:
    arrived: list[list[int]] = [[] for _ in range(scenario.microbatches)]
    network, total = scenario.network, sum(layer.bytes for layer in scenario.layers) or 1.0
    per_node = max(1, network.ranks_per_node // scenario.stages)
    cost = replace(network, ranks_per_node=per_node).all_reduce(replicas)
    last: dict[int, int] = {}  # of each stage, what its update waits for
    for stage in reversed(range(len(parts))):
        part, device = parts[stage], f"device {stage}"
        ends = part[0].name, part[-1].name
        seconds = sum(layer.backward for layer in part) * _piece(scenario) * slow
        size = sum(layer.bytes for layer in part)
        for number, before in enumerate(arrived):
            done = span = line.add(device, "backward", ends, seconds, before)
            if replicas > 1 and size and number + 1 == len(arrived):
                exchange = cost.seconds(size / scenario.compression)
                done = line.add(f"replicas of {stage}", MESSAGE, ends, exchange, (span,))
                done = line.add(device, INTERFERENCE, (), scenario.interference * exchange, (done,))
            if stage:
                lane, crossing = f"link {stage} to {stage - 1}", _crossing(scenario, parts[stage - 1][-1])
                after = (done if scenario.holds_back else span,)
                arrived[number] = [line.add(lane, "activations' gradients", (), crossing, after)]
        last[stage] = done
    of_layer = [stage for stage, part in enumerate(parts) for _ in part]
    for weight in scenario.tied:
        holders = {of_layer[place] for place in weight.places}
        if len(holders) > 1:
            between = replace(network, between=_link(scenario), ranks_per_node=1).all_reduce(len(holders))
            names = (scenario.layers[weight.places[0]].name, scenario.layers[weight.places[-1]].name)
            waited = [last[stage] for stage in holders]
            exchanged = line.add("tied weights", MESSAGE, names, between.seconds(weight.bytes), waited)
            last.update(dict.fromkeys(holders, exchanged))
    for stage, part in enumerate(parts):
        seconds = scenario.update * sum(layer.bytes for layer in part) / total * slow
        line.add(f"device {stage}", "update", (), seconds, (last[stage],))


def _piece(scenario: Scenario) -> float:
    """Return the size of a replica's microbatch, in batches of one device."""
    return scenario.stages / scenario.microbatches


def _crossing(scenario: Scenario, layer: LayerCost) -> float:
    """Return seconds to send a microbatch's activations after a layer, or their gradients, to the next stage."""
    link = _link(scenario)
    return link.alpha + link.beta * layer.activations * _piece(scenario)


def _link(scenario: Scenario) -> Link:
    """Return the link between stages."""
    network = scenario.network
    return network.within if network.within and network.ranks_per_node >= scenario.stages else network.between


@dataclass(frozen=True)
class Pipelines:
    """How a framework holds a network in stages on any number of devices: its cuts, microbatches, replicas."""

    graph: Graph
    cut: str  # how, one of INTO_STAGES
    stages: int | None  # of each of several pipelines; None: all devices hold one
    microbatches: Fraction
    by_stage: bool = False  # `microbatches` is per stage, not per pipeline
    known: dict[int, tuple[int, ...]] = field(default_factory=dict, compare=False, repr=False)  # borders, by stages

    def stages_on(self, ranks: int) -> int:
        """Return the number of stages per pipeline on `ranks` ranks."""
        return self.stages or ranks

    def pieces(self, ranks: int) -> Fraction:
        """Return the microbatches of a pipeline; a fraction for an impossible number of ranks."""
        return self.microbatches * (self.stages_on(ranks) if self.by_stage else 1)

    def borders(self, ranks: int) -> tuple[int, ...]:
        """Return the index of the layer that each stage begins with; Unsupported if the network cannot be cut so."""
        count = self.stages_on(ranks)
        if count not in self.known:
            self.known[count] = tuple(stage.begin for stage in INTO_STAGES[self.cut](self.graph, count))
        return self.known[count]

    def refusal(self, ranks: int, samples: Fraction) -> str | None:
        """Return why `ranks` ranks of `samples` samples each are impossible, with the remedy; None if they are not."""
        stages, pieces = self.stages_on(ranks), self.pieces(ranks)
        if ranks % stages:
            return f"they are no whole number of pipelines of {stages} stages; ask for a multiple of {stages}"
        if stages == 1:
            return None
        if pieces.denominator > 1:
            words = f"{stages} stages would take {float(pieces):g} microbatches"
            return f"{words}, {self.microbatches} a stage; ask for a multiple of {self.microbatches.denominator}"
        if samples * stages % pieces:
            return (
                f"the {float(samples * stages):g} samples of {stages} stages do not divide into {pieces} microbatches; "
                "ask for a number of ranks with which they do"
            )
        try:
            self.borders(ranks)
        except Unsupported as error:
            return str(error)
        return None

    def on(self, scenario: Scenario, ranks: int) -> Scenario:
        """Return the scenario of a possible number of ranks; a batch of all stages is read at once."""
        stages = self.stages_on(ranks)
        read = scenario.read * stages / scenario.stages
        if stages == 1:
            return scenario.but(stages=1, microbatches=1, borders=(), read=read)
        return scenario.but(stages=stages, microbatches=int(self.pieces(ranks)), borders=self.borders(ranks), read=read)


def strategy_of(case: Configuration) -> Strategy | None:
    """Return the declaration of a case's strategy; None if its adapter is not installed."""
    adapter = plugins.adapters().get(case.adapter)
    return adapter.capabilities.strategy(case.strategy) if adapter else None
