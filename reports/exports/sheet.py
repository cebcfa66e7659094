"""A run as a flat table, a line a case or a message: its columns, and the formats that such a table is written in."""

import csv
import io
import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from stagebench.suite.analysis.budget import STAGES
from stagebench.suite.analysis.comparability import FOREIGN
from stagebench.suite.analysis.links import Link, Point, links, written
from stagebench.suite.analysis.panels import names
from stagebench.suite.analysis.rows import Row
from stagebench.suite.analysis.summary import summarise
from stagebench.suite.analysis.wording import interval, milliseconds, number
from stagebench.suite.api.functions import Place, opened, unfrozen
from stagebench.suite.errors import RequestError
from stagebench.suite.results.foreign import UNKNOWN
from stagebench.suite.results.run_folder import RunFolder
from stagebench.suite.text import installing, markdown_table
from stagebench.suite.worker.homes import without_homes
from stagebench.suite.worker.pass_kinds import MULTI_STREAM, SERVER, SINGLE_STREAM

if TYPE_CHECKING:
    import pandas

Cell = str | int | float | bool | None
Line = dict[str, Cell]  # by column name
FORMULA = re.compile(r"^[=+\-@\t\r]")  # what a spreadsheet would compute
CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")  # terminal escapes; XML cannot hold them
LATEX = str.maketrans(
    {
        **{sign: f"\\{sign}" for sign in "&%$#_{}"},
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "×": r"$\times$",
        "·": r"$\cdot$",
        "\u2212": "$-$",
        "…": r"\ldots{}",
        "\u202f": r"\,",
        "µ": r"$\mu$",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        '"': "''",  # \textquotedbl is an error in LaTeX's usual encoding of fonts
        "\u2076": "$^6$",
    }
)


class Column(NamedTuple):
    """A name, what it means, and its value: a path of attributes, None behind a part that is None, or a function."""

    name: str
    value: str | Callable[[Any], Cell]
    meaning: str
    type: type = str

    def of(self, line: object) -> Cell:
        """Return the value of a line; words without home folders."""
        value: Any = line
        if not isinstance(self.value, str):
            value = self.value(line)
        else:
            for part in self.value.split("."):
                value = None if value is None else getattr(value, part)
        return without_homes(value) if isinstance(value, str) else value


def _known(name: str) -> Callable[[Row], Cell]:
    return lambda row: None if (word := getattr(row.case, name)) == UNKNOWN else word


def _end(name: str, kept: bool = False) -> Callable[[Row], Cell]:
    """None of a speed, or of a kept rate, without an interval."""

    def end(row: Row) -> Cell:
        rate = row.kept and row.kept.rate if kept else row.rate
        return getattr(rate, name) if rate and rate.scatters else None

    return end


def _latency(load: str, share: float) -> Callable[[Row], Cell]:
    return lambda row: found.value if (found := row.latency(load, share)) else None


def _of_the_load(name: str) -> Callable[[Row], Cell]:
    """None of a case without the load `server`."""
    return lambda row: getattr(row.case.serving, name) if SERVER in row.case.passes else None


COLUMNS = (
    Column("id", "id", "twelve digits over all resolved values of the case"),
    Column("adapter", "case.adapter", "the framework"),
    Column("strategy", "case.strategy", "how training is spread"),
    Column("workload", "case.workload", "the network"),
    Column("data", "case.data_name", "the data set"),
    Column("nodes", "case.placement.nodes", "machines", int),
    Column("devices", "case.placement.device_count", "devices of all nodes", int),
    Column("device", "case.placement.device", "cpu or cuda"),
    Column("batch", "case.batch", "samples per device", int),
    Column("precision", _known("precision"), "of the arithmetic"),
    Column("tuning", _known("tuning"), "default or tuned"),
    Column("knobs", lambda row: json.dumps(row.case.knobs, sort_keys=True), "the adapter's own, as JSON"),
    Column("outcome", "outcome", "ok, foreign (imported), or why there is no number"),
    Column("reason", "reason", "the outcome in words"),
    Column("marks", lambda row: ", ".join(row.marks), "what a reader should know, comma-separated"),
    Column("comparable", "comparable", "may stand beside other frameworks' rows", bool),
    Column("proof", "proof.key", "key of the proof"),
    Column("processes", lambda row: len(row.measured), "measured", int),
    Column("samples_per_second", "rate.value", "all devices, without a model server; mean over processes", float),
    Column("samples_per_second_low", _end("low"), "lower end of the 95 % interval", float),
    Column("samples_per_second_high", _end("high"), "upper end of the 95 % interval", float),
    Column("samples_per_second_per_device", "rate_per_device.value", "the same for each device", float),
    Column("verdict", "against.verdict", "beside the fastest of its group"),
    Column("iteration_s", "budget.native", "native wall time of an iteration", float),
    *(Column(f"{stage}_s", f"budget.{stage}", f"{stage} in the closed budget", float) for stage in STAGES),
    Column("staged_s", "budget.staged", "wall time of the instrumented iteration", float),
    Column("scaling_efficiency", "scaling.efficiency.value", "speed over devices x the one-device baseline's", float),
    Column("single_stream_p90_s", _latency(SINGLE_STREAM, 0.9), "latency of one sample at a time", float),
    Column("multi_stream_p99_s", _latency(MULTI_STREAM, 0.99), "latency of eight samples at a time", float),
    Column("model_server", _of_the_load("model_server"), "that took the queries of the load server"),
    Column("address", _of_the_load("address"), "of a model server that runs elsewhere"),
    Column("options", lambda row: json.dumps(row.case.serving.options), "the model server's own, as JSON"),
    Column("max_delay_ms", _of_the_load("max_delay_ms"), "that a query may wait for others of its batch", float),
    Column("bound_ms", _of_the_load("bound_ms"), "of the latencies", float),
    Column("bound_share", _of_the_load("bound_share"), "of the queries that keep it", float),
    Column("queries_per_second", "kept.rate.value", "the largest rate that keeps the bound", float),
    Column("queries_per_second_low", _end("low", kept=True), "lower end of the 95 % interval", float),
    Column("queries_per_second_high", _end("high", kept=True), "upper end of the 95 % interval", float),
    Column("unanswered", "served.unanswered", "queries without an answer", int),
    Column("wrong_answers", "served.wrong", "those that were not to their queries", int),
)
OF_THE_RUN = (
    Column("run", "about.id", "id of the run"),
    Column("created", "about.created", "when the run began"),
)


