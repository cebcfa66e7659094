"""Data parallelism: every device holds the whole network and exchanges gradients by a schedule.

A schedule decides which gradients travel together, and when: messages of neighbouring layers, in the order in which
backward ends. A message is a tuple of indices into the layers in backward order: the last layer of the network first.
"""

import heapq
from collections.abc import Sequence

import numpy as np

from stagebench.suite.predict.collectives import Cost
from stagebench.suite.predict.scenario import LayerCost, Layers, Scenario
from stagebench.suite.predict.timeline import INPUT, MESSAGE, Timeline

FIRST_BUCKET, BUCKET = 2**20, 25 * 2**20  # bytes; PyTorch's defaults
OVERLAPPING = ("wfbp", "buckets", "merged", "priority")

Message = tuple[int, ...]


def messages(schedule: str, layers: Sequence[LayerCost], cost: Cost) -> list[Message]:
    """Return the messages of a schedule (stagebench.suite.predict.scenario.SCHEDULES); `cost` is one message's."""
    sent = [index for index, layer in enumerate(layers) if layer.bytes]
    if schedule == "fused":
        return [tuple(sent)] if sent else []
    if schedule == "merged":
        return _merged(layers, sent, cost)
    if schedule != "buckets":
        return [(index,) for index in sent]
    buckets: list[list[int]] = [[]]
    limit, held = FIRST_BUCKET, 0.0
    for index in sent:
        if held >= limit:  # a bucket is closed once it holds its limit, or more
            buckets.append([])
            limit, held = BUCKET, 0.0
        buckets[-1].append(index)
        held += layers[index].bytes
    return [tuple(bucket) for bucket in buckets if bucket]


def _merged(layers: Sequence[LayerCost], sent: list[int], cost: Cost) -> list[Message]:
    """Return a way to cut the layers into neighbours whose last message ends earliest, in few messages.

    end(j) = min over i < j of max(end(i), ready(j)) + cost of i+1 ... j. An earlier end never delays
    what follows, so that the best way to send the first j layers is part of a best way to send all.
    """
    count = len(sent)
    ready = np.cumsum([layer.backward for layer in layers])[sent]
    size = np.concatenate([[0.0], np.cumsum([layers[index].bytes for index in sent])])
    end = np.zeros(count + 1)
    for j in range(1, count + 1):
        end[j] = (np.maximum(end[:j], ready[j - 1]) + cost.start + cost.per_byte * (size[j] - size[:j])).min()
    found: list[Message] = []
    deadline = end[-1]
    while count:  # from the last message back, each with as many layers as the earliest end of all allows
        seconds = cost.start + cost.per_byte * (size[count] - size[:count])
        in_time = np.maximum(end[:count], ready[count - 1]) + seconds <= deadline * (1 + 1e-12)
        begin = int(in_time.argmax())
        found.append(tuple(sent[begin:count]))
        count, deadline = begin, deadline - seconds[begin]
    return found[::-1]


DEVICE, LINK = "device", "link"
INTERFERENCE = "interference"  # the task of computing that the exchange delayed


def data_parallel(scenario: Scenario, ranks: int) -> Timeline:
    """Return the steady state's iteration on the slowest of `ranks` ranks.

    The next batch is read at the same time. With the schedule "priority" the iteration runs from the begin of backward
    to the end of the next forward, in which each layer waits for its own gradient alone; else it begins with the copy
    to the device, and the update waits for every gradient.
    """
    line, slow = Timeline(), scenario.jitter.slowest(ranks)
    layers = scenario.layers[::-1]
    cost = scenario.network.all_reduce(ranks)
    cost = Cost(cost.start, cost.per_byte / scenario.compression)
    sent = messages(scenario.schedule, layers, cost) if ranks > 1 else []
    lost = scenario.interference * sum(cost.seconds(_bytes(layers, message)) for message in sent)
    if scenario.input:
        line.add(INPUT, "reading", (), scenario.input)
    if scenario.schedule != "priority":
        line.add(DEVICE, "h2d", (), scenario.h2d * slow)
        line.add(DEVICE, "forward", (), scenario.forward * slow)
    ready = [line.add(DEVICE, "backward", (layer.name,), layer.backward * slow) for layer in layers]
    if scenario.schedule == "priority":
        ends = _by_priority(line, layers, sent, ready, cost)
        line.add(DEVICE, "h2d", (), scenario.h2d * slow)
        total = sum(layer.bytes for layer in layers) or 1.0
        for index, layer in reversed(list(enumerate(layers))):
            update = scenario.update * layer.bytes / total
            after = [ends[index]] if index in ends else []
            line.add(DEVICE, "update and forward", (layer.name,), (update + layer.forward) * slow, after)
        if lost:
            line.add(DEVICE, INTERFERENCE, (), lost)
        return line
    for message in sent:
        _send(line, layers, message, cost, ready[message[-1] if scenario.schedule in OVERLAPPING else -1])
    last = [len(line.spans) - 1] if sent else []
    if lost:
        last = [line.add(DEVICE, INTERFERENCE, (), lost, last)]
    line.add(DEVICE, "update", (), scenario.update * slow, last)
    return line


def _send(line: Timeline, layers: Layers, message: Message, cost: Cost, after: int) -> int:
    ends = layers[message[0]].name, layers[message[-1]].name
    return line.add(LINK, MESSAGE, ends, cost.seconds(_bytes(layers, message)), (after,))


def _bytes(layers: Layers, message: Message) -> float:
    return sum(layers[index].bytes for index in message)


def _by_priority(line: Timeline, layers: Layers, sent: list[Message], ready: list[int], cost: Cost) -> dict[int, int]:
    """Send the gradient that forward needs first whenever the link is free; return spans by layer."""
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
