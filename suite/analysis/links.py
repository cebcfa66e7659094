"""The records of `stagebench comm` as links: times over sizes, bandwidths, the fit, the part that computing hides.

`fitted` gives latency and bandwidth: t(s) = alpha + beta * s. Relative errors are minimised (weights 1/t), so that the
microseconds of a small message count as much as the seconds of a large one (Hockney's model; unweighted, the largest
messages alone would decide, and alpha would be noise).

`factor` turns algorithm bandwidth (bytes / time) into bus bandwidth, which is comparable over numbers of ranks.
Algorithm bandwidth of an all-reduce falls as ranks are added, though the wires are as fast as before. The factors are
those of nccl-tests: the least traffic between equal ranks, per rank's wire.
https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md
Over servers (MXNet's key-value store) every number crosses a rank's wire once each way, and all of them meet at the
servers: there the convention holds, and it is no wire's speed.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stagebench.suite.analysis.comparability import FOREIGN
from stagebench.suite.analysis.machine import (
    Noise,
    Reference,
    Where,
    beside_run,
    best_of_run,
    elsewhere,
    noise_of,
    references_of,
    where,
)
from stagebench.suite.analysis.stats import LARGEST_ERROR, Values, centre, determined
from stagebench.suite.contracts.case import Case, Collective
from stagebench.suite.errors import Refused
from stagebench.suite.results.foreign import imported, stated
from stagebench.suite.results.rank_report import Rank
from stagebench.suite.results.records import Record
from stagebench.suite.results.run_folder import RunFolder, case_of
from stagebench.suite.results.stored import json_ready
from stagebench.suite.worker.messages import ExchangeTimes, Memory, OverlapTimes, SkippedSizes

FEWEST_SIZES = 3  # sizes: two are met exactly, whatever they are


@dataclass(frozen=True)
class Fit:
    """The model, and its distance from the measured times."""

    alpha: float  # seconds
    beta: float  # seconds a byte
    alpha_error: float  # standard errors
    beta_error: float
    error: float  # root mean square of the relative residuals
    worst: float  # the largest relative residual
    samples: int  # times that were fitted: the two parameters leave two fewer degrees of freedom

    @property
    def describes(self) -> bool:
        """True if the measured times are near a line at all: else neither parameter is determined."""
        return self.error <= LARGEST_ERROR

    @property
    def tells_latency(self) -> bool:
        """True if alpha is determined: of large messages alone it is a small difference of large times."""
        return self.describes and self.alpha > 0 and self.alpha_error <= LARGEST_ERROR * self.alpha

    @property
    def tells_bandwidth(self) -> bool:
        """True if beta is determined: of small messages alone it is not."""
        return self.describes and self.beta > 0 and self.beta_error <= LARGEST_ERROR * self.beta

    @property
    def tells(self) -> bool:
        """True if both are determined: else the line is not drawn."""
        return self.tells_latency and self.tells_bandwidth

    def seconds(self, size: float) -> float:
        """Return the time of a message of `size` bytes."""
        return self.alpha + self.beta * size


def fitted(sizes: Sequence[float], seconds: Sequence[float]) -> Fit | None:
    """Return the fit of positive times; None of fewer than three different sizes.

    Neither parameter becomes negative: if it is in the best fit, it is set to 0. Its error is that of the free fit: an
    alpha of 0 comes from noise, if large messages do not show it, and not from a link without latency.
    """
    if len(set(sizes)) < FEWEST_SIZES:
        return None
    times = np.asarray(seconds, dtype=np.float64)
    rows = np.stack([1.0 / times, np.asarray(sizes, dtype=np.float64) / times], axis=1)
    # Columns of one scale: sizes reach 1e8, and the normal equations square that.
    scale = np.linalg.norm(rows, axis=0)
    scaled = rows / scale
    ones = np.ones(len(times))
    free, *_ = np.linalg.lstsq(scaled, ones, rcond=None)
    # Both, unless one of them would become negative.
    used = [0, 1] if (free >= 0).all() else [int(free.argmax())]
    found, *_ = np.linalg.lstsq(scaled[:, used], ones, rcond=None)
    values = np.zeros(2)
    values[used] = found / scale[used]
    residuals = rows @ values - 1.0
    spread = float(np.sum((scaled @ free - 1.0) ** 2)) / (len(times) - 2)
    errors = np.sqrt(spread * np.diag(np.linalg.inv(scaled.T @ scaled))) / scale
    error, worst = np.sqrt(np.mean(residuals**2)), np.abs(residuals).max()
    (alpha, beta), (alpha_error, beta_error) = values.tolist(), errors.tolist()
    return Fit(alpha, beta, alpha_error, beta_error, float(error), float(worst), len(times))


def factor(operation: str, ranks: int) -> float:
    """Return bus bandwidth over algorithm bandwidth; ValueError for an operation without a factor."""
    if operation in ("broadcast", "point-to-point"):
        return 1.0
    if operation == "all-reduce":
        return 2.0 * (ranks - 1) / ranks
    if operation in ("reduce-scatter", "all-gather", "all-to-all"):
        return (ranks - 1) / ranks
    raise ValueError(f"no bus factor is known for {operation!r}")


Row = dict[str, Any]
LATE_S, LATE = 5e-6, 0.02  # a start is late beyond these seconds, this share of the median, and the clock's error
LEAST = 5  # samples in time: fewer give no figure


@dataclass(frozen=True)
class Point:
    """A message size, all ranks together: each sample is that of the slowest rank."""

    # "single"; of a network's tensors also "row" (one after the other) and "together" (all begun, then waited for)
    kind: str
    operation: str
    bytes: int  # of all messages
    messages: int
    seconds: float | None  # the median; None: fewer than LEAST samples began in time
    low: float | None  # 5th percentile
    high: float | None  # 95th percentile
    samples: int  # in time
    factor: float
    late: int = 0  # samples discarded, since a rank began them late
    clock_error: float | None = None  # seconds; None: nothing was scheduled

    @property
    def algorithm_bandwidth(self) -> float | None:
        return self.bytes / self.seconds if self.seconds else None

    @property
    def bus_bandwidth(self) -> float | None:
        """Bytes a second, as nccl-tests counts them (`factor`)."""
        return self.bytes * self.factor / self.seconds if self.seconds else None

    def to_dict(self) -> Row:
        rates = {"algorithm_bandwidth": self.algorithm_bandwidth, "bus_bandwidth": self.bus_bandwidth}
        return {**asdict(self), **rates}


@dataclass(frozen=True)
class Overlap:
    """An exchange during computation: seconds of the slowest rank, medians; None: too few samples began in time."""

    bytes: int
    comm: float | None
    comp: float | None
    both: float | None
    progressed: float | None  # both, with calls between slices of computation that let the library progress
    hidden: float | None  # the share of the shorter one that costs nothing; None: not determined
    hidden_with_progress: float | None


@dataclass(frozen=True)
class Link:
    """The measurements of a case."""

    case: Case
    outcome: str
    reason: str
    transport: str = ""
    settings: dict[str, str] = field(default_factory=dict)  # of libraries of communication, on rank 0
    hosts: tuple[str, ...] = ()
    points: Sequence[Point] = ()
    overlaps: Sequence[Overlap] = ()
    fit: Fit | None = None
    skipped: Sequence[int] = ()  # bytes of the messages beyond the case's budget
    noise: Noise | None = None  # None: nothing was measured, or not here
    references: tuple[Reference, ...] = ()  # of its ranks
    memory: Sequence[Memory] = ()  # of each rank at most; () unknown
    simulated: bool = False  # whether one kernel runs all of its hosts, as in `stagebench lab`
    where: Where | None = None  # None: nothing was measured, or not here
    elsewhere: tuple[str, ...] = ()  # marks of a link that was not measured where most of the run was

    @property
    def collective(self) -> Collective:
        """The operation and its messages."""
        assert self.case.collective is not None, f"{self.case.id} is a training"
        return self.case.collective

    @property
    def network(self) -> str | None:
        """The network whose gradient tensors were exchanged; None: messages of given sizes were."""
        return self.case.workload if self.collective.tensors else None

    @property
    def refused(self) -> Refused:
        """The reason for having no result."""
        return Refused(self.case.label, self.collective.backend, self.outcome, self.reason)

    @property
    def singles(self) -> list[Point]:
        """The points of single messages, by size; of a network's tensors the flat buffer is the largest."""
        return [point for point in self.points if point.kind == "single"]

    @property
    def without_figure(self) -> list[Point]:
        """The messages of which too few samples began in time."""
        return [point for point in self.points if point.seconds is None]

    @property
    def marks(self) -> tuple[str, ...]:
        """Marks that a reader of its figures must know (stagebench.suite.analysis.comparability)."""
        return (*self.elsewhere, *(("disturbed",) if self.noise is not None and self.noise.disturbed else ()))

    @property
    def marked(self) -> str:
        """The marks as they follow its name; "" without any."""
        return f" ({', '.join(self.marks)})" if self.marks else ""

    @property
    def bus_limit(self) -> float | None:
        """Bus bandwidth of an endless message, bytes per second; None if no fit determines it."""
        return self.singles[0].factor / self.fit.beta if self.fit and self.fit.tells_bandwidth else None

    def to_dict(self) -> Row:
        case = self.case
        place = {"workload": self.network, "placement": case.placement, "graph_digest": case.graph_digest}
        fit = self.fit and {
            **asdict(self.fit),
            "alpha_determined": self.fit.tells_latency,
            "beta_determined": self.fit.tells_bandwidth,
            "bus_bandwidth": self.bus_limit,
        }
        values = {
            "id": case.id,
            "case": stated(case) if self.outcome == FOREIGN else asdict(self.collective) | place,
            "outcome": self.outcome,
            "reason": self.reason,
            "transport": self.transport,
            "settings": self.settings,
            "hosts": self.hosts,
            "simulated": self.simulated,
            "marks": self.marks,
            "noise": self.noise,
            "memory": self.memory,
            "points": [point.to_dict() for point in self.points],
            "overlap": self.overlaps,
            "skipped": self.skipped,
            "fit": fit,
        }
        return json_ready(values)


