"""How much of N times one device's speed N devices reach, and which rows are sizes of one training.

Weak scaling: every device has the batch of the one. Strong scaling: all devices together have it.
"""

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from operator import attrgetter

from stagebench.suite.analysis.rows import Row, Scaling
from stagebench.suite.analysis.stats import ratio
from stagebench.suite.contracts.case import Case, Placement
from stagebench.suite.text import grouped

# What a case and its one-device baseline share. Not among it: ranks, devices, strategy, launcher and binding, which are
# the question; the learning rate, which follows the global batch; and for how long it was measured.
SHARED = attrgetter(
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
    "clip_norm",
    "seed",
    "readers",
    "input",
    "knobs",
    "graph_digest",
    "placement.device",
    "placement.threads",
    "infers",
)
# Knobs of how devices hold one network together; one device holds it whole.
OF_PARTS = ("microbatches", "schedule", "stages", "chunks")


def over_devices(rows: Sequence[Row]) -> dict[str, Scaling]:
    """Return the efficiency of every row on several devices that has a one-device baseline, by row id.

    Of several baselines the fastest is taken: the gain over the best that one device can do.
    """
    return _scaled(rows, held_whole, shared, lambda place: place.device_count)


def over_nodes(rows: Sequence[Row]) -> dict[str, Scaling]:
    """Return speed on N nodes / (N x speed on one with as many devices, by the same strategy), by row id."""
    within = attrgetter("strategy", "placement.ranks_per_node", "placement.devices")
    return _scaled(
        rows, lambda row: row.case, lambda case: str((shared(case), within(case))), lambda place: place.nodes
    )


def _scaled(
    rows: Sequence[Row], case_of: Callable[[Row], Case], key: Callable[[Case], str], count: Callable[[Placement], int]
) -> dict[str, Scaling]:
    measured = [(row, case_of(row)) for row in rows if row.rates]
    kinds = {case.scaling for _, case in measured if count(case.placement) > 1}
    baselines: dict[tuple[str, str], Row] = {}
    for row, case in sorted(measured, key=lambda each: each[0].speed):  # the fastest last
        if count(case.placement) == 1:
            baselines |= {(kind, key(_batched(case, kind))): row for kind in kinds}
    scalings = {}
    for row, case in measured:
        number = count(case.placement)
        baseline = baselines.get((case.scaling, key(_batched(case, case.scaling)))) if number > 1 else None
        if baseline and baseline.rates and row.rates:
            efficiency = ratio(row.rates, baseline.rates).scaled(1 / number)
            scalings[row.id] = Scaling(efficiency, baseline.id, baseline.case.label, baseline.speed)
    return scalings


def _batched(case: Case, kind: str) -> Case:
    """Return the case with the batch that sizes share: in strong scaling that of all devices together."""
    return case.on(batch=case.global_batch) if kind == "strong" else case


def shared(case: Case) -> str:
    """Return the key by which a one-device case is a baseline."""
    return str(SHARED(case))


def alike(case: Case) -> str:
    """Return the key that a training shares with itself on one device."""
    return shared(_batched(case, case.scaling))


def placed(case: Case) -> str:
    """Return what sizes of a training share in addition to `alike`, on several devices; over nodes those of each."""
    place = case.placement
    return str((case.scaling, place.launcher, place.binding, place.nodes > 1 and place.devices_per_node))


def in_parts(row: Row) -> bool:
    """Return True if several devices hold one network together."""
    return row.declared is not None and row.declared.model_parallel_size > 1


def held_whole(row: Row) -> Case:
    """Return a row's case; of a network in parts with its OF_PARTS at their defaults, as its baseline has them.

    A resolved plan gives every case every knob of its adapter.
    """
    if not (row.declared and in_parts(row)):
        return row.case
    defaults = row.declared.knob_defaults
    knobs = {name: defaults.get(name) if name in OF_PARTS else value for name, value in row.case.knobs.items()}
    return row.case.on(knobs={name: value for name, value in knobs.items() if value is not None})


def trainings(rows: Iterable[Row]) -> list[list[Row]]:
    """Return the rows in parts, grouped by the training whose sizes they are, in the rows' order.

    Sizes of one training take equally many microbatches. Rows without another such size are grouped by microbatches per
    stage: a microbatch then has equally many samples everywhere.
    """
    by_count = grouped(filter(in_parts, rows), lambda row: (_training(row), row.declared and row.declared.microbatches))
    several, others = [], []
    for group in by_count.values():
        if len({row.case.placement.device_count for row in group}) > 1:
            several.append(group)
        else:
            others += group
    return [*several, *grouped(others, lambda row: (_training(row), microbatches_per_stage(row))).values()]


def microbatches_per_stage(row: Row) -> Fraction:
    assert row.declared
    return Fraction(row.declared.microbatches, row.declared.model_parallel_size)


def _training(row: Row) -> tuple[object, ...]:
    """Return all that sizes of one training share, except their microbatches."""
    knobs = {name: value for name, value in row.case.knobs.items() if name != "microbatches"}
    return alike(held_whole(row)), row.case.strategy, placed(row.case), str(sorted(knobs.items()))
