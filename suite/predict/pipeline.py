"""A network held in stages by several devices, and replicas of that: who computes which microbatch when.

Each replica takes its devices' batches as one, in equal microbatches: forward of all, then backward of all (GPipe,
Huang et al. 2019; 1F1B takes as long, with less memory). What crosses a cut is sent on, and its gradient comes back.
When a stage has ended its last backward, its replicas exchange its gradients in one message, and it updates. Where
that happens within the backward, as in PyTorch's DDP, the gradient of what crossed waits for it.
"""

from dataclasses import replace
from itertools import pairwise

import numpy as np

from suite.errors import RequestError
from suite.predict.data_parallel import INTERFERENCE
from suite.predict.scenario import LayerCost, Scenario
from suite.predict.timeline import INPUT, MESSAGE, Timeline

Part = tuple[LayerCost, ...]


def pipeline(scenario: Scenario, ranks: int) -> Timeline:
    """The iteration of one replica, until every stage has updated; RequestError for ranks that make no whole ones."""
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
    line.add(_device(0), "h2d", (), scenario.h2d * count * slow)
    _forward(line, scenario, parts, slow)
    _backward(line, scenario, parts, slow, ranks // count)
    return line


def cut(scenario: Scenario) -> list[Part]:
    """Consecutive layers for each stage: by its borders, else the slowest as fast as can be.

    A stage takes, forward and backward apart, as long as it computes a microbatch or as the cut after it is crossed.
    RequestError where there are too few.
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


def _device(stage: int) -> str:
    return f"device {stage}"


def _forward(line: Timeline, scenario: Scenario, parts: list[Part], slow: float) -> None:
    arrived: list[list[int]] = [[] for _ in range(scenario.microbatches)]
    for stage, part in enumerate(parts):
        seconds = sum(layer.forward for layer in part) * _piece(scenario) * slow
        for number, before in enumerate(arrived):
            span = line.add(_device(stage), "forward", _ends(part), seconds, before)
            if stage + 1 < len(parts):
                lane = f"link {stage} to {stage + 1}"
                arrived[number] = [line.add(lane, "activations", (), _crossing(scenario, part[-1]), (span,))]


def _backward(line: Timeline, scenario: Scenario, parts: list[Part], slow: float, replicas: int) -> None:
    arrived: list[list[int]] = [[] for _ in range(scenario.microbatches)]
    network, total = scenario.network, sum(layer.bytes for layer in scenario.layers) or 1.0
    per_node = max(1, network.ranks_per_node // scenario.stages)
    cost = replace(network, ranks_per_node=per_node).all_reduce(replicas)
    for stage in reversed(range(len(parts))):
        part = parts[stage]
        seconds = sum(layer.backward for layer in part) * _piece(scenario) * slow
        size = sum(layer.bytes for layer in part)
        for number, before in enumerate(arrived):
            done = span = line.add(_device(stage), "backward", _ends(part), seconds, before)
            if replicas > 1 and size and number + 1 == len(arrived):
                exchange = cost.seconds(size / scenario.compression)
                done = line.add(f"replicas of {stage}", MESSAGE, _ends(part), exchange, (span,))
                done = line.add(_device(stage), INTERFERENCE, (), scenario.interference * exchange, (done,))
            if stage:
                lane, crossing = f"link {stage} to {stage - 1}", _crossing(scenario, parts[stage - 1][-1])
                after = (done if scenario.holds_back else span,)
                arrived[number] = [line.add(lane, "activations' gradients", (), crossing, after)]
        line.add(_device(stage), "update", (), scenario.update * size / total * slow, (done,))


def _piece(scenario: Scenario) -> float:
    """A microbatch of a replica, in batches of one device."""
    return scenario.stages / scenario.microbatches


def _crossing(scenario: Scenario, layer: LayerCost) -> float:
    """Seconds of a microbatch's values after a layer, or of their gradients, from stage to stage."""
    network = scenario.network
    near = network.within if network.ranks_per_node >= scenario.stages else None
    link = near or network.between
    return link.alpha + link.beta * layer.activations * _piece(scenario)


def _ends(part: Part) -> tuple[str, str]:
    return part[0].name, part[-1].name
