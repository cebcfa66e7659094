"""An iteration as a graph of tasks on lanes: which task waits for which, from when to when.

Each lane (a device, a link, the input) does one task at a time. A task begins when the one before it on its lane and
all that it depends on have ended; the one that ended last is its cause. The chain of causes that leads to the last end
is the critical path.
"""

from collections.abc import Sequence
from itertools import groupby
from typing import Any, NamedTuple

INPUT = "input"  # the lane of the readers
MESSAGE = "message"  # the task of exchanging gradients


class Span(NamedTuple):
    """A task; seconds from the iteration's begin."""

    lane: str
    task: str  # "backward"
    layers: tuple[str, ...]  # the first and the last layer of the task; () for all
    begin: float
    end: float
    cause: int  # the index of the span whose end let this one begin; -1: the iteration's begin
    after: Sequence[int] = ()  # spans that it waits for, in addition to the one before it on its lane


class Timeline:
    """Spans, each after its causes."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self._last: dict[str, int] = {}

    def add(self, lane: str, task: str, layers: tuple[str, ...], seconds: float, after: Sequence[int] = ()) -> int:
        """Append a task to a lane; return its index, which later tasks may name in `after`."""
        cause, begin = self._last.get(lane, -1), 0.0
        if cause >= 0:
            begin = self.spans[cause].end
        for index in after:
            if self.spans[index].end > begin:
                cause, begin = index, self.spans[index].end
        self.spans.append(Span(lane, task, layers, begin, begin + seconds, cause, after))
        self._last[lane] = len(self.spans) - 1
        return len(self.spans) - 1

    @property
    def seconds(self) -> float:
        return max(span.end for span in self.spans)

    @property
    def trained(self) -> float:
        """Seconds without waiting for the next batch."""
        return max(span.end for span in self.spans if span.lane != INPUT)

    @property
    def messages(self) -> list[Span]:
        return [span for span in self.spans if span.task == MESSAGE]

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
        for task, group in groupby(self.critical_path, key=lambda span: span.task):
            spans = [span for span in group if span.end > span.begin]
            if spans:
                ends = dict.fromkeys((*spans[0].layers[:1], *spans[-1].layers[-1:]))
                what = f"{len(spans)} {task}{'s' if len(spans) > 1 else ''}" if task == MESSAGE else task
                whose = f" of {' to '.join(ends)}" if ends else ""
                ms = 1000 * (spans[-1].end - spans[0].begin)
                parts.append(f"{what}{whose} {ms:,.0f} ms" if ms >= 100 else f"{what}{whose} {ms:.3g} ms")
        return ", then ".join(parts)


ITERATIONS = 3


def trace(line: Timeline) -> dict[str, Any]:
    """Return ITERATIONS iterations as Chrome's trace events, which Perfetto and chrome://tracing show."""
    lanes = list(dict.fromkeys(span.lane for span in line.spans))
    names: list[dict[str, Any]] = [
        {"ph": "M", "pid": 1, "tid": number, "name": "thread_name", "args": {"name": lane}}
        for number, lane in enumerate(lanes)
    ]
    events = [
        {
            "ph": "X",
            "pid": 1,
            "tid": lanes.index(span.lane),
            "name": " ".join((span.task, *dict.fromkeys(span.layers))),
            "cat": span.task,
            "ts": 1e6 * (number * line.seconds + span.begin),
            "dur": 1e6 * (span.end - span.begin),
            "args": {"iteration": number},
        }
        for number in range(ITERATIONS)
        for span in line.spans
    ]
    return {"traceEvents": names + events, "displayTimeUnit": "ms"}
