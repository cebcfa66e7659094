"""Weak scaling: how much of N times one device's speed N devices reach, with the same batch per device."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from suite.analysis.stats import Estimate, Interval, ratio
from suite.contracts.case import Case

Entry = tuple[str, Case, Estimate | None]

# What the case and its one-device baseline must share. Left out: ranks, devices, strategy, launcher and
# binding, which are the question; the learning rate, which follows the global batch; and
# how long was measured.
SHARED = (
    "adapter",
    "workload",
    "batch",
    "data",
    "precision",
    "tuning",
    "optimiser",
    "momentum",
    "beta1",
    "weight_decay",
    "seed",
    "readers",
    "input",
    "knobs",
    "graph_digest",
)


@dataclass(frozen=True)
class Scaling:
    """Speed on N devices / (N x speed on one): 1 is ideal."""

    efficiency: Interval
    baseline_id: str
    baseline_label: str
    baseline_rate: float  # samples/s on one device

    @property
    def super_linear(self) -> bool:
        """Whether even the interval's low end is above ideal: then the baseline deserves a look."""
        return self.efficiency.processes > 1 and self.efficiency.low > 1.0


def scaling_of(case: Case, estimate: Estimate | None, entries: Iterable[Entry]) -> Scaling | None:
    """The efficiency of a case on several devices; None on one, without a speed, or without a baseline.

    Of several baselines the fastest is taken: the gain over the best that one device can do.
    """
    if estimate is None or case.placement.device_count == 1:
        return None
    candidates = [
        (found, id_, other)
        for id_, other, found in entries
        if found is not None and other.placement.device_count == 1 and shared(other) == shared(case)
    ]
    if not candidates:
        return None
    base, id_, other = max(candidates, key=lambda candidate: candidate[0].value)
    efficiency = ratio(estimate, base).scaled(1 / case.placement.device_count)
    return Scaling(efficiency, id_, other.label, base.value)


def over_nodes(case: Case, estimate: Estimate | None, entries: Iterable[Entry]) -> Scaling | None:
    """Speed on N nodes / (N x speed on one with as many devices, by the same strategy); None without such a row."""
    if estimate is None or case.placement.nodes == 1:
        return None
    wanted = _of_a_node(case)
    found = [entry for entry in entries if entry[1].placement.nodes == 1 and _of_a_node(entry[1]) == wanted]
    there = [(other, id_, one) for id_, one, other in found if other is not None]
    if not there:
        return None
    base, id_, other = max(there, key=lambda candidate: candidate[0].value)
    return Scaling(ratio(estimate, base).scaled(1 / case.placement.nodes), id_, other.label, base.value)


def _of_a_node(case: Case) -> dict[str, Any]:
    place = case.placement
    return {**shared(case), "strategy": case.strategy, "place": (place.ranks_per_node, place.devices)}


def shared(case: Case) -> dict[str, Any]:
    """What decides which one-device case is a baseline."""
    values = {name: getattr(case, name) for name in SHARED}
    return {**values, "device": case.placement.device, "threads": case.placement.threads}
