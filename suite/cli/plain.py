"""A session's events as plain lines: for pipes, files and CI logs."""

import sys
from typing import TextIO

from suite.cli import formatting
from suite.cli.estimate import Estimate
from suite.cli.say import progress
from suite.contracts.case import Case
from suite.groups import Refused, once_per_reason
from suite.results.proof import Proof
from suite.results.records import Record
from suite.session.observer import Observer
from suite.worker.messages import Message


class PlainDisplay(Observer[Case, Record]):
    """One line for every event worth a line, written at once."""

    def __init__(self, stream: TextIO | None = None) -> None:
        """Lines go to `stream`, stdout when not given."""
        self._stream = stream or sys.stdout
        self._estimate = Estimate()
        self._refused: list[Refused] = []
        self._proofs: dict[str, Proof] = {}
        self._apart: dict[str, str] = {}

    def refused(self, case: Case, outcome: str, reason: str) -> None:
        """Kept until `begin`: many cases may lack the same."""
        self._refused.append(Refused(case.label, case.adapter, outcome, reason))

    def begin(self, cases: list[Case], processes: int, done: int) -> None:
        """What will not be measured, each reason once for an adapter; how much lies ahead."""
        for one in once_per_reason(self._refused):
            self._say(f"{one.outcome}: {one.label}: {one.reason}")
        self._estimate.begin(processes, done)
        self._apart = formatting.apart(cases)
        already = f", {done} of them measured before" if done else ""
        counts = (formatting.counted(len(cases), "case"), formatting.counted(processes, "process", "processes"))
        self._say(", ".join(counts) + already)

    def proved(self, case: Case, proof: Proof) -> None:
        """A proof that failed is worth a line; one that passed shows in the results."""
        self._proofs[str(proof.key)] = proof
        if not proof.passed:
            self._say(f"proof FAILED: {self._called(case)}: {formatting.proof_problem(proof)}")

    def started(self, case: Case, repeat: int) -> None:
        self._estimate.started(case, repeat)
        self._say(
            f"{self._count(self._estimate.running)} running {self._called(case)}, {formatting.repeat(case, repeat)}"
        )

    def message(self, case: Case, rank: int, message: Message) -> None:
        if rank == 0:
            self._estimate.message(case, message)

    def finished(self, case: Case, record: Record) -> None:
        self._estimate.finished(case)
        parts = [*formatting.numbers(record).values(), formatting.proof(record, self._proofs)[0]]
        if record.outcome != "ok":
            parts.insert(0, record.reason)
        parts.append(f"{record.seconds:.0f} s")
        left = self._estimate.left
        ahead = f"; about {formatting.duration(left)} left" if left else ""
        self._say(f"{self._count(0)} {record.outcome}: {self._called(case)}: {', '.join(parts)}{ahead}")

    def waiting(self, why: str) -> None:
        self._say(why)

    def further(self, processes: int) -> None:
        self._estimate.further(processes)
        self._say(formatting.further(processes))

    def time_is_up(self) -> None:
        self._say(formatting.TIME_IS_UP)

    def still_open(self, cases: int, processes: int, half_width: float) -> None:
        self._say(formatting.still_open(cases, processes, half_width))

    def end(self) -> None:
        self._say(formatting.measured(self._estimate))

    def _called(self, case: Case) -> str:
        return formatting.label(case, sys.maxsize, self._apart.get(case.id, ""))

    def _count(self, ahead: int) -> str:
        total = self._estimate.processes
        return f"[{self._estimate.done + ahead:{len(str(total))}}/{total}]"

    def _say(self, line: str) -> None:
        progress(line, self._stream)
