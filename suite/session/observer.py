"""What a session reports while it works; the command line shows it, a program may listen."""

from typing import Generic, TypeVar

from suite.results.proof import Proof
from suite.worker.messages import Message

C = TypeVar("C", contravariant=True)  # suite.contracts.case.Case, or suite.comm.cases.CommCase
R = TypeVar("R", contravariant=True)  # its record: suite.results.records.Record, or suite.comm.records.CommRecord


class Observer(Generic[C, R]):
    """Every method is called from the session's thread; the defaults do nothing."""

    def refused(self, case: C, outcome: str, reason: str) -> None:
        """Once for each case that cannot run while others can, before `begin`: "unsupported" or "unavailable"."""

    def begin(self, cases: list[C], processes: int, done: int) -> None:
        """Before anything starts: the cases that can run, processes for all of them, records already there."""

    def proving(self, case: C) -> None:
        """A proof is about to be made (or looked up), beside others maybe; of training alone."""

    def proved(self, case: C, proof: Proof) -> None:
        """The proof that the case's records will name; see suite.proofs.make."""

    def started(self, case: C, repeat: int) -> None:
        """A process group is about to be launched."""

    def message(self, case: C, rank: int, message: Message) -> None:
        """A rank's message; of several cases that take turns it tells whose turn it is."""

    def finished(self, case: C, record: R) -> None:
        """A record has been written."""

    def waiting(self, why: str) -> None:
        """The disk refuses something that it may take in a while: what, why, for how long it is tried, what to do."""

    def further(self, processes: int) -> None:
        """A round beyond the plan's processes begins: comparisons are open, and time is left."""

    def time_is_up(self) -> None:
        """No further process is started; what is missing is measured when the run is resumed."""

    def still_open(self, cases: int, processes: int, half_width: float) -> None:
        """The rounds are over: so many cases have `processes`, the most, and intervals wider than ±`half_width`."""

    def end(self) -> None:
        """The session is over, also when it failed or was interrupted."""
