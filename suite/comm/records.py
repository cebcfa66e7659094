"""What the folder of a run of `stagebench comm` holds beside that of a training: its cases and its records."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Discriminator

from suite.comm.cases import CommCase
from suite.contracts.case import check_counts
from suite.results.from_messages import life
from suite.results.invariants import CLOCKS
from suite.results.rank_report import AnyRank
from suite.results.records import AnyEntry, AnyRecord, Cases
from suite.results.run_folder import ResultFolder
from suite.results.stored import Stored
from suite.suggest import shown
from suite.worker import messages
from suite.worker.comm import divisible

KIND: Literal["comm"] = "comm"
# By kind, the list that is as long as there are samples.
SAMPLES_OF = {
    "single": "sample_s",
    "row": "sample_s",
    "together": "sample_s",
    "overlap": "exchange_s",
    "skipped": "bytes",
}
SAMPLES = ("sample_s", "exchange_s", "compute_s", "both_s", "progressed_s")  # which follow each other
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


class ExchangeTimes(Stored):
    """One rank's samples of one message, or of all gradient tensors of a network."""

    kind: Literal["single", "row", "together"]  # of tensors: one after the other; all begun, then waited for
    operation: str
    bytes: int  # of all messages of a sample
    messages: int
    sample_s: tuple[float, ...]
    late_s: tuple[float, ...] = ()  # how long after the scheduled start the rank began; () without a schedule
    clock_error_s: float | None = None  # bound on the error of the clock in common; None without a schedule
    wait_s: tuple[float, ...] = ()  # of method 2 and 1, in the barrier before each sample


class OverlapTimes(Stored):
    """One rank's samples of an exchange beside computation: each alone, then both."""

    kind: Literal["overlap"] = "overlap"
    operation: str
    bytes: int
    exchange_s: tuple[float, ...]
    compute_s: tuple[float, ...]
    both_s: tuple[float, ...]
    progressed_s: tuple[float, ...]  # both, with calls in between that let the library progress
    slices: int | None = None  # of computation
    late_s: tuple[float, ...] = ()  # of each turn, the latest start of its four samples; (): method 2 or 1
    clock_error_s: float | None = None


class SkippedSizes(Stored):
    """Messages that the case's budget had no time for."""

    kind: Literal["skipped"] = "skipped"
    bytes: tuple[int, ...]


Times = ExchangeTimes | OverlapTimes | SkippedSizes


class CommRank(AnyRank):
    """What a rank reports of one case, in order."""

    rows: tuple[Annotated[Times, Discriminator("kind")], ...] = ()


ROWS: dict[type[tuple[Any, ...]], type[Times]] = {
    messages.ExchangeTimes: ExchangeTimes,
    messages.OverlapTimes: OverlapTimes,
    messages.SkippedSizes: SkippedSizes,
}


def comm_row(message: messages.Message) -> Times | None:
    """What a message measured; None for one that reports something else."""
    kind = ROWS.get(type(message))
    return kind.model_validate(message) if kind else None


def comm_rank(rank: int, sent: Sequence[messages.Message]) -> CommRank:
    return CommRank(rank=rank, **life(sent), rows=tuple(row for row in map(comm_row, sent) if row))


class Tensor(Stored):
    """A gradient tensor of the network whose tensors were exchanged."""

    name: str
    numbers: int


class CommRecord(AnyRecord):
    """records/ID-r0.json of a run of `stagebench comm`."""

    kind: Literal["comm"] = KIND
    case: PossibleCommCase
    tensors: tuple[Tensor, ...] | None = None  # in backward order; None: no network's, or format 1
    ranks: tuple[CommRank, ...]


def _sampled(rank: CommRank) -> float:
    """Seconds of all its samples."""
    return sum(sum(getattr(row, name, ())) for row in rank.rows for name in SAMPLES)


def _of_row(row: ExchangeTimes | OverlapTimes, case: CommCase) -> str | None:
    """What is wrong with what one rank measured of one message; follows its number."""
    if row.operation != case.operation:
        return f"is of {shown(row.operation)}, its case of {case.operation}"
    named = ("exchange_s", "compute_s", "both_s", "progressed_s") if isinstance(row, OverlapTimes) else ("sample_s",)
    timed = [getattr(row, name) for name in named]
    if any(not times or min(times) <= 0 for times in timed):
        return "has no samples, or some that took no time"
    beside = [times for times in (row.late_s, getattr(row, "wait_s", ())) if times]  # not of every version
    if len({*map(len, timed), *map(len, beside)}) > 1:
        return "has more of some times than of others"
    return None


def _messages(record: CommRecord, rows: Sequence[Times]) -> str | None:
    """What is wrong with the messages that a rank measured: those of its case, each by itself once, in order."""
    case, world = record.case, record.case.placement.ranks
    numbers = [tensor.numbers for tensor in record.tensors or ()] if case.workload else list(case.counts)
    if not numbers:
        return None  # a network's, of which format 1 did not keep the tensors
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
    """Every rank took the same samples of the case's messages; None for what is right."""
    for number, rows in enumerate(zip(*(rank.rows for rank in record.ranks), strict=False)):
        for row in rows:
            problem = None if isinstance(row, SkippedSizes) else _of_row(row, record.case)
            yield problem and f"row {number} {problem}"
        if len({(row.kind, row.bytes) for row in rows}) > 1:
            yield f"row {number} is not of as many bytes on every rank"
        if len({len(getattr(row, SAMPLES_OF[row.kind])) for row in rows}) > 1:
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
        """Beside what holds of every record: every rank took the same samples of the case's operation, in some time."""
        problem = next(filter(None, _of_rows(record)), None)
        if problem:
            return problem
        sampled = max(map(_sampled, record.ranks), default=0.0)
        if sampled > CLOCKS * record.seconds + 1.0:
            return f"its samples took {sampled:.3g} s, and all of it {record.seconds:.3g} s"
        return super().broken(record)
