"""A run folder as rows, one a case: outcome, marks, speed, budget, scaling, losses, layers.

Records are read one at a time and only what rows need is kept, so that a long run fits in
little memory. A row has the speed of the processes that were measured well; a run may be
incomplete, and its rows say so.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

from suite.budget import Budget, over_processes
from suite.case import Case
from suite.comparison import Against, against_fastest
from suite.errors import StoreError
from suite.measured import DISQUALIFYING, Process, merge_layers, read
from suite.scaling import Scaling, scaling_of
from suite.stats import Estimate, Interval, rate
from suite.store import RunFolder

MISSING = "not measured"  # a case that could run, without any record: the run was interrupted


@dataclass
class Row:
    """One case of a run, with everything a page says of it."""

    id: str
    case: Case
    outcome: str  # ok only if every record is; else the first other outcome
    reason: str
    processes: list[Process]
    marks: list[str] = field(default_factory=list)
    proof: dict[str, Any] | None = None
    proof_reason: str = ""  # why there is none
    estimate: Estimate | None = None  # global samples/s
    scaling: Scaling | None = None
    against: Against | None = None

    @property
    def rate(self) -> Interval | None:
        """Global samples/s: all ranks' samples / the slowest rank's wall time; median over processes."""
        return self.estimate.interval if self.estimate else None

    @property
    def rate_per_device(self) -> Interval | None:
        """The same for each rank's device."""
        return self.rate.scaled(1 / self.case.placement.ranks) if self.rate else None

    @property
    def comparable(self) -> bool:
        """Whether it may stand beside other frameworks' rows in a chart or a comparison."""
        return self.estimate is not None and not any(mark in DISQUALIFYING for mark in self.marks)

    @property
    def several_ranks(self) -> bool:
        """Whether scaling is a question."""
        return self.case.placement.ranks > 1

    @property
    def measured(self) -> list[Process]:
        """The processes with a speed."""
        return [process for process in self.processes if process.rate]

    @property
    def budget(self) -> Budget | None:
        """The closed budget, medians over processes."""
        return over_processes([process.budget for process in self.measured if process.budget])

    @property
    def layers(self) -> list[dict[str, Any]] | None:
        """Each layer's seconds, the median over processes."""
        tables = [process.layers for process in self.measured if process.layers]
        return merge_layers(tables, median) if tables else None

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready values; every step stays in the record files."""
        budget = self.budget
        return {
            "id": self.id,
            "label": self.case.label,
            "case": self.case.to_dict(),
            "outcome": self.outcome,
            "reason": self.reason,
            "marks": self.marks,
            "comparable": self.comparable,
            "proof": self.proof["key"] if self.proof else None,
            "samples_per_second": asdict(self.rate) if self.rate else None,
            "samples_per_second_per_device": asdict(self.rate_per_device) if self.rate_per_device else None,
            "processes": [_process(process) for process in self.processes],
            "budget_seconds": budget.to_dict() if budget else None,
            "scaling": asdict(self.scaling) if self.scaling else None,
            "against_fastest": asdict(self.against) if self.against else None,
            "layers": self.layers,
        }


def summarise(folder: RunFolder) -> list[Row]:
    """Every case's row, in the plan's order; StoreError for a record that cannot be read or belongs to no case."""
    cases, proofs = folder.cases, folder.proofs()
    processes: dict[str, list[Process]] = {entry["id"]: [] for entry in cases}
    for record in folder.records():
        process = read(record)
        if record["case_id"] not in processes:
            raise StoreError(
                f"the record of case {record['case_id']} in {folder.path / 'records'} belongs to no case of "
                "cases.json; it is another run's: move it away"
            )
        processes[record["case_id"]].append(process)
    rows = [_row(entry, processes[entry["id"]], proofs) for entry in cases]
    for row in rows:
        row.scaling = scaling_of(row.case, row.estimate, [(one.id, one.case, one.estimate) for one in rows])
    verdicts = against_fastest([(row.id, row.case, row.estimate) for row in rows if row.comparable])
    for row in rows:
        row.against = verdicts.get(row.id)
    return rows


def _row(entry: dict[str, Any], processes: list[Process], proofs: dict[str, dict[str, Any]]) -> Row:
    case = Case.from_dict(entry["case"])
    processes.sort(key=lambda process: process.repeat)
    outcome, reason = _outcome(entry, processes)
    row = Row(entry["id"], case, outcome, reason, processes)
    keys = {process.about["proof"] for process in processes if process.about["proof"]}
    if len(keys) == 1:
        row.proof = proofs.get(keys.copy().pop())
    row.proof_reason = _proof_reason(row, keys)
    row.marks = list(_marks(row))
    if row.measured:
        first = row.measured[0]
        samples_per_step = first.samples / first.step_seconds.size
        row.estimate = rate([process.step_seconds for process in row.measured], samples_per_step)
    return row


def _outcome(entry: dict[str, Any], processes: list[Process]) -> tuple[str, str]:
    if not processes:
        return entry["outcome"] or MISSING, entry["reason"] or ("" if entry["outcome"] else "the run stopped before it")
    failed = next((process for process in processes if process.outcome != "ok"), None)
    return (failed.outcome, failed.reason) if failed else ("ok", "")


def _proof_reason(row: Row, keys: set[str]) -> str:
    if row.proof:
        return ""
    if len(keys) > 1:
        return f"its records name different proofs ({', '.join(sorted(keys))}): the framework changed during the run"
    if keys:
        return f"proofs/{keys.copy().pop()}.json is missing from the run folder"
    said = [process.about["proof_reason"] for process in row.processes if process.about["proof_reason"]]
    return said[0] if said else "no proof was made"


def _marks(row: Row) -> Iterable[str]:
    if not row.processes:
        return
    found: set[str] = set().union(*(process.marks for process in row.processes))
    yield from (mark for mark in ("missing rank", "non-finite loss", "unsteady", "unsteady breakdown") if mark in found)
    if row.proof is None:
        yield "no proof"
    elif not row.proof["passed"]:
        yield "proof failed"
    if row.case.sampling.quick:
        yield "quick"
    if len(row.measured) < row.case.sampling.processes:
        yield "incomplete"
    if len(row.measured) == 1:
        yield "one process"


def _process(process: Process) -> dict[str, Any]:
    return {
        "repeat": process.repeat,
        "outcome": process.outcome,
        "samples_per_second": process.rate,
        "steps": process.step_seconds.size,
        "wall_seconds": process.wall,
        "losses": process.losses,
        "load": process.about["load"],
    }
