"""A run as a flat table, a line a case or a message, for CSV, Parquet and JSON; and a short form that fits a paper."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from suite.analysis.budget import STAGES
from suite.analysis.comparability import FOREIGN
from suite.analysis.links import Link, Point, links, written
from suite.analysis.panels import names
from suite.analysis.rows import Row
from suite.analysis.summary import summarise
from suite.analysis.wording import interval, milliseconds, number
from suite.results.foreign import UNKNOWN
from suite.results.run_folder import RunFolder
from suite.worker.homes import without_homes

Cell = str | int | float | bool | None
Line = TypeVar("Line")
Exchange = tuple[Link, Point | None]  # a message of a link; None: the link has measured none


@dataclass(frozen=True)
class Column(Generic[Line]):
    """A name, what it means, and its value of a line; None where nothing could tell."""

    name: str
    meaning: str
    type: type
    of: Callable[[Line], Cell]


def _end(part: str) -> Callable[[Row], Cell]:
    """None of a speed without an interval."""
    return lambda row: getattr(row.rate, part) if row.rate and row.rate.scatters else None


def _budget(part: str) -> Callable[[Row], Cell]:
    return lambda row: getattr(row.budget, part) if row.budget else None


def _known(word: str) -> str | None:
    return None if word == UNKNOWN else word


COLUMNS: tuple[Column[Row], ...] = (
    Column("id", "twelve digits over all resolved values of the case", str, lambda row: row.id),
    Column("adapter", "the framework", str, lambda row: row.case.adapter),
    Column("strategy", "how training is spread", str, lambda row: row.case.strategy),
    Column("workload", "the network", str, lambda row: row.case.workload),
    Column("data", "the data set", str, lambda row: row.case.data_name),
    Column("nodes", "machines", int, lambda row: row.case.placement.nodes),
    Column("devices", "devices of all nodes", int, lambda row: row.case.placement.device_count),
    Column("device", "cpu or cuda", str, lambda row: row.case.placement.device),
    Column("batch", "samples per device", int, lambda row: row.case.batch),
    Column("precision", "of the arithmetic", str, lambda row: _known(row.case.precision)),
    Column("tuning", "default or tuned", str, lambda row: _known(row.case.tuning)),
    Column("knobs", "the adapter's own, as JSON", str, lambda row: json.dumps(row.case.knobs, sort_keys=True)),
    Column("outcome", "ok, foreign (imported), or why there is no number", str, lambda row: row.outcome),
    Column("reason", "the outcome in words", str, lambda row: row.reason),
    Column("marks", "what a reader should know, comma-separated", str, lambda row: ", ".join(row.marks)),
    Column("comparable", "may stand beside other frameworks' rows", bool, lambda row: row.comparable),
    Column("proof", "key of the proof", str, lambda row: row.proof.key if row.proof else None),
    Column("processes", "measured", int, lambda row: len(row.measured)),
    Column(
        "samples_per_second",
        "all devices together, geometric mean over processes",
        float,
        lambda row: row.rate.value if row.rate else None,
    ),
    Column("samples_per_second_low", "lower end of the 95 % interval", float, _end("low")),
    Column("samples_per_second_high", "upper end of the 95 % interval", float, _end("high")),
    Column(
        "samples_per_second_per_device",
        "the same for each device",
        float,
        lambda row: row.rate_per_device.value if row.rate_per_device else None,
    ),
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
)
OF_THE_RUN: tuple[Column[Any], ...] = (
    Column("run", "id of the run", str, lambda folder: folder.about.id),
    Column("created", "when the run began", str, lambda folder: folder.about.created),
)


def _point(part: str) -> Callable[[Exchange], Cell]:
    return lambda exchange: getattr(exchange[1], part) if exchange[1] else None


def _percentile(part: str) -> Callable[[Exchange], Cell]:
    """None of an imported link: programs print means."""
    return lambda exchange: None if exchange[0].outcome == FOREIGN else _point(part)(exchange)


EXCHANGES: tuple[Column[Exchange], ...] = (
    Column("id", "twelve digits over all resolved values of the case", str, lambda each: each[0].case.id),
    Column("backend", "the library", str, lambda each: each[0].collective.backend),
    Column("operation", "all-reduce, ...", str, lambda each: each[0].collective.operation),
    Column("workload", "the network whose gradients are exchanged", str, lambda each: each[0].network),
    Column("dtype", "of the numbers", str, lambda each: each[0].collective.dtype),
    Column("nodes", "machines", int, lambda each: each[0].case.placement.nodes),
    Column("ranks", "of all nodes", int, lambda each: each[0].case.placement.ranks),
    Column("device", "cpu or cuda", str, lambda each: each[0].case.placement.device),
    Column("transport", "what carried the bytes", str, lambda each: each[0].transport),
    Column("outcome", "ok, foreign (imported), or why there is no number", str, lambda each: each[0].outcome),
    Column("reason", "the outcome in words", str, lambda each: each[0].reason),
    Column("kind", "single; of a network's tensors also row (in turn), together (all begun)", str, _point("kind")),
    Column("messages", "exchanged in a sample", int, _point("messages")),
    Column("bytes", "of all messages", int, _point("bytes")),
    Column("exchange_s", "the slowest rank's; median, of imported ones mean", float, _point("seconds")),
    Column("exchange_s_low", "5th percentile", float, _percentile("low")),
    Column("exchange_s_high", "95th percentile", float, _percentile("high")),
    Column("bytes_per_second", "bytes over seconds", float, _point("algorithm_bandwidth")),
    Column("bus_bytes_per_second", "bus bandwidth, as nccl-tests counts it", float, _point("bus_bandwidth")),
    Column("samples", "that were kept", int, _point("samples")),
)


@dataclass(frozen=True)
class Sheet:
    """A run of trainings, a line a case; or one of `stagebench comm`, a line a message size."""

    columns: Sequence[Column[Any]]
    lines: Sequence[dict[str, Cell]]  # by column name
    paper: Sequence[Sequence[str]]  # the heading first; its first two columns are words
    note: str  # below the paper's table


def sheet(folder: RunFolder) -> Sheet:
    """The tables of a run folder, measured or imported."""
    if folder.about.of_comm:
        found = list(links(folder))
        lines, paper = exchange_table(folder, found), list(_exchanges(found))
        return Sheet((*EXCHANGES, *OF_THE_RUN), lines, paper, "Medians, of imported ones means; MB are 10\u2076 bytes.")
    rows = summarise(folder)
    note = "Stages in ms of the native iteration; * not to be compared with other frameworks."
    return Sheet((*COLUMNS, *OF_THE_RUN), table(folder, rows), list(_trainings(rows)), note)


def _trainings(rows: Sequence[Row]) -> Iterator[list[str]]:
    """A line a case that was measured: its speed, and in ms the stages that any of them has."""
    shown = [row for row in rows if row.rate]
    budgets = [row.budget for row in shown if row.budget]
    known = [stage for stage in STAGES if any(getattr(budget, stage) is not None for budget in budgets)]
    yield ["case", "network", "samples/s", "95 % interval", "ms per iteration", *known]
    for row, name in zip(shown, names([row.case for row in shown]), strict=True):
        stages = [milliseconds(getattr(row.budget, stage) if row.budget else None) for stage in known]
        native = milliseconds(row.budget.native if row.budget else None)
        star = "" if row.sound else " *"
        yield [
            name,
            row.case.workload,
            number(row.rate.value if row.rate else None) + star,
            interval(row.rate),
            native,
            *stages,
        ]


def _exchanges(found: Sequence[Link]) -> Iterator[list[str]]:
    """A line a message."""
    yield ["link", "operation", "message", "µs", "MB/s", "bus MB/s"]
    for link in found:
        for point in link.points:
            kind = "" if point.kind == "single" else f", {point.messages} tensors {point.kind}"
            rates = [number(rate, 1e-6) for rate in (point.algorithm_bandwidth, point.bus_bandwidth)]
            yield [link.case.label, point.operation, written(point.bytes) + kind, number(point.seconds, 1e6), *rates]


def table(folder: RunFolder, rows: Sequence[Row]) -> list[dict[str, Cell]]:
    """Every case by column name."""
    return _lines(folder, COLUMNS, rows)


def exchange_table(folder: RunFolder, links: Sequence[Link]) -> list[dict[str, Cell]]:
    """Every message of every link, and a line for a link without any."""
    return _lines(folder, EXCHANGES, [(link, point) for link in links for point in link.points or (None,)])


def _lines(folder: RunFolder, columns: Sequence[Column[Line]], lines: Sequence[Line]) -> list[dict[str, Cell]]:
    about = {column.name: column.of(folder) for column in OF_THE_RUN}
    return [{column.name: _published(column.of(line)) for column in columns} | about for line in lines]


def _published(cell: Cell) -> Cell:
    return without_homes(cell) if isinstance(cell, str) else cell


def schema(columns: Sequence[Column[Any]]) -> dict[str, Any]:
    """JSON Schema of the table as a list of objects."""
    names = {str: "string", int: "integer", float: "number", bool: "boolean"}
    row = {column.name: {"type": [names[column.type], "null"], "description": column.meaning} for column in columns}
    rows = {"type": "object", "properties": row, "required": list(row), "additionalProperties": False}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "stagebench export RUN json",
        "type": "array",
        "items": rows,
    }
