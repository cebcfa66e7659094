"""Networks that several devices hold together, at several sizes: which rows are one training."""

from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction

from suite.analysis.rows import Row
from suite.analysis.scaling import alike, placed
from suite.contracts.case import Case
from suite.groups import grouped

# Knobs of how devices hold one network together; one device holds it whole.
OF_PARTS = ("microbatches", "schedule", "stages")


def in_parts(row: Row) -> bool:
    return row.declared is not None and row.declared.model_parallel_size > 1


def held_whole(row: Row) -> Case:
    """A row's case; of a network in parts with the knobs of how they hold it at rest, as its one-device baseline is.

    A resolved plan gives every case every knob of its adapter.
    """
    if not (row.declared and in_parts(row)):
        return row.case
    resting = {name: row.declared.knob_defaults.get(name) for name in OF_PARTS}
    knobs = {name: resting.get(name, value) for name, value in row.case.knobs.items()}
    return replace(row.case, knobs={name: value for name, value in knobs.items() if value is not None})


def trainings(rows: Iterable[Row]) -> list[list[Row]]:
    """The rows in parts by the training whose sizes they are; each group in the rows' order.

    Sizes of one training take as many microbatches everywhere. Those that have no other such size stand with those that
    take as many microbatches a stage: a microbatch then has as many samples everywhere.
    """
    same = grouped(filter(in_parts, rows), lambda row: (_training(row), _microbatches(row))).values()
    several = [group for group in same if len({row.case.placement.device_count for row in group}) > 1]
    others = [row for group in same if group not in several for row in group]
    return [*several, *grouped(others, lambda row: (_training(row), microbatches_per_stage(row))).values()]


def microbatches_per_stage(row: Row) -> Fraction:
    """The microbatches of a row in parts, over its stages."""
    assert row.declared
    return Fraction(row.declared.microbatches, row.declared.model_parallel_size)


def _microbatches(row: Row) -> int:
    assert row.declared
    return row.declared.microbatches


def _training(row: Row) -> tuple[object, ...]:
    """All that sizes of one training share, less their microbatches."""
    case = row.case
    knobs = {name: value for name, value in case.knobs.items() if name != "microbatches"}
    return alike(held_whole(row)), case.strategy, placed(case), str(sorted(knobs.items()))
