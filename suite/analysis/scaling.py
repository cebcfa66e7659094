"""How much of N times one device's speed N devices reach.

Weak scaling: every device has the batch of the one. Strong scaling: all devices together have it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from suite.analysis.stats import Interval, Rates, ratio
from suite.contracts.case import Case, Placement

Entry = tuple[str, Case, Rates]  # a row's id, its case, its speed
Key = tuple[str, ...]

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


def over_devices(entries: Sequence[Entry]) -> dict[str, Scaling]:
    """The efficiency of every case on several devices that has a one-device baseline, by row id.

    Of several baselines the fastest is taken: the gain over the best that one device can do.
    """
    return _scaled(entries, shared, lambda place: place.device_count)


def over_nodes(entries: Sequence[Entry]) -> dict[str, Scaling]:
    """Speed on N nodes / (N x speed on one with as many devices, by the same strategy), by row id."""
    return _scaled(entries, _of_a_node, lambda place: place.nodes)


def _scaled(
    entries: Sequence[Entry], alike: Callable[[Case], Key], count: Callable[[Placement], int]
) -> dict[str, Scaling]:
    alike_by: dict[str, Callable[[Case], Key]] = {
        "weak": alike,
        "strong": lambda case: alike(with_whole_batch(case)),
    }
    wanted = {case.scaling for _, case, _ in entries if count(case.placement) > 1}
    bases: dict[tuple[str, Key], tuple[str, Case, Rates]] = {}
    for id_, case, rates in entries:
        if count(case.placement) == 1:
            for kept in ((scaling, alike_by[scaling](case)) for scaling in wanted):
                _, _, best = bases.get(kept, (id_, case, rates))
                if rates.value >= best.value:
                    bases[kept] = (id_, case, rates)
    found = {}
    for id_, case, rates in entries:
        several = count(case.placement)
        base = bases.get((case.scaling, alike_by[case.scaling](case))) if several > 1 else None
        if base:
            efficiency = ratio(rates, base[2]).scaled(1 / several)
            found[id_] = Scaling(efficiency, base[0], base[1].label, base[2].value)
    return found


def with_whole_batch(case: Case) -> Case:
    """What cases of strong scaling have in common: not the batch of a device."""
    return replace(case, batch=case.global_batch)


def _of_a_node(case: Case) -> Key:
    return (*shared(case), case.strategy, str(case.placement.ranks_per_node), str(case.placement.devices))


def shared(case: Case) -> Key:
    """What decides which one-device case is a baseline."""
    values = [str(getattr(case, name)) for name in SHARED]
    return (*values, case.placement.device, str(case.placement.threads))


def alike(case: Case) -> Key:
    """What a training shares with itself on one device; in strong scaling that has the batch of all."""
    return shared(with_whole_batch(case) if case.scaling == "strong" else case)


def placed(case: Case) -> Key:
    """What the sizes of a training share beside that, on several devices; over nodes the devices of each, too."""
    place = case.placement
    node = place.devices_per_node if place.nodes > 1 else 0
    return case.scaling, place.launcher, place.binding, str(node)
