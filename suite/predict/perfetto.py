"""A predicted timeline as a trace that Perfetto and chrome://tracing show."""

from typing import Any

from suite.predict.timeline import DEVICE, INPUT, LINK, Timeline

LANES = (INPUT, DEVICE, LINK)
ITERATIONS = 3


def trace(line: Timeline) -> dict[str, Any]:
    """Iterations one after the other, microseconds; the format is Chrome's trace events."""
    names: list[dict[str, Any]] = [
        {"ph": "M", "pid": 1, "tid": LANES.index(lane), "name": "thread_name", "args": {"name": lane}} for lane in LANES
    ]
    events = [
        {
            "ph": "X",
            "pid": 1,
            "tid": LANES.index(span.lane),
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
