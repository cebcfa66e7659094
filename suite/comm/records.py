"""The cases and records in the run folder of `stagebench comm`."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

from pydantic import AfterValidator

from suite.comm.cases import CommCase
from suite.contracts.case import check_counts
from suite.results.invariants import CLOCKS
from suite.results.rank_report import AnyRank, life
from suite.results.records import AnyEntry, AnyRecord, Cases
from suite.results.run_folder import ResultFolder
from suite.results.stored import Kept, Stored
from suite.text import shown
from suite.worker import messages
from suite.worker.comm import divisible
from suite.worker.messages import ExchangeTimes, OverlapTimes, SkippedSizes

KIND: Literal["comm"] = "comm"
SAMPLES = ("sample_s", "exchange_s", "compute_s", "both_s", "progressed_s")  # taken one after the other
MOST_NUMBERS = 10**12  # of a message


def _possible(case: CommCase) -> CommCase:
    check_counts(case.placement)
    if not all(0 <= count <= MOST_NUMBERS for count in case.counts):
        raise ValueError(f"{shown(case.counts)} numbers a message; 0 to {MOST_NUMBERS:,} are possible")
    return case


PossibleCommCase = Annotated[CommCase, AfterValidator(_possible)]


class CommEntry(AnyEntry):
    """A case of communication."""

    case: PossibleCommCase


Times = ExchangeTimes | OverlapTimes | SkippedSizes


class CommRank(AnyRank):
    """The reports of a rank on one case, in order."""

    rows: tuple[Kept[Times], ...] = ()


def comm_rank(rank: int, sent: Sequence[messages.Message]) -> CommRank:
    return CommRank(rank=rank, **life(sent), rows=tuple(message for message in sent if isinstance(message, Times)))


class Tensor(Stored):
    """A gradient tensor of the network whose tensors were exchanged."""

    name: str
    numbers: int


class CommRecord(AnyRecord):
    """records/ID-r0.json of a run of `stagebench comm`."""

    kind: Literal["comm"] = KIND
    case: PossibleCommCase
    tensors: tuple[Tensor, ...] | None = None  # in backward order; None: no network's
    ranks: tuple[CommRank, ...]


def _sampled(rank: CommRank) -> float:
    """Return the seconds of all samples of a rank."""
    return sum(sum(getattr(row, name, ())) for row in rank.rows for name in SAMPLES)


def _of_row(row: ExchangeTimes | OverlapTimes, case: CommCase) -> str | None:
    """Return the problem of a rank's samples of a message, to follow the row's number; None without one."""
    if isinstance(row, ExchangeTimes) and row.kind not in ("single", "row", "together"):
        return f"is of the unknown kind {shown(row.kind)}"
    if row.operation != case.operation:
        return f"is of {shown(row.operation)}, its case of {case.operation}"
    named = ("exchange_s", "compute_s", "both_s", "progressed_s") if isinstance(row, OverlapTimes) else ("sample_s",)
    timed = [getattr(row, name) for name in named]
    if any(not times or min(times) <= 0 for times in timed):
        return "has no samples, or some that took no time"
    if len({*map(len, [*timed, *filter(None, [row.late_s])])}) > 1:
        return "has more of some times than of others"
    return None


def _messages(record: CommRecord, rows: Sequence[Times]) -> str | None:
    """Return the problem of a rank's messages unless they are those of its case, each once, in order."""
    case, world = record.case, record.case.placement.ranks
    numbers = [tensor.numbers for tensor in record.tensors or ()] if case.workload else list(case.counts)
    sizes = [case.itemsize * divisible(case.operation, count, world) for count in numbers]
    single = [row.bytes for row in rows if isinstance(row, ExchangeTimes) and row.kind == "single"]
    skipped = [size for row in rows if isinstance(row, SkippedSizes) for size in row.bytes]
    several = [row for row in rows if isinstance(row, ExchangeTimes) and row.kind != "single"]
    if case.workload:
        wanted = [*sorted(set(sizes)), sum(sizes)]
    else:
        wanted = sizes[: len(single)] if skipped else sizes
        if skipped and skipped != [case.itemsize * count for count in case.counts[len(single) :]]:
            return f"messages of {shown(skipped)} bytes were skipped, and other ones are missing"
    if single != wanted:
        return f"messages of {shown(single)} bytes were measured, and its case has {shown(wanted)}"
    if any((row.bytes, row.messages) != (sum(sizes), len(sizes)) for row in several):
        return f"all tensors are {len(sizes)} messages of {sum(sizes)} bytes, and other ones were measured"
    if any(row.bytes not in sizes for row in rows if isinstance(row, OverlapTimes)):
        return "a message that its case has not was measured beside computation"
    return None


def _of_rows(record: CommRecord) -> Iterator[str | None]:
    """Yield the problems of rows: all ranks must take the same samples of the case's messages. None: no problem."""
    for number, rows in enumerate(zip(*(rank.rows for rank in record.ranks), strict=False)):
        for row in rows:
            problem = None if isinstance(row, SkippedSizes) else _of_row(row, record.case)
            yield problem and f"row {number} {problem}"
        if len({str((type(row), getattr(row, "kind", ""), row.bytes)) for row in rows}) > 1:
            yield f"row {number} is not of as many bytes on every rank"
        if len({tuple(len(getattr(row, name, ())) for name in SAMPLES) for row in rows}) > 1:
            yield f"row {number} is not of the same samples on every rank"
    for rank in record.ranks if record.outcome == "ok" else ():
        problem = _messages(record, rank.rows)
        yield problem and f"rank {rank.rank}: {problem}"


class CommFolder(ResultFolder[CommEntry, CommRecord]):
    """The folder of a run of `stagebench comm`."""

    kind: str = KIND
    entry_type = CommEntry
    cases_type = Cases[CommEntry]
    record_type = CommRecord

    def broken(self, record: CommRecord) -> str | None:
        """Return the first invariant that a record breaks: those of every record, and those of collectives."""
        problem = next(filter(None, _of_rows(record)), None)
        if problem:
            return problem
        sampled = max(map(_sampled, record.ranks), default=0.0)
        if sampled > CLOCKS * record.seconds + 1.0:
            return f"its samples took {sampled:.3g} s, and all of it {record.seconds:.3g} s"
        return super().broken(record)
