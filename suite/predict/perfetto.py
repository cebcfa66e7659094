"""A predicted timeline as a trace that Perfetto and chrome://tracing show."""

from typing import Any

from suite.predict.timeline import Timeline

ITERATIONS = 3


def trace(line: Timeline) -> dict[str, Any]:
    """Iterations one after the other, microseconds; the format is Chrome's trace events."""
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
