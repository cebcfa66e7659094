"""What the folder of a run of `stagebench comm` holds beside that of a training: its cases and its records."""

from typing import Annotated, Literal

from pydantic import Discriminator

from suite.comm.cases import CommCase
from suite.results.records import AnyEntry, AnyRank, AnyRecord, Cases
from suite.results.run_folder import ResultFolder
from suite.results.stored import Stored

KIND: Literal["comm"] = "comm"


class CommEntry(AnyEntry):
    """A case of communication."""

    case: CommCase


class ExchangeTimes(Stored):
    """One rank's samples of one message, or of all gradient tensors of a network."""

    kind: Literal["single", "row", "together"]  # of tensors: one after the other; all begun, then waited for
    operation: str
    bytes: int  # of all messages of a sample
    messages: int
    sample_s: tuple[float, ...]
    wait_s: tuple[float, ...]  # in the barrier before each sample; () without a barrier


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


class SkippedSizes(Stored):
    """Messages that the case's budget had no time for."""

    kind: Literal["skipped"] = "skipped"
    bytes: tuple[int, ...]


Times = Annotated[ExchangeTimes | OverlapTimes | SkippedSizes, Discriminator("kind")]


class CommRank(AnyRank):
    """What a rank reports of one case, in order."""

    rows: tuple[Times, ...] = ()


class Tensor(Stored):
    """A gradient tensor of the network whose tensors were exchanged."""

    name: str
    numbers: int


class CommRecord(AnyRecord):
    """records/ID-r0.json of a run of `stagebench comm`."""

    kind: Literal["comm"] = KIND
    case: CommCase
    tensors: tuple[Tensor, ...] | None = None  # in backward order; None: no network's, or format 1
    ranks: tuple[CommRank, ...]


class CommFolder(ResultFolder[CommEntry, CommRecord]):
    """The folder of a run of `stagebench comm`."""

    kind = KIND
    entry_type = CommEntry
    cases_type = Cases[CommEntry]
    record_type = CommRecord
