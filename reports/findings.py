"""The sentences of the first screen, those that answer the plan's question first."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median

from reports.inputs import Inputs, words
from reports.names import names
from reports.panels import by_network
from reports.text import listed, share
from suite.analysis.rows import Row
from suite.predict.prediction import Answer

SEARCHED, SCALED, PARTED, MODEL, READ, LED = "searched", "scaled", "parted", "model", "read", "led"
DEVICES, LESSONS, ALIKE, EXCHANGED = "devices", "lessons", "alike", "exchanged"
# What each plan asks; all others ask who is the fastest.
ASKS = {
    "autotune": SEARCHED,
    "batch-size": LESSONS,
    "data-parallel": DEVICES,
    "horovod-style": EXCHANGED,
    "learning": ALIKE,
    "model-parallel": PARTED,
    "paper": SCALED,
    "prediction": MODEL,
    "readers": READ,
    "time-to-train": DEVICES,
}
NAMED = 8  # cases in a sentence


def ordered(plan: str, found: Mapping[str, Sequence[str]]) -> list[str]:
    """All sentences; `found` has them by what they answer, in the order that they have unless the plan asks."""
    first = ASKS.get(plan, LED)
    return [*found.get(first, ()), *(one for kind, several in found.items() if kind != first for one in several)]


def speed_ups(rows: Iterable[Row]) -> Iterator[str]:
    """Of each network: on the most devices that were measured, against one."""
    for panel in by_network(row for row in rows if row.scaling):
        found = [(row.case.placement.device_count, row.scaling, row.case) for row in panel.rows if row.scaling]
        most = max(devices for devices, _, _ in found)
        there = [(scaling.efficiency, case) for devices, scaling, case in found if devices == most]
        there.sort(key=lambda one: one[0].value, reverse=True)
        called = names([case for _, case in there])
        several = [
            f"{name} is {efficiency.value * most:.2f} times as fast as on one ({share(efficiency.value)} of ideal)"
            for name, (efficiency, _) in list(zip(called, there, strict=True))[:NAMED]
        ]
        yield f"{panel.title}, on {most} devices: {listed(several)}."


def modelled(answers: Sequence[Answer]) -> list[str]:
    """How far the model was off where larger placements than the ones that it was fitted to were measured."""
    found = [answer.error(one) for answer in answers for one in answer.predictions]
    errors = sorted(abs(error) for error in found if error is not None)
    if not errors:
        return []
    return [
        f"Fitted to fewer devices, the model predicts the speed on more: {len(errors)} predictions are off by "
        f"{share(median(errors))} in the median, by {share(errors[-1])} at worst."
    ]


def read(inputs: Inputs | None) -> list[str]:
    """What holds each training up that reads."""
    found = []
    for title, group, called in inputs.groups if inputs else ():
        several = [f"{name}: {words(fed)}" for name, fed in zip(called, group.cases, strict=True) if fed.bottleneck]
        if several:
            found.append(f"{title}. {'; '.join(several[:NAMED])}.")
    return found
