"""A network held in stages by several devices, and replicas of that: who computes which microbatch when.

Each replica takes its devices' batches as one, in equal microbatches: forward of all, then backward of all (GPipe,
Huang et al. 2019; 1F1B takes as long, with less memory). What crosses a cut is sent on, and its gradient comes back.
When a stage has ended its last backward, its replicas exchange its gradients in one message, and it updates.
"""

from itertools import pairwise

import numpy as np

from suite.errors import RequestError
from suite.predict.collectives import Network
from suite.predict.scenario import LayerCost, Scenario
from suite.predict.timeline import INPUT, MESSAGE, Timeline

Part = tuple[LayerCost, ...]


def pipeline(scenario: Scenario, ranks: int) -> Timeline:
    """The iteration of one replica, until every stage has updated; RequestError for ranks that make no whole ones."""
    count = scenario.stages
    if ranks % count:
        raise RequestError(f"{ranks} ranks are no whole number of pipelines of {count} stages; ask for a multiple")
    line, slow, parts = Timeline(), scenario.jitter.slowest(ranks), cut(scenario.layers, count)
    if scenario.input:
        line.add(INPUT, "reading", (), scenario.input)
    line.add(_device(0), "h2d", (), scenario.h2d * count * slow)
    _forward(line, scenario, parts, slow)
    _backward(line, scenario, parts, slow, ranks // count)
    return line


def cut(layers: Part, count: int) -> list[Part]:
    """Consecutive layers, the slowest stage as fast as can be; RequestError where there are not as many layers."""
    if count > len(layers):
        raise RequestError(f"{len(layers)} layers with gradients cannot be cut into {count} stages; ask for fewer")
    before = np.concatenate([[0.0], np.cumsum([layer.forward + layer.backward for layer in layers])])
    slowest, begins = before.copy(), []  # of the stages so far, by the layer after them
    slowest[0] = np.inf
    for _ in range(count - 1):
        # By where the last stage ends (rows) and begins (columns, earlier).
        options = np.maximum(slowest, before[:, np.newaxis] - before)
        options[np.triu_indices(len(before))] = np.inf
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
                arrived[number] = [line.add(lane, "activations", (), _crossing(scenario, part), (span,))]


def _backward(line: Timeline, scenario: Scenario, parts: list[Part], slow: float, replicas: int) -> None:
    arrived: list[list[int]] = [[] for _ in range(scenario.microbatches)]
    network, total = scenario.network, sum(layer.bytes for layer in scenario.layers) or 1.0
    per_node = max(1, network.ranks_per_node // scenario.stages)
    cost = Network(network.between, network.within, per_node, network.algorithm, network.servers).all_reduce(replicas)
    for stage in reversed(range(len(parts))):
        part = parts[stage]
        seconds, size = (
            sum(layer.backward for layer in part) * _piece(scenario) * slow,
            sum(layer.bytes for layer in part),
        )
        for number, before in enumerate(arrived):
            span = line.add(_device(stage), "backward", _ends(part), seconds, before)
            if stage:
                lane, crossing = f"link {stage} to {stage - 1}", _crossing(scenario, parts[stage - 1])
                arrived[number] = [line.add(lane, "activations' gradients", (), crossing, (span,))]
        if replicas > 1 and size:
            exchange = cost.seconds(size / scenario.compression)
            span = line.add(f"replicas of {stage}", MESSAGE, _ends(part), exchange, (span,))
        line.add(_device(stage), "update", (), scenario.update * size / total * slow, (span,))


def _piece(scenario: Scenario) -> float:
    """A microbatch of a replica, in batches of one device."""
    return scenario.stages / scenario.microbatches


def _crossing(scenario: Scenario, part: Part) -> float:
    """Seconds of a microbatch's values, or of their gradients, from stage to stage."""
    network = scenario.network
    near = network.within if network.ranks_per_node >= scenario.stages else None
    link = near or network.between
    if not part[-1].activations:
        raise RequestError(
            f"nothing says how many bytes cross the cut after {part[-1].name}; give activation_bytes, or a workload"
        )
    return link.alpha + link.beta * part[-1].activations * _piece(scenario)


def _ends(part: Part) -> tuple[str, str]:
    return part[0].name, part[-1].name
