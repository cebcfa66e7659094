"""The cases as data that pages load by themselves: a list for the table of all, and everything about each.

Data are scripts, since a page that is opened from a disk may load nothing else. They come in pieces, so that a page
about one case of ten thousand loads a few.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import is_dataclass
from typing import Any

import numpy as np

from reports.charts import STAGE_COLOURS
from reports.frame import script_json
from reports.gpu_table import gpu_table
from reports.names import settings
from reports.text import bracketed, in_words, memory, milliseconds, number, scientific, share
from suite.analysis.budget import STAGES
from suite.analysis.comparability import DISQUALIFYING, FOREIGN, NOTED
from suite.analysis.measured import Process, Profile
from suite.analysis.rows import Row
from suite.analysis.stats import Values
from suite.plan.text import Block, plan_text
from suite.results.foreign import UNKNOWN
from suite.text import cut
from suite.worker.contract import KernelTimes
from suite.worker.pass_kinds import BY_NAME

LISTED = 500  # cases in one piece of the list
KERNELS, NAMED = 10, 60  # rows of the table of kernels; letters of a name there: those of C++ templates have hundreds
FEW = 256  # cases; more of them lie in pieces by the first two digits of their ids, instead of the first

Fact = tuple[str, str]
File = tuple[str, str]  # name, text


def listing(rows: Sequence[Row]) -> Iterator[File]:
    """cases-0.js, cases-1.js, ...: what the table of all cases shows, in the plan's order."""
    called = settings([row.case for row in rows])
    listed = [_listed(row, words) for row, words in zip(rows, called, strict=True)]
    for number_, first in enumerate(range(0, max(len(listed), 1), LISTED)):
        piece = {"of": len(listed), "rows": listed[first : first + LISTED]}
        yield f"cases-{number_}.js", f"stagebench.cases({script_json(piece)});\n"


def _listed(row: Row, words: str) -> list[Any]:
    """In the order of COLUMNS in case_table.js."""
    case, rate, against = row.case, row.rate, row.against
    return [
        row.id,
        case.adapter,
        case.strategy,
        case.workload,
        case.data_name,
        case.placement.device_count,
        case.batch,
        *("" if word == UNKNOWN else word for word in (case.precision, case.tuning)),
        words,
        _short(rate.value) if rate else None,
        *([_short(rate.low), _short(rate.high)] if rate and rate.scatters else [None, None]),
        against.verdict if against else "",
        row.outcome,
        row.marks,
    ]


def _short(value: float) -> float:
    return float(f"{value:.6g}")


def digits_of(rows: Sequence[Row]) -> int:
    """How many digits of a case's id name the piece that holds it."""
    return 1 if len(rows) <= FEW else 2


def details(rows: Sequence[Row], own_networks: Collection[str] = ()) -> Iterator[File]:
    """case-0.js, ...: everything about the cases whose ids begin so.

    `own_networks` are kept in the run folder (`networks/NAME.json`): a plan names their files.
    """
    digits = digits_of(rows)
    pieces: dict[str, dict[str, Any]] = {}
    for row in rows:
        pieces.setdefault(row.id[:digits], {})[row.id] = _detail(row, own_networks)
    for prefix, piece in sorted(pieces.items()):
        yield f"case-{prefix}.js", f"stagebench.details({script_json(piece)});\n"


def _detail(row: Row, own_networks: Collection[str]) -> dict[str, Any]:
    """What case.js shows: every number in words already, but the steps of its charts, which are in units of 0.1 µs."""
    return {
        "label": row.case.label,
        "outcome": row.outcome,
        "reason": row.reason,
        "marks": [[mark, DISQUALIFYING.get(mark) or NOTED.get(mark, ""), mark in DISQUALIFYING] for mark in row.marks],
        "groups": [[title, list(facts)] for title, facts in _groups(row) if facts],
        "gpus": gpu_table(row.gpus),
        "steps": [[f"process {process.repeat}", _ticks(process.step_seconds)] for process in row.measured],
        "stages": [
            [stage, _ticks(np.asarray(seconds)), STAGE_COLOURS.get(stage, STAGE_COLOURS["other"])]
            for stage, seconds in next((one.stage_seconds for one in row.measured if one.stage_seconds), {}).items()
            if any(seconds)
        ],
        "kernels": _kernels(row.kernels) if row.kernels else None,
        "logs": [log for process in row.processes for log in _logs(process)],
        "plan": "" if FOREIGN in row.marks else _plan(row, own_networks),
        "place": "beside run.json, which has the network," if row.case.workload in own_networks else "",
    }


def _kernels(found: Profile) -> dict[str, Any]:
    """The stages beside the staged pass, and the longest kernels: their names cut, and whole."""
    whole = found.seconds or 1.0
    return {
        "profiler": found.profiler,
        "trace": found.trace,
        "stages": [
            [one.stage, milliseconds(one.busy), milliseconds(one.staged), share(one.idle_share)] for one in found.stages
        ],
        "rows": [
            [cut(row.name, NAMED), row.name, row.stage, row.kind, *_took(row, whole)] for row in found.rows[:KERNELS]
        ],
    }


def _took(row: KernelTimes, whole: float) -> list[str]:
    return [f"{row.calls:g}", milliseconds(row.seconds), share(row.seconds / whole)]


