"""MLPerf's training logs (https://github.com/mlcommons/logging): lines of `:::MLLOG` and a JSON object.

The speed is that of all epochs, or the median throughput where a log has no epochs. Runs that missed their target, as
those of which the end is missing, are no results.
"""

import json
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any, NamedTuple

from stagebench.reports.imports.printed import Printed, Result, Skipped, case_of
from stagebench.suite.contracts.case import Placement
from stagebench.suite.results.foreign import SYSTEM, UNKNOWN, Speed

PROGRAM = "MLPerf training"
BEFORE = ("submission_benchmark", "submission_org", "submission_platform", "cache_clear", "init_start")
NETWORKS = {"resnet": "resnet50"}  # MLPerf's names of ours


class Event(NamedTuple):
    """A line of the log."""

    line: int
    ms: float  # since 1970
    key: str
    value: Any
    more: dict[str, Any]


def mlperf(printed: Printed) -> Iterator[Result | Skipped]:
    """Yield the speed of every run; RequestError for a line that is cut, and for one that does not name its devices."""
    for events in _runs(printed):
        stop = next((event for event in events if event.key == "run_stop"), None)
        if stop is None:
            continue  # it ended, or was ended, before
        run, status = events[0].line, stop.more.get("status")
        rates, speed = _speed(printed, events)
        if status != "success":
            yield Skipped(stop.line, f"run_stop: {status}; only runs that reached their target are imported")
        elif not rates:
            yield Skipped(stop.line, "neither epochs nor throughput tell its speed; import the whole log")
        else:
            place = _placement(printed, events, stop.line)
            batch = int(_value(printed, events, "global_batch_size", place.device_count))
            system = " ".join(filter(None, (_value(printed, events, key, "") for key in BEFORE[1:3])))
            network = _value(printed, events, "submission_benchmark", UNKNOWN)
            case = case_of(
                printed.framework or "mlperf",
                UNKNOWN,
                NETWORKS.get(network, network),
                place,
                max(1, round(batch / place.device_count)),
                data=UNKNOWN,
                optimiser=_value(printed, events, "opt_name", UNKNOWN),
                knobs={SYSTEM: system} if system else {},
            )
            origin = printed.origin(PROGRAM, stop.line, run)
            yield Speed(case=case, samples_per_second=speed, parts=tuple(rates), origin=origin)


def _runs(printed: Printed) -> Iterator[list[Event]]:
    """Yield the events of each run: a line of BEFORE after a `run_start` begins the next one."""
    events: list[Event] = []
    begun = False
    for number, found in printed.matches(r":::MLLOG (.*)"):
        try:
            content, _ = json.JSONDecoder().raw_decode(found[1])
            key, more = str(content["key"]), dict(content["metadata"])
            event = Event(number, float(content["time_ms"]), key, content["value"], more)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise printed.refused(f"no whole event of MLPerf ({error!r}); import it as printed", number) from None
        if begun and key in BEFORE:
            yield events
            events, begun = [], False
        events.append(event)
        begun = begun or key == "run_start"
    yield events


def _value(printed: Printed, events: Sequence[Event], key: str, unless: Any) -> Any:
    """Return the value of a key, or `unless`; RequestError if two ranks give two values."""
    found = [event for event in events if event.key == key]
    for event in found[1:]:
        if event.value != found[0].value:
            why = f"{key} is {event.value}, and in line {found[0].line} {found[0].value}: runs were printed at once"
            raise printed.refused(f"{why}; import the output of each by itself", event.line)
    return found[0].value if found and found[0].value is not None else unless


def _speed(printed: Printed, events: Sequence[Event]) -> tuple[list[float], float]:
    """Return samples/s of each epoch and of all together; ([], 0.0) if nothing tells them."""
    first: dict[Any, float] = {}
    last: dict[Any, float] = {}
    for event in events:
        if event.key == "epoch_start":
            first.setdefault(event.more.get("epoch_num"), event.ms)
        elif event.key == "epoch_stop":
            last[event.more.get("epoch_num")] = event.ms
    seconds = [(last[number] - begin) / 1000 for number, begin in first.items() if number in last]
    samples = _value(printed, events, "train_samples", 0)
    if seconds and samples:
        return [samples / each for each in seconds], samples * len(seconds) / sum(seconds)
    tracked = [event.value for event in events if event.key in ("throughput", "tracked_stats")]
    rates = [float(each.get("throughput", 0) if isinstance(each, dict) else each) for each in tracked]
    rates = [rate for rate in rates if rate]
    return rates, median(rates) if rates else 0.0


def _placement(printed: Printed, events: Sequence[Event], line: int) -> Placement:
    """Return the nodes and their devices, as newer rounds name them; of older ones, by the batch of a device."""
    nodes, each = (int(_value(printed, events, key, 0)) for key in ("number_of_nodes", "accelerators_per_node"))
    if nodes > 0 and each > 0:
        return Placement(nodes=nodes, ranks_per_node=each, device="cuda")
    batches = [int(_value(printed, events, key, 0)) for key in ("global_batch_size", "d_batch_size")]
    if min(batches) <= 0 or batches[0] < batches[1]:
        why = "no line says how many accelerators ran (number_of_nodes, accelerators_per_node, or d_batch_size)"
        raise printed.refused(f"{why}; add these lines, as mllog writes them", line)
    return Placement(ranks_per_node=batches[0] // batches[1], device="cuda")
