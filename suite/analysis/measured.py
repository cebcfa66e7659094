"""One record read: the numbers of one process group, and what speaks against them."""

from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np

from suite.analysis import reading, staleness
from suite.analysis.budget import Budget, of_process
from suite.analysis.learning import Learnt, learnt
from suite.analysis.reading import Reading
from suite.analysis.staleness import Staleness
from suite.analysis.stats import Values
from suite.contracts.case import TRAIN, Case
from suite.errors import StoreError
from suite.launching.placement_check import RankReport, busiest
from suite.results.run_folder import FORMAT

# Marks that keep a row out of every cross-framework chart and comparison, and what they mean.
DISQUALIFYING = {
    "no proof": "nothing shows that it trains the same network",
    "proof failed": "it does not train the same network",
    "non-finite loss": "it did not learn",
    "unsteady": "the native pass's warm-up never settled",
    "missing rank": "not all ranks reported, or the engine connected another number",
}
# Marks that a reader should know, without more.
NOTED = {
    "quick": "shorter sampling than the full measurement",
    "incomplete": "not every process was measured",
    "samples skipped": "unreadable samples were replaced by their neighbours; the notes name them",
    "one process": "the interval knows the noise of steps only",
    "unsteady breakdown": "the warm-up of another pass than native never settled",
    "large residual": "the stages explain the speed badly: conditions changed between passes, or fusing wins much",
}
RESIDUAL = 0.15  # of the native time: beyond it `other`, or a negative communication, is marked


@dataclass(frozen=True)
class Process:
    """What one record of outcome `ok`, or what is left of another, says."""

    repeat: int
    outcome: str
    reason: str
    step_seconds: Values  # native pass, slowest rank, scaled so that they sum to its wall time
    samples: int  # all ranks', native pass
    wall: float  # slowest rank's, from the common barrier
    budget: Budget | None
    marks: frozenset[str]
    losses: dict[str, float | None]  # by pass: the last iteration's, the mean over ranks
    layers: list[dict[str, Any]] | None
    learnt: Learnt | None  # of a case that trains
    reading: Reading | None
    staleness: Staleness | None  # of asynchronous workers
    about: dict[str, Any]  # interpreter, bundle, proof, load, transport, versions, hosts, ...

    @property
    def rate(self) -> float | None:
        """Samples per second of all ranks together."""
        return self.samples / self.wall if self.outcome == "ok" and self.wall > 0 else None


def read(record: dict[str, Any]) -> Process:
    """A record's process; StoreError when it is of another format or lacks what every record has."""
    name = f"records/{record.get('case_id')}-r{record.get('repeat')}.json"
    if record.get("format") != FORMAT:
        raise StoreError(f"{name} has format {record.get('format')!r}, this stagebench reads {FORMAT}")
    try:
        return _read(record)
    except (KeyError, TypeError, IndexError) as error:
        raise StoreError(
            f"{name} is not a whole record ({type(error).__name__}: {error}); remove it and run the plan again"
        ) from error


def _read(record: dict[str, Any]) -> Process:
    case, ranks = Case.from_dict(record["case"]), record["ranks"]
    native = [rank["passes"]["native"] for rank in ranks if "native" in rank["passes"]]
    lessons = [rank["training"] for rank in ranks if rank.get("training")]
    learning = case.passes == (TRAIN,)
    whole = len(lessons if learning else native) == case.placement.ranks
    slowest = max(native, key=lambda one: float(one["wall_s"])) if whole and native else None
    steps = np.array(slowest["step_s"] if slowest else [], dtype=np.float64)
    wall = float(slowest["wall_s"]) if slowest else 0.0
    return Process(
        repeat=record["repeat"],
        outcome=record["outcome"],
        reason=record["reason"],
        step_seconds=steps * (wall / steps.sum()) if steps.size else steps,
        samples=sum(one["samples"] for one in native),
        wall=wall,
        budget=of_process(ranks, case.placement.device_count) if record["outcome"] == "ok" and whole else None,
        marks=frozenset(_marks(record, case, whole)),
        losses={name: _mean_loss(ranks, name) for name in ("native", "staged", "compute_only")},
        learnt=learnt(lessons, case.training.target) if whole and learning else None,
        reading=reading.of_process(ranks) if record["outcome"] == "ok" and whole else None,
        staleness=staleness.of_process(ranks),
        layers=_mean_layers([rank["layers"] for rank in ranks if rank.get("layers")]),
        about=_about(record, ranks),
    )


def _marks(record: dict[str, Any], case: Case, whole: bool) -> "list[str]":
    if record["outcome"] not in ("ok", "diverged"):
        return []
    ranks, marks = record["ranks"], []
    joined = [(rank.get("joined") or {}).get("world") for rank in ranks]
    if not whole or any(world != case.placement.ranks for world in joined):
        marks.append("missing rank")
    # compute_only's ranks train without each other: its loss is not the case's.
    passes = [one for rank in ranks for name, one in rank["passes"].items() if name != "compute_only"]
    if record["outcome"] == "diverged" or any("loss" in one and one["loss"] is None for one in passes):
        marks.append("non-finite loss")
    if any("skipped" in (rank.get("notes") or {}) for rank in ranks):
        marks.append("samples skipped")
    unsteady = {name for rank in ranks for name, one in rank["passes"].items() if not one["steady"]}
    if "native" in unsteady:
        marks.append("unsteady")
    if unsteady - {"native"}:
        marks.append("unsteady breakdown")
    return marks


def _mean_loss(ranks: list[dict[str, Any]], name: str) -> float | None:
    losses = [rank["passes"].get(name, {}).get("loss") for rank in ranks]
    return None if None in losses or not losses else fmean(losses)


def _mean_layers(tables: list[list[dict[str, Any]]]) -> list[dict[str, Any]] | None:
    """Each layer's seconds, the mean over ranks."""
    return merge_layers(tables, fmean) if tables else None


def merge_layers(tables: list[list[dict[str, Any]]], merge: Any) -> list[dict[str, Any]]:
    """Tables of the same layers as one; `merge` makes one number of several."""
    times = ("forward_s", "backward_s", "communication_s")
    return [
        {**rows[0], **{name: merge([row.get(name) or 0.0 for row in rows]) for name in times}}
        for rows in zip(*tables, strict=False)
    ]


def _about(record: dict[str, Any], ranks: list[dict[str, Any]]) -> dict[str, Any]:
    joined = (ranks[0].get("joined") or {}) if ranks else {}
    notes: dict[str, Any] = {}
    for rank in reversed(ranks):
        notes.update(rank.get("notes") or {})
    kept = ("started", "seconds", "interpreter", "bundle", "proof", "proof_reason", "load", "evidence")
    return {
        **{key: record.get(key) for key in kept},
        "transport": joined.get("transport"),
        "versions": joined.get("versions") or {},
        "hosts": sorted({rank["hello"]["host"] for rank in ranks if rank.get("hello")}),
        "wire": wire(ranks),
        "cores": [rank["hello"].get("cores") for rank in ranks if rank.get("hello")],
        "notes": notes,
    }


def wire(ranks: list[dict[str, Any]]) -> dict[str, dict[str, Any]] | None:
    """By host its busiest interface and the bytes that it sent; None on one host, or where nobody could tell."""
    told = [
        RankReport(rank["rank"], rank["hello"]["host"], {name: each["sent"] for name, each in rank["wire"].items()}, 0)
        for rank in ranks
        if rank.get("hello") and rank.get("wire")
    ]
    if len({each.host for each in told}) < 2:
        return None
    return {host: {"interface": name, "sent": sent} for host, (name, sent) in busiest(told).items()}