def _ticks(seconds: Values) -> list[int]:
    """In units of 0.1 µs: whole numbers become text three times as fast as others."""
    found: list[int] = (seconds * 1e7).round().astype(int).tolist()
    return found


def _plan(row: Row, own_networks: Collection[str]) -> str:
    return plan_text(row.case.adapter, row.case.label, "One case of a run.", [Block(row.case, "")], own_networks)


def _groups(row: Row) -> Iterable[tuple[str, list[Fact]]]:
    yield "Speed", list(_speed(row))
    yield "Milliseconds per iteration", list(_budget(row))
    yield "Proof", list(_proof(row))
    if FOREIGN not in row.marks:  # of which the label says all that is known
        yield "Case", list(_values(row.case))
    for process in row.processes:
        yield f"Process {process.repeat}", list(_process(process))


def _speed(row: Row) -> Iterator[Fact]:
    if row.rate and row.rate_per_device:
        yield "samples/s, all devices together", f"{number(row.rate.value)}{bracketed(row.rate)}"
        yield "samples/s per device", number(row.rate_per_device.value)
    if row.against:
        ratio = row.against.ratio
        yield "against the fastest of its group", f"{number(ratio.value)}{bracketed(ratio)}: {row.against.verdict}"
    if row.utilisation:
        yield "of the measured peak of its devices", share(row.utilisation)
    if row.joules_per_sample:
        yield "joules per sample", number(row.joules_per_sample)
    if row.scaling:
        found = row.scaling.efficiency.scaled(100)
        words = f"{number(found.value)} %{bracketed(found)} of {row.scaling.baseline_label}"
        yield "scaling efficiency", words


def _budget(row: Row) -> Iterator[Fact]:
    if row.budget:
        for stage in STAGES:
            yield (
                stage if stage != "communication" else "exposed communication",
                milliseconds(getattr(row.budget, stage)),
            )
        yield "total: native", milliseconds(row.budget.native)
        yield "staged", milliseconds(row.budget.staged)


def _proof(row: Row) -> Iterator[Fact]:
    if row.proof is None:
        if row.processes:
            yield "none", row.proof_reason
        return
    proof, worst = row.proof, row.proof.worst
    yield "passed" if proof.passed else "failed", proof.reason or proof.scope or "against a float64 oracle"
    if worst:
        error = f"{scientific(worst.error)} of {scientific(worst.tolerance)} allowed"
        yield "worst", f"{worst.what} {worst.tensor}: {error}"
    yield "parameters", number(proof.parameter_count)
    yield "multiply-accumulates", number(proof.macs)
    yield "key", proof.key or ""


def _values(found: Any, above: str = "") -> Iterator[Fact]:
    """Every resolved value of a case, those of one of its parts with its name before theirs."""
    values = found._asdict() if hasattr(found, "_fields") else vars(found)
    for name, value in values.items():
        if is_dataclass(value) or hasattr(value, "_fields"):
            yield from _values(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", f"{value:g}" if isinstance(value, float) else in_words(value)


def _process(process: Process) -> Iterator[Fact]:
    about = process.about
    yield "outcome", f"{process.outcome}{': ' if process.reason else ''}{process.reason}"
    yield "samples/s", number(process.rate)
    for name, seconds in process.passes.items():
        yield f"pass {name}", f"{milliseconds(seconds)} ms per step: {BY_NAME[name].runs}"
    yield "interpreter", f"Python {about.interpreter.version}, {about.interpreter.origin}"
    yield "versions", ", ".join(f"{name} {version}" for name, version in about.versions.items())
    yield "hosts", ", ".join(about.hosts)
    yield "processors", ", ".join(sorted(about.processors)) or "unknown"
    yield "transport", about.transport or "none"
    for values in about.environments.values():
        given = [f"{name}={value}" for name, value in values.items() if value]
        yield "variables that change what is computed", ", ".join(given) or "none is set"
    if about.turns_with:
        yield "native pass", f"in turns with {about.turns_with} other case{'s' * (about.turns_with > 1)}"
    yield "load before, after", f"{about.load.before[0]}, {about.load.after[0]}"
    if process.noise.set_aside_share:
        yield (
            "native steps set aside, as others used the machine",
            f"{share(process.noise.set_aside_share)} of their time",
        )
    if process.noise.clock_hz:
        yield "clock of its cores at the end", f"{process.noise.clock_hz / 1e9:.2f} GHz"
    if process.memory:
        yield "memory of each rank at most", ", ".join(memory(each.host_bytes) for each in process.memory)
        on_devices = [memory(each.device_bytes) for each in process.memory if each.device_bytes]
        if on_devices:
            yield "on its devices", ", ".join(on_devices)
    yield from (
        (f"last loss, {name.replace('_', ' ')}", number(loss))
        for name, loss in process.losses.items()
        if loss is not None
    )
    yield from ((name.replace("_", " "), in_words(note)) for name, note in about.notes.items())


def _logs(process: Process) -> list[list[str]]:
    evidence = process.about.evidence
    logs = evidence.logs.items() if evidence else ()
    return [[f"process {process.repeat}: {name}", "\n".join(lines)] for name, lines in logs if lines]
