"""An iteration as a graph of tasks on lanes: who waits for whom, from when to when.

Each lane (the input, the device, the link) does one task at a time. A task begins when the one before it on its lane
and all that it depends on have ended; whichever ended last is its cause. The chain of causes that leads to the
last end is the critical path.
"""

import heapq
from collections.abc import Iterable
from itertools import groupby
from typing import NamedTuple

from suite.predict.collectives import Cost
from suite.predict.scenario import LayerCost, Scenario
from suite.predict.schedules import OVERLAPPING, Message, messages

INPUT, DEVICE, LINK = "input", "device", "link"


class Span(NamedTuple):
    """A task; seconds from the iteration's begin."""

    lane: str
    task: str  # "backward"
    layers: tuple[str, ...]  # the first and the last of those whose it is; () for all
    begin: float
    end: float
    cause: int  # the index of the span whose end let this one begin; -1: the iteration's begin


class Timeline:
    """Spans, each after its causes."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self._last: dict[str, int] = {}

    def add(self, lane: str, task: str, layers: tuple[str, ...], seconds: float, after: Iterable[int] = ()) -> int:
        """Append a task to a lane; returns its index, which later tasks may name in `after`."""
        cause, begin = self._last.get(lane, -1), 0.0
        if cause >= 0:
            begin = self.spans[cause].end
        for index in after:
            if self.spans[index].end > begin:
                cause, begin = index, self.spans[index].end
        self.spans.append(Span(lane, task, layers, begin, begin + seconds, cause))
        self._last[lane] = len(self.spans) - 1
        return len(self.spans) - 1

    @property
    def seconds(self) -> float:
        return max(span.end for span in self.spans)

    @property
    def exchanging(self) -> float:
        """Seconds in which the link is busy."""
        return sum(span.end - span.begin for span in self.spans if span.lane == LINK)

    @property
    def critical_path(self) -> list[Span]:
        """From the begin to the end without a gap."""
        index = max(range(len(self.spans)), key=lambda each: self.spans[each].end)
        found = []
        while index >= 0:
            found.append(self.spans[index])
            index = self.spans[index].cause
        return found[::-1]

    @property
    def words(self) -> str:
        """The critical path for a person: forward 63.2 ms, backward of fc to conv1 126.5 ms, ..."""
        parts = []
        for (lane, task), group in groupby(self.critical_path, key=lambda span: (span.lane, span.task)):
            spans = [span for span in group if span.end > span.begin]
            if spans:
                ends = dict.fromkeys((*spans[0].layers[:1], *spans[-1].layers[-1:]))
                what = f"{len(spans)} {task}{'s' if len(spans) > 1 else ''}" if lane == LINK else task
                whose = f" of {' to '.join(ends)}" if ends else ""
                parts.append(f"{what}{whose} {_ms(spans[-1].end - spans[0].begin)}")
        return ", then ".join(parts)


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:,.0f} ms" if seconds >= 0.1 else f"{1000 * seconds:.3g} ms"


def timeline(scenario: Scenario, ranks: int) -> Timeline:
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
        return line
    line.add(DEVICE, "h2d", (), scenario.h2d * slow)
    line.add(DEVICE, "forward", (), scenario.forward * slow)
    ready = _backward(line, layers, slow)
    for message in sent:
        _send(line, layers, message, cost, ready[message[-1] if scenario.schedule in OVERLAPPING else -1])
    last = [len(line.spans) - 1] if sent else []
    line.add(DEVICE, "update", (), scenario.update * slow, last)
    return line


def _backward(line: Timeline, layers: tuple[LayerCost, ...], slow: float) -> list[int]:
    """The span of each layer."""
    return [line.add(DEVICE, "backward", (layer.name,), layer.backward * slow) for layer in layers]


def _send(line: Timeline, layers: tuple[LayerCost, ...], message: Message, cost: Cost, after: int) -> int:
    ends = layers[message[0]].name, layers[message[-1]].name
    size = sum(layers[index].bytes for index in message)
    return line.add(LINK, "message", ends, cost.seconds(size), (after,))


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