SIMULATED = (
    "One machine runs all of these hosts, and the link is simulated: in `stagebench lab`, messages of 16 KiB and less "
    "(above 1 Gbit/s also larger ones) pass faster than its rate and say nothing of it"
)
OTHER_METHOD = "its figures were defined otherwise, by another version of stagebench"


def written(size: int) -> str:
    """Write 4 B, 1 KiB, 97.5 MiB; exact for whole numbers of a unit."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size / unit:.4g} {name}"
    return f"{size} B"


def links(folder: RunFolder) -> Iterator[Link]:
    """Yield every case of the run, in the plan's order; cases that could not run only have their reason."""
    if folder.about.imported:
        yield from imported_links(folder)
        return
    method, found = folder.about.method, []
    for entry in folder.cases:
        record = None if entry.outcome else folder.record(entry.id, 0)
        if record is None:
            invalid = next((why for name, why in folder.invalid.items() if case_of(name) == entry.id), None)
            outcome = entry.outcome or ("invalid" if invalid else "missing")
            found.append(Link(entry.case, outcome, entry.reason or invalid or "not measured yet"))
        elif record.method != method:
            found.append(Link(entry.case, "other method", OTHER_METHOD))
        else:
            found.append(link(record))
    best = best_of_run(each for one in found for each in one.references)
    moved = elsewhere((one.case.id, one.case.placement, one.where) for one in found if one.where)
    for one in found:
        marks = tuple(mark for mark, marked in moved.items() if one.case.id in marked)
        noise = beside_run(one.noise, one.references, best) if one.noise else None
        yield replace(one, noise=noise, elsewhere=marks)


