"""A run as a flat table, a line a case: what CSV, Parquet and JSON hold. Seconds are named `_s`."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from suite.analysis.budget import STAGES
from suite.analysis.rows import Row
from suite.plain import without_homes
from suite.results.run_folder import RunFolder

Cell = str | int | float | bool | None


@dataclass(frozen=True)
class Column:
    """A name, what it means, and its value of a row; None where no pass could tell."""

    name: str
    meaning: str
    type: type
    of: Callable[[Row], Cell]


def _rate(part: str, per_device: bool = False) -> Callable[[Row], Cell]:
    def of(row: Row) -> Cell:
        found = row.rate_per_device if per_device else row.rate
        return getattr(found, part) if found else None

    return of


def _budget(part: str) -> Callable[[Row], Cell]:
    return lambda row: getattr(row.budget, part) if row.budget else None


COLUMNS = (
    Column("id", "twelve digits over all resolved values of the case", str, lambda row: row.id),
    Column("adapter", "the framework", str, lambda row: row.case.adapter),
    Column("strategy", "how training is spread", str, lambda row: row.case.strategy),
    Column("workload", "the network", str, lambda row: row.case.workload),
    Column("data", "the data set", str, lambda row: row.case.data_name),
    Column("nodes", "machines", int, lambda row: row.case.placement.nodes),
    Column("devices", "devices of all nodes", int, lambda row: row.case.placement.device_count),
    Column("device", "cpu or cuda", str, lambda row: row.case.placement.device),
    Column("batch", "samples per device", int, lambda row: row.case.batch),
    Column("precision", "of the arithmetic", str, lambda row: row.case.precision),
    Column("tuning", "default or tuned", str, lambda row: row.case.tuning),
    Column("knobs", "the adapter's own, as JSON", str, lambda row: json.dumps(row.case.knobs, sort_keys=True)),
    Column("outcome", "ok, foreign (imported), or why there is no number", str, lambda row: row.outcome),
    Column("reason", "the outcome in words", str, lambda row: row.reason),
    Column("marks", "what a reader should know, comma-separated", str, lambda row: ", ".join(row.marks)),
    Column("comparable", "may stand beside other frameworks' rows", bool, lambda row: row.comparable),
    Column("proof", "key of the proof", str, lambda row: row.proof.key if row.proof else None),
    Column("processes", "measured", int, lambda row: len(row.measured)),
    Column("samples_per_second", "all devices together, median over processes", float, _rate("value")),
    Column("samples_per_second_low", "lower end of the 95 % interval", float, _rate("low")),
    Column("samples_per_second_high", "upper end of the 95 % interval", float, _rate("high")),
    Column("samples_per_second_per_device", "the same for each device", float, _rate("value", per_device=True)),
    Column("verdict", "beside the fastest of its group", str, lambda row: row.against.verdict if row.against else None),
    Column("iteration_s", "native wall time of an iteration", float, _budget("native")),
    *(Column(f"{stage}_s", f"{stage} in the closed budget", float, _budget(stage)) for stage in STAGES),
    Column("staged_s", "wall time of the instrumented iteration", float, _budget("staged")),
    Column(
        "scaling_efficiency",
        "speed over devices x the one-device baseline's",
        float,
        lambda row: row.scaling.efficiency.value if row.scaling else None,
    ),
    Column("run", "id of the run", str, lambda row: ""),
    Column("created", "when the run began", str, lambda row: ""),
)


def table(folder: RunFolder, rows: Sequence[Row]) -> list[dict[str, Cell]]:
    """Every case by column name."""
    about = {"run": folder.about.id, "created": folder.about.created}
    return [{**{column.name: _published(column.of(row)) for column in COLUMNS}, **about} for row in rows]


def _published(cell: Cell) -> Cell:
    return without_homes(cell) if isinstance(cell, str) else cell


def schema() -> dict[str, Any]:
    """JSON Schema of the table as a list of objects."""
    names = {str: "string", int: "integer", float: "number", bool: "boolean"}
    row = {column.name: {"type": [names[column.type], "null"], "description": column.meaning} for column in COLUMNS}
    rows = {"type": "object", "properties": row, "required": list(row), "additionalProperties": False}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "stagebench export RUN json",
        "type": "array",
        "items": rows,
    }
