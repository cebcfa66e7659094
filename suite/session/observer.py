"""The events of a session; the command line shows them, a program may listen."""

from collections.abc import Sequence

from stagebench.suite.contracts.case import Case
from stagebench.suite.results.records import CaseEntry, Proof, Record
from stagebench.suite.worker.messages import Message


class Observer:
    """Receives a session's events, all from the session's thread; the defaults do nothing."""

    def begin(self, entries: Sequence[CaseEntry], processes: int, done: int) -> None:
        """Called before anything starts, with every case; those with an outcome never run.

        `processes` counts those of all other cases, `done` the records that exist already.
        """

    def proving(self, case: Case) -> None:
        """Called before a proof is made or looked up; several may be made at a time. Trainings only."""

    def proved(self, case: Case, proof: Proof) -> None:
        """Called with the proof that the case's records will name; see stagebench.suite.proofs.make."""

    def started(self, case: Case, repeat: int) -> None:
        """Called before a process group is launched."""

    def message(self, case: Case, rank: int, message: Message) -> None:
        """Called with each message of a rank; among cases that take turns, the case whose turn it is."""

    def finished(self, case: Case, record: Record) -> None:
        """Called after a record was written."""

    def note(self, text: str, further: int = 0) -> None:
        """Called with a sentence on the run as a whole: a disk that is full, the time limit, a round beyond the plan.

        `further`: the processes that such a round adds.
        """

    def end(self) -> None:
        """Called when the session is over, also after an error or an interrupt."""