def by_mark(found: Sequence[Link]) -> dict[str, list[Link]]:
    """Return the links that have each mark."""
    marks = dict.fromkeys(mark for link in found for mark in link.marks)
    return {mark: [link for link in found if mark in link.marks] for mark in marks}


def imported_links(folder: RunFolder) -> Iterator[Link]:
    """Yield the messages of each run of another program; of their samples only the mean is known."""
    every = imported(folder).exchanges
    for _, of_run in groupby(every, lambda one: (one.case.id, one.origin.file, one.origin.run)):
        first, *more = of_run
        link = Link(first.case, FOREIGN, first.origin.words, hosts=first.hosts)
        operation = link.collective.operation
        bus = factor(operation, first.case.placement.ranks)
        points = [
            Point("single", operation, one.bytes, 1, one.seconds, one.seconds, one.seconds, one.samples, bus)
            for one in (first, *more)
        ]
        yield replace(link, points=points, fit=_fitted(points))


def _fitted(points: Sequence[Point]) -> Fit | None:
    """The fit of the single messages that have a figure."""
    timed = [(point.bytes, point.seconds) for point in points if point.kind == "single" and point.seconds]
    return fitted([size for size, _ in timed], [seconds for _, seconds in timed])


def link(record: Record) -> Link:
    """Return the link of a record; a case that failed keeps the sizes that all ranks had finished."""
    ranks = record.ranks
    points, overlaps, skipped = [], [], []
    for rows in zip(*(rank.exchanges for rank in ranks), strict=False):  # that every rank has sent
        if exchanges := [row for row in rows if isinstance(row, ExchangeTimes)]:
            points.append(point(exchanges))
        if during := [row for row in rows if isinstance(row, OverlapTimes)]:
            overlaps.append(overlap(during))
        if beyond := [row for row in rows if isinstance(row, SkippedSizes)]:
            skipped += beyond[0].bytes
    joined = next((rank.joined for rank in ranks if rank.joined), None)
    hosts = {rank.hello.host: rank.hello.boot for rank in ranks if rank.hello}
    return Link(
        case=record.case,
        outcome=record.outcome,
        reason=record.reason,
        transport=joined.transport if joined else "",
        settings=settings(ranks[0]) if ranks else {},
        hosts=tuple(hosts),
        points=points,
        overlaps=overlaps,
        fit=_fitted(points),
        skipped=skipped,
        noise=noise_of(record),
        references=references_of(record),
        memory=[rank.memory for rank in ranks if rank.memory],
        where=where(ranks, record.case.placement.device),
        simulated=len(hosts) > 1 and "" not in hosts.values() and len(set(hosts.values())) == 1,
    )


