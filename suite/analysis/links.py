"""From the records of `stagebench comm` to links: times over sizes, bandwidths, the fit, what can be hidden."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from suite.analysis.alpha_beta import Fit, fitted
from suite.analysis.bus import factor
from suite.comm.cases import CommCase
from suite.results.run_folder import RunFolder

Row = dict[str, Any]
LEFT_OUT = "left out"  # the kind of the row that names the sizes for which the budget did not last


@dataclass(frozen=True)
class Point:
    """One size, all ranks together: each sample is that of the slowest rank."""

    kind: (
        str  # "single"; of a network's tensors also "row" (one after the other) and "together" (all begun, then waited)
    )
    operation: str
    bytes: int  # of all messages
    messages: int
    seconds: float  # the median
    low: float  # 5th percentile
    high: float  # 95th percentile
    samples: int
    skew: float | None  # median spread of the ranks' arrivals in seconds; None: no barrier stood before the samples
    factor: float

    @property
    def algorithm_bandwidth(self) -> float:
        """Bytes a second."""
        return self.bytes / self.seconds

    @property
    def bus_bandwidth(self) -> float:
        """Bytes a second, as nccl-tests counts them (suite.analysis.bus)."""
        return self.algorithm_bandwidth * self.factor

    def to_dict(self) -> Row:
        """Ready for JSON."""
        rates = {"algorithm_bandwidth": self.algorithm_bandwidth, "bus_bandwidth": self.bus_bandwidth}
        return {**asdict(self), **rates}


@dataclass(frozen=True)
class Overlap:
    """An exchange beside computation: seconds of the slowest rank, medians."""

    bytes: int
    comm: float
    comp: float
    both: float
    progressed: float  # both, with calls between slices of computation that let the library progress

    def hidden(self, both: float) -> float:
        """The share of the shorter one that costs nothing; below 0: together they take longer than in turn."""
        return (self.comm + self.comp - both) / min(self.comm, self.comp)

    @property
    def plain(self) -> float:
        """Without calls in between."""
        return self.hidden(self.both)

    @property
    def with_progress(self) -> float:
        """With calls in between."""
        return self.hidden(self.progressed)

    def to_dict(self) -> Row:
        """Ready for JSON."""
        return {**asdict(self), "hidden": self.plain, "hidden_with_progress": self.with_progress}


@dataclass(frozen=True)
class Link:
    """What one case has measured."""

    case: CommCase
    outcome: str
    reason: str
    transport: str
    settings: dict[str, str]  # of libraries of communication, on rank 0
    hosts: tuple[str, ...]
    points: tuple[Point, ...]
    overlaps: tuple[Overlap, ...]
    fit: Fit | None
    left_out: tuple[int, ...] = ()  # bytes of the messages for which the case's budget did not last

    @property
    def singles(self) -> list[Point]:
        """One message each, by size; of a network's tensors the flat buffer is the largest."""
        return [point for point in self.points if point.kind == "single"]

    @property
    def bus_limit(self) -> float | None:
        """Bus bandwidth of an endless message, bytes a second; None where there is no fit, or no limit in it."""
        return self.singles[0].factor / self.fit.beta if self.fit and self.fit.beta else None

    def to_dict(self) -> Row:
        """Ready for JSON."""
        return {
            "id": self.case.id,
            "case": asdict(self.case),
            "outcome": self.outcome,
            "reason": self.reason,
            "transport": self.transport,
            "settings": self.settings,
            "hosts": list(self.hosts),
            "points": [point.to_dict() for point in self.points],
            "overlap": [overlap.to_dict() for overlap in self.overlaps],
            "left_out": list(self.left_out),
            "fit": self._fit() if self.fit else None,
        }

    def _fit(self) -> Row:
        assert self.fit is not None
        more = {"alpha_determined": self.fit.tells_latency, "bus_bandwidth": self.bus_limit}
        return {**asdict(self.fit), **more}


def links(folder: RunFolder) -> Iterator[Link]:
    """Every case of the run in the order asked for; those that could not run have their reason and nothing else."""
    for row in folder.cases:
        record = None if row["outcome"] else folder.record(row["id"], 0)
        case = CommCase.from_dict(row["case"])
        if record is None:
            outcome, reason = row["outcome"] or "missing", row["reason"] or "not measured yet"
            yield Link(case, outcome, reason, "", {}, (), (), (), None)
        else:
            yield link(case, record)


def link(case: CommCase, record: Row) -> Link:
    """Of a record; a case that failed keeps the sizes that all ranks had finished."""
    said = record["ranks"]
    rows = list(zip(*(rank["rows"] for rank in said), strict=False))  # rows that every rank has sent
    points = [point(each) for each in rows if each[0]["kind"] not in ("overlap", LEFT_OUT)]
    overlaps = [overlap(each) for each in rows if each[0]["kind"] == "overlap"]
    left_out = tuple(size for each in rows if each[0]["kind"] == LEFT_OUT for size in each[0]["bytes"])
    singles = [each for each in points if each.kind == "single"]
    fit = fitted([each.bytes for each in singles], [each.seconds for each in singles])
    joined = next((rank["joined"] for rank in said if rank["joined"]), None) or {}
    hosts = tuple(dict.fromkeys(rank["hello"]["host"] for rank in said if rank["hello"]))
    return Link(
        case=case,
        outcome=record["outcome"],
        reason=record["reason"],
        transport=str(joined.get("transport", "")),
        settings=settings(said[0]),
        hosts=hosts,
        points=tuple(points),
        overlaps=tuple(overlaps),
        fit=fit,
        left_out=left_out,
    )


def settings(rank: Row) -> dict[str, str]:
    """What a rank's libraries were told when it had joined, else when it began; records of before know one or none."""
    said = ((rank[kind] or {}).get("settings") for kind in ("joined", "hello"))
    found: dict[str, str] = next((each for each in said if each is not None), {})
    return found


def point(rows: Sequence[Row]) -> Point:
    """One row of every rank, in the ranks' order."""
    first, ranks = rows[0], len(rows)
    # There and back is rank 0's time: the last rank's begins with somebody else's message.
    timed = rows[:1] if first["operation"] == "point-to-point" else rows
    seconds = np.max([row["seconds"] for row in timed], axis=0)
    waits = np.array([row["waits"] for row in timed])
    low, middle, high = (float(value) for value in np.percentile(seconds, (5, 50, 95)))
    return Point(
        kind=first["kind"],
        operation=first["operation"],
        bytes=first["bytes"],
        messages=first["messages"],
        seconds=middle,
        low=low,
        high=high,
        samples=len(seconds),
        skew=float(np.median(waits.max(axis=0) - waits.min(axis=0))) if waits.size else None,
        factor=factor(first["operation"], ranks),
    )


def overlap(rows: Sequence[Row]) -> Overlap:
    """One row of every rank."""
    keys = ("comm_s", "comp_s", "both_s", "progressed_s")
    return Overlap(rows[0]["bytes"], *(_slowest([row[key] for row in rows]) for key in keys))


def _slowest(samples: Sequence[Sequence[float]]) -> float:
    return float(np.median(np.max(samples, axis=0)))