class Exchange(NamedTuple):
    """A message of a link; None: the link has measured none."""

    link: Link
    point: Point | None


def _percentile(name: str) -> Callable[[Exchange], Cell]:
    """None of an imported link: programs print means."""
    return lambda line: getattr(line.point, name) if line.point and line.link.outcome != FOREIGN else None


EXCHANGES = (
    Column("id", "link.case.id", "twelve digits over all resolved values of the case"),
    Column("backend", "link.collective.backend", "the library"),
    Column("operation", "link.collective.operation", "all-reduce, ..."),
    Column("workload", "link.network", "the network whose gradients are exchanged"),
    Column("dtype", "link.collective.dtype", "of the numbers"),
    Column("nodes", "link.case.placement.nodes", "machines", int),
    Column("ranks", "link.case.placement.ranks", "of all nodes", int),
    Column("device", "link.case.placement.device", "cpu or cuda"),
    Column("transport", "link.transport", "what carried the bytes"),
    Column("outcome", "link.outcome", "ok, foreign (imported), or why there is no number"),
    Column("reason", "link.reason", "the outcome in words"),
    Column("kind", "point.kind", "single; of a network's tensors also row (in turn), together (all begun)"),
    Column("messages", "point.messages", "exchanged in a sample", int),
    Column("bytes", "point.bytes", "of all messages", int),
    Column("exchange_s", "point.seconds", "the slowest rank's; median, of imported ones mean", float),
    Column("exchange_s_low", _percentile("low"), "5th percentile", float),
    Column("exchange_s_high", _percentile("high"), "95th percentile", float),
    Column("bytes_per_second", "point.algorithm_bandwidth", "bytes over seconds", float),
    Column("bus_bytes_per_second", "point.bus_bandwidth", "bus bandwidth, as nccl-tests counts it", float),
    Column("samples", "point.samples", "that were kept", int),
)


class Sheet(NamedTuple):
    """A run of trainings, a line a case; or one of `stagebench comm`, a line a message size."""

    columns: Sequence[Column]
    lines: Sequence[Line]
    paper: Sequence[Sequence[str]]  # a short form that fits a paper, heading first; its first two columns are words
    note: str  # below the paper's table


def sheet(folder: RunFolder) -> Sheet:
    """Return the tables of a run folder, measured or imported."""
    if folder.about.of_comm:
        found = list(links(folder))
        # A link without any message has a line, too.
        exchanges = [Exchange(link, point) for link in found for point in link.points or (None,)]
        note = "Medians, of imported ones means; MB are 10\u2076 bytes."
        return Sheet((*EXCHANGES, *OF_THE_RUN), _lines(folder, EXCHANGES, exchanges), list(_exchanges(found)), note)
    rows = summarise(folder)
    note = "Stages in ms of the native iteration; * not to be compared with other frameworks."
    return Sheet((*COLUMNS, *OF_THE_RUN), table(folder, rows), list(_trainings(rows)), note)


def table(folder: RunFolder, rows: Sequence[Row]) -> list[Line]:
    """Return every case by column name."""
    return _lines(folder, COLUMNS, rows)


