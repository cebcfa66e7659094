"""What a session reports while it works; the command line shows it, a program may listen."""

from typing import Any, Generic, TypeVar

C = TypeVar("C", contravariant=True)  # suite.contracts.case.Case, or suite.comm.cases.CommCase


class Observer(Generic[C]):
    """Every method is called from the session's thread; the defaults do nothing."""

    def refused(self, case: C, outcome: str, reason: str) -> None:
        """Once for each case that cannot run while others can, before `begin`: "unsupported" or "unavailable"."""

    def begin(self, cases: list[C], processes: int, done: int) -> None:
        """Before anything starts: the cases that can run, processes for all of them, records already there."""

    def proving(self, case: C) -> None:
        """A proof is about to be made (or looked up); of training alone."""

    def proved(self, case: C, proof: dict[str, Any]) -> None:
        """The proof that the case's records will name; see suite.proofs.prove."""

    def started(self, case: C, repeat: int) -> None:
        """A process group is about to be launched."""

    def message(self, case: C, rank: int, message: dict[str, Any]) -> None:
        """A worker's message (suite.worker.job): phase, progress, pass, ..."""

    def finished(self, case: C, record: dict[str, Any]) -> None:
        """A record has been written."""

    def end(self) -> None:
        """The session is over, also when it failed or was interrupted."""
