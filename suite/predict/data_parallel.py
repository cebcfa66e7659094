"""Data parallelism: every device holds the whole network, and exchanges gradients by a schedule."""

import heapq

from suite.predict.collectives import Cost
from suite.predict.scenario import LayerCost, Scenario
from suite.predict.schedules import OVERLAPPING, Message, messages
from suite.predict.timeline import INPUT, MESSAGE, Timeline

DEVICE, LINK = "device", "link"
INTERFERENCE = "interference"  # the task of computing what the exchange kept the device from


def data_parallel(scenario: Scenario, ranks: int) -> Timeline:
    """The steady state's iteration on the slowest of so many ranks.

    The next batch is read meanwhile. With the schedule "priority" the iteration runs from the begin of backward to the
    end of the next forward, in which each layer waits for its own gradient alone; else it begins with the copy to the
    device, and the update waits for every gradient.
    """
    line, slow = Timeline(), scenario.jitter.slowest(ranks)
    layers = scenario.layers[::-1]
    cost = scenario.network.all_reduce(ranks)
    cost = Cost(cost.start, cost.per_byte / scenario.compression)
    sent = messages(scenario.schedule, layers, cost) if ranks > 1 else []
    lost = scenario.interference * sum(cost.seconds(_bytes(layers, message)) for message in sent)
    if scenario.input:
        line.add(INPUT, "reading", (), scenario.input)
    if scenario.schedule == "priority":
        ends = _by_priority(line, layers, sent, _backward(line, layers, slow), cost)
        line.add(DEVICE, "h2d", (), scenario.h2d * slow)
        total = sum(layer.bytes for layer in layers) or 1.0
        for index in range(len(layers) - 1, -1, -1):
            layer = layers[index]
            update = scenario.update * layer.bytes / total
            after = [ends[index]] if index in ends else []
            line.add(DEVICE, "update and forward", (layer.name,), (update + layer.forward) * slow, after)
        if lost:
            line.add(DEVICE, INTERFERENCE, (), lost)
        return line
    line.add(DEVICE, "h2d", (), scenario.h2d * slow)
    line.add(DEVICE, "forward", (), scenario.forward * slow)
    ready = _backward(line, layers, slow)
    for message in sent:
        _send(line, layers, message, cost, ready[message[-1] if scenario.schedule in OVERLAPPING else -1])
    last = [len(line.spans) - 1] if sent else []
    if lost:
        last = [line.add(DEVICE, INTERFERENCE, (), lost, last)]
    line.add(DEVICE, "update", (), scenario.update * slow, last)
    return line


def _backward(line: Timeline, layers: tuple[LayerCost, ...], slow: float) -> list[int]:
    return [line.add(DEVICE, "backward", (layer.name,), layer.backward * slow) for layer in layers]


def _send(line: Timeline, layers: tuple[LayerCost, ...], message: Message, cost: Cost, after: int) -> int:
    ends = layers[message[0]].name, layers[message[-1]].name
    return line.add(LINK, MESSAGE, ends, cost.seconds(_bytes(layers, message)), (after,))


def _bytes(layers: tuple[LayerCost, ...], message: Message) -> float:
    return sum(layers[index].bytes for index in message)


def _by_priority(
    line: Timeline, layers: tuple[LayerCost, ...], sent: list[Message], ready: list[int], cost: Cost
) -> dict[int, int]:
    """Send what forward needs first whenever the link is free; a message once begun is finished. Spans by layer."""
    waiting: list[int] = []
    ends: dict[int, int] = {}
    free, next_ready = 0.0, 0
    while len(ends) < len(sent):
        if not waiting:
            free = max(free, line.spans[ready[sent[next_ready][0]]].end)
        while next_ready < len(sent) and line.spans[ready[sent[next_ready][0]]].end <= free:
            heapq.heappush(waiting, -sent[next_ready][0])
            next_ready += 1
        index = -heapq.heappop(waiting)
        ends[index] = _send(line, layers, (index,), cost, ready[index])
        free = line.spans[ends[index]].end
    return ends