def _lines(folder: RunFolder, columns: Sequence[Column], lines: Sequence[object]) -> list[Line]:
    about = {column.name: column.of(folder) for column in OF_THE_RUN}
    return [{column.name: column.of(line) for column in columns} | about for line in lines]


def _trainings(rows: Sequence[Row]) -> Iterator[list[str]]:
    """Yield a line a case that was measured: its speed, and in ms the stages that any of them has."""
    shown = [row for row in rows if row.rate]
    known = [stage for stage in STAGES if any(row.budget and getattr(row.budget, stage) is not None for row in shown)]
    yield ["case", "network", "samples/s", "95 % interval", "ms per iteration", *known]
    for row, name in zip(shown, names([row.case for row in shown]), strict=True):
        speed = number(row.rate.value if row.rate else None) + ("" if row.sound else " *")
        parts = [milliseconds(getattr(row.budget, part) if row.budget else None) for part in ("native", *known)]
        yield [name, row.case.workload, speed, interval(row.rate), *parts]


def _exchanges(found: Sequence[Link]) -> Iterator[list[str]]:
    yield ["link", "operation", "message", "µs", "MB/s", "bus MB/s"]
    for link in found:
        for point in link.points:
            kind = "" if point.kind == "single" else f", {point.messages} tensors {point.kind}"
            rates = [number(rate, 1e-6) for rate in (point.algorithm_bandwidth, point.bus_bandwidth)]
            yield [link.case.label, point.operation, written(point.bytes) + kind, number(point.seconds, 1e6), *rates]


def as_csv(found: Sheet) -> str:
    """Write all columns; text that a spreadsheet would take for a formula begins with an apostrophe."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, [column.name for column in found.columns])
    writer.writeheader()
    for line in found.lines:
        formulas = {name: f"'{cell}" for name, cell in line.items() if isinstance(cell, str) and FORMULA.match(cell)}
        writer.writerow(line | formulas)
    return stream.getvalue()


def as_json(found: Sheet) -> str:
    """Write the table as a list of objects; the format `schema` describes them."""
    return json.dumps(found.lines, indent=1) + "\n"


def as_schema(found: Sheet) -> str:
    """Write the JSON Schema of the table as a list of objects, with the meaning of each column."""
    kinds = {str: "string", int: "integer", float: "number", bool: "boolean"}
    row = {
        column.name: {"type": [kinds[column.type], "null"], "description": column.meaning} for column in found.columns
    }
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "stagebench export RUN json",
        "type": "array",
        "items": {"type": "object", "properties": row, "required": list(row), "additionalProperties": False},
    }
    return json.dumps(schema, indent=1) + "\n"


def as_parquet(found: Sheet) -> bytes:
    """Write the table with types; RequestError without pyarrow."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise RequestError(f"Parquet needs pyarrow: {installing('stagebench[parquet]')}; or export csv") from None
    types = {str: pyarrow.string(), int: pyarrow.int64(), float: pyarrow.float64(), bool: pyarrow.bool_()}
    form = pyarrow.schema([(column.name, types[column.type]) for column in found.columns])
    stream = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(list(found.lines), form), stream)
    return stream.getvalue()


def frame(run: RunFolder | Place) -> "pandas.DataFrame":
    """Return a run as a pandas frame with the columns of `stagebench export`; RequestError without pandas."""
    try:
        import pandas
    except ImportError:
        raise RequestError(f"a frame needs pandas: {installing('stagebench[pandas]')}") from None
    found = unfrozen(sheet(opened(run)))
    types = {str: "string", int: "Int64", float: "float64", bool: "boolean"}
    lines = pandas.DataFrame(list(found.lines), columns=[column.name for column in found.columns])
    return lines.astype({column.name: types[column.type] for column in found.columns})


def as_markdown(found: Sheet) -> str:
    """Write a table for an issue or a README."""
    head, *lines = found.paper
    return "\n".join(markdown_table(head, lines)) + f"\n\n{found.note}\n"


def as_latex(found: Sheet) -> str:
    """Write a `tabular` for a paper, with the rules of the package booktabs."""
    head, *lines = ([_latex(cell) for cell in line] for line in found.paper)
    frame = [rf"\begin{{tabular}}{{ll{'r' * (len(head) - 2)}}}", r"\toprule", " & ".join(head) + r" \\", r"\midrule"]
    body = [" & ".join(line) + r" \\" for line in lines]
    note = rf"\multicolumn{{{len(head)}}}{{l}}{{\footnotesize {_latex(found.note)}}} \\"
    return "\n".join([*frame, *body, r"\bottomrule", note, r"\end{tabular}"]) + "\n"


def _latex(text: str) -> str:
    return CONTROL.sub("", without_homes(text)).replace("\n", " ").translate(LATEX)
