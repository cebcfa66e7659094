"""What a session tells while it works; the command line shows it, a program may listen."""

from typing import Any

from suite.contracts.case import Case


class Observer:
    """Every method is called from the session's thread; the defaults say nothing."""

    def refused(self, case: Case, outcome: str, reason: str) -> None:
        """Once for each case that cannot run while others can, before `begin`: "unsupported" or "unavailable"."""

    def begin(self, cases: list[Case], processes: int, done: int) -> None:
        """Before anything starts: the cases that can run, processes for all of them, records already there."""

    def proving(self, case: Case) -> None:
        """A proof is about to be made (or looked up)."""

    def proved(self, case: Case, proof: dict[str, Any]) -> None:
        """The proof that the case's records will name; see suite.proofs.prove."""

    def started(self, case: Case, repeat: int) -> None:
        """A process group is about to be launched."""

    def message(self, case: Case, rank: int, message: dict[str, Any]) -> None:
        """A worker's message (suite.worker.job): phase, progress, pass, ..."""

    def finished(self, case: Case, record: dict[str, Any]) -> None:
        """A record has been written."""

    def end(self) -> None:
        """The session is over, also when it failed or was interrupted."""