def settings(rank: Rank) -> dict[str, str]:
    """Return a rank's settings of its libraries when it had joined; when it began, if it never joined; else none."""
    known = (part.settings for part in (rank.joined, rank.hello) if part)
    return next((each for each in known if each is not None), {})


def point(rows: Sequence[ExchangeTimes]) -> Point:
    """Join the same row of every rank, in the ranks' order."""
    first, ranks = rows[0], len(rows)
    # A round trip is rank 0's time: the last rank's begins with another rank's message.
    timed = rows[:1] if first.operation == "point-to-point" else rows
    seconds: Values = np.array([row.sample_s for row in timed]).max(axis=0)
    in_time, enough = _in_time(timed, seconds)
    errors = [row.clock_error_s or 0.0 for row in timed if row.late_s]
    low, middle, high = np.percentile(seconds[in_time], (5, 50, 95)).tolist() if enough else [None] * 3
    return Point(
        kind=first.kind,
        operation=first.operation,
        bytes=first.bytes,
        messages=first.messages,
        seconds=middle,
        low=low,
        high=high,
        samples=int(in_time.sum()),
        factor=factor(first.operation, ranks),
        late=int((~in_time).sum()),
        clock_error=max(errors, default=None),
    )


def overlap(rows: Sequence[OverlapTimes]) -> Overlap:
    """Join the same row of every rank."""
    ways = ("exchange_s", "compute_s", "both_s", "progressed_s")
    slowest: Values = np.max([[getattr(row, name) for name in ways] for row in rows], axis=0)
    in_time, enough = _in_time(rows, slowest[0])
    if not enough:
        return Overlap(rows[0].bytes, None, None, None, None, None, None)
    slowest = slowest[:, in_time]
    comm, comp, both, progressed = slowest
    comm_s, comp_s, both_s, progressed_s = np.median(slowest, axis=1).tolist()
    shares = _hidden(comm, comp, both), _hidden(comm, comp, progressed)
    return Overlap(rows[0].bytes, comm_s, comp_s, both_s, progressed_s, *shares)


def _in_time(rows: Sequence[ExchangeTimes | OverlapTimes], seconds: Values) -> tuple[NDArray[np.bool_], bool]:
    """Return which samples every rank began in time, as far as the clock shows, and whether LEAST of them are.

    Without a schedule all samples count, however few.
    """
    if not all(row.late_s for row in rows):
        return np.ones(len(seconds), dtype=bool), True
    error = max(row.clock_error_s or 0.0 for row in rows)
    limit = max(LATE_S, error, LATE * float(np.median(seconds)))
    in_time = np.array([max(late) <= limit for late in zip(*(row.late_s for row in rows), strict=True)])
    return in_time, int(in_time.sum()) >= LEAST


def _hidden(comm: Values, comp: Values, both: Values) -> float | None:
    """Return the hidden share; samples were taken in turns, so the saving of a turn is a pair's difference."""
    saved = comm + comp - both
    if saved.size < 2:
        return determined(float(saved[0] / min(comm[0], comp[0])), None)
    found = centre(saved, winsorised=True)
    shorter = min(centre(each, winsorised=True).value for each in (comm, comp))  # means over means: tails cancel
    return determined(found.value / shorter, found.half_width() / shorter)
