"""A session over the cases of one run folder: interleaved rounds, a record for each process group, resumed at any time.

Every case gets its first process before any case gets its second, so that a drift of the machine affects all alike.
Within a round, cases that will be compared take turns if they can. Each training is proven before its first process. A
case and repeat with a record is not measured again.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any
from uuid import uuid4

from pydantic import ValidationError

from stagebench.suite import __version__
from stagebench.suite.contracts.case import Case
from stagebench.suite.data.sets import locate
from stagebench.suite.errors import MAY_PASS, Interrupted, StoreError, Unavailable
from stagebench.suite.plan import Resolved
from stagebench.suite.plugin_errors import ask
from stagebench.suite.processes import bundle
from stagebench.suite.processes.attempt import Attempt, Measuring, OnMessage
from stagebench.suite.processes.jobs import exchanging, measuring
from stagebench.suite.results.invariants import broken
from stagebench.suite.results.rank_report import rank_of
from stagebench.suite.results.records import CANCELLED, CaseEntry, Record, load, this_host
from stagebench.suite.results.run_folder import RunFolder, held
from stagebench.suite.results.stored import Outsized, misfit
from stagebench.suite.session.cases import (
    Runnable,
    declared_of,
    kept,
    launch_of_case,
    pass_ends,
    slowed,
    turn_groups,
    turn_key,
)
from stagebench.suite.session.end_rule import MOST_PROCESSES, PLANNED, TIME_IS_UP, EndRule, still_open
from stagebench.suite.session.observer import Observer
from stagebench.suite.session.patience import Patience, patiently
from stagebench.suite.session.proving import CaseProofs
from stagebench.suite.session.turns import Room, Turned, take_turns
from stagebench.suite.text import counted, grouped
from stagebench.suite.worker.messages import Message

FAILURES = ("oom", "timeout", "crash", "diverged")
RETRIED = (*FAILURES, "unavailable")  # the missing part may be installed by now

# (folder, (case, synchronous), most processes so far, half-width) -> ids of cases that need a further round
OpenCases = Callable[[RunFolder, Iterable[tuple[Case, bool]], int, float], set[str]]


def none_open(folder: RunFolder, cases: Iterable[tuple[Case, bool]], processes: int, threshold: float) -> set[str]:
    """Return no case: the plan's processes are enough."""
    return set()


@dataclass(frozen=True)
class Settings:
    """The settings that the command line adds to a plan."""

    proofs: bool = True  # of trainings
    retry: bool = False  # measure cases again that failed or were unavailable
    scale: str | None = None  # the plan's scale profile, for the record
    end: EndRule = PLANNED
    open_cases: OpenCases = none_open  # called if the end rule allows further rounds


class Session:
    """A run: planned cases, a folder, an observer."""

    def __init__(
        self,
        folder: RunFolder,
        planned: Sequence[Resolved],
        interpreters: dict[str, str],
        observer: Observer,
        settings: Settings,
    ) -> None:
        """Take the planned cases and the explicit interpreters ({adapter: path}); nothing is started yet."""
        self._folder, self._planned, self._observer = folder, planned, observer
        self._interpreters, self._settings, self._end = interpreters, settings, settings.end
        self._proofs = CaseProofs(folder, interpreters, observer) if settings.proofs else None
        self._id = uuid4().hex

    def run(self) -> Counter[str]:
        """Measure every process group without a record; return the number of records of each outcome.

        Raises Interrupted after Ctrl-C or SIGTERM (the same command resumes), Unavailable if no case can run here,
        RequestError if another session measures into the folder.
        """
        with held(self._folder.path):
            items, entries = self._runnable()
            total = sum(item.case.sampling.processes for item in items)
            self._observer.begin(entries, total, self._done(items))
            try:
                time_is_up = self._end.clock()
                for repeat, todo in self._rounds(items):
                    while todo and not time_is_up():
                        take_turns(self._starting(todo, repeat, time_is_up))
                    if todo:
                        self._observer.note(TIME_IS_UP)
                        break
            except KeyboardInterrupt:
                raise Interrupted(
                    f"stopped; {self._done(items)} of {total} records are in {self._folder.path}. "
                    "Run the same command again to go on"
                ) from None
            except OSError as error:  # a disk that failed outside of the places that expect it
                path = self._folder.path
                gone = f"{path} is gone ({error}); put it back to go on"
                refused = f"cannot go on in {path}: {error}; what was measured is kept: run the same command again"
                raise StoreError(refused if path.is_dir() else gone) from error
            finally:
                self._observer.end()
            return self._outcomes(items)

    def _runnable(self) -> tuple[list[Runnable], list[CaseEntry]]:
        """Launch every case as far as its interpreter; store all cases, each with the reason if it cannot run."""
        entries: list[CaseEntry] = []
        items: list[Runnable] = []
        for case, outcome, reason in self._planned:
            if outcome is None:
                try:
                    launch = launch_of_case(case, self._interpreters, self._folder.path / "bundles" / case.adapter)
                    items.append(Runnable(case, launch))
                except Unavailable as error:
                    outcome, reason = "unavailable", str(error)
            row = {"id": case.id, "case": case, "outcome": outcome, "reason": reason}
            entries.append(CaseEntry.model_validate(row))
        self._folder.write_cases(entries, self._settings.scale)
        self._folder.write_host(this_host())
        if not items:
            reasons = sorted({f"  {entry.reason}" for entry in entries if entry.outcome})
            raise Unavailable("\n".join(["nothing that was asked for can run here:", *reasons]))
        return items, entries

    def _rounds(self, items: list[Runnable]) -> Iterator[tuple[int, list[Runnable]]]:
        """Yield (repeat, cases that take turns if memory allows): the plan's rounds, then those for undecided cases."""
        planned = max(item.case.sampling.processes for item in items)
        for repeat in range(most := self._most(planned)):
            due = [item for item in items if repeat < item.case.sampling.processes]
            if repeat >= planned:
                due = self._undecided(items, repeat)
                if not due:
                    return
            todo = [item for item in due if not self._have(item.case, repeat)]
            if repeat >= planned and todo:
                cases = counted(len(todo), "case")
                self._observer.note(f"a further round: {cases} cannot be told from another yet", further=len(todo))
            for joined in grouped(todo, lambda item: turn_key(item) or item.case.id).values():
                for group in turn_groups(joined):
                    yield repeat, group
        if self._end.goes_on and (undecided := self._undecided(items, most)):
            self._observer.note(still_open(len(undecided), most, self._end.clear))

    def _undecided(self, items: list[Runnable], processes: int) -> list[Runnable]:
        """Return the cases whose comparisons are still open when every case has at most `processes` records."""
        asked = [(item.case, ask(item.launch.adapter, "synchronous", item.case)) for item in items]
        undecided = self._settings.open_cases(self._folder, asked, processes, self._end.clear)
        return [item for item in items if item.case.id in undecided]

    def _most(self, planned: int) -> int:
        return max(planned, MOST_PROCESSES) if self._end.goes_on else planned

    def _record(self, case: Case, repeat: int) -> Record | None:
        return patiently(partial(self._folder.record, case.id, repeat), self._observer.note)

    def _have(self, case: Case, repeat: int) -> bool:
        record = self._record(case, repeat)
        if record is None or record.outcome == CANCELLED:
            return False
        return not (self._settings.retry and record.outcome in RETRIED)

    def _starting(self, todo: list[Runnable], repeat: int, time_is_up: Callable[[], bool]) -> Iterator[Turned]:
        """Start the first case of `todo`, and further ones while memory allows; started cases leave `todo`."""
        if self._proofs:
            self._proofs.make([item for item in todo if not item.case.collective])
        fields, several, room = {item.case.id: self._fields(item) for item in todo}, len(todo) > 1, Room()
        together: list[str] = []
        while todo and (not together or (not time_is_up() and room.for_one_more())):
            item = todo.pop(0)
            together.append(item.case.id)
            yield self._measuring(item, repeat, fields[item.case.id], together if several else [])

    def _fields(self, item: Runnable) -> dict[str, Any]:
        """Return what the adapter declares for a training and its proof, as its record names them."""
        if item.case.collective:
            return {}
        declared = declared_of(item.case, item.launch.adapter)
        if self._proofs is None:
            return {"declared": declared, "proof_reason": "proofs were switched off for this run"}
        return {"declared": declared, **self._proofs.fields(item.case)}

    def _measuring(self, item: Runnable, repeat: int, fields: dict[str, Any], together: list[str]) -> Turned:
        """Measure one process group and write its record.

        `together` grows to the ids of all cases that take turns; empty: this case is measured alone.
        """
        case, before = item.case, load()
        started, began = datetime.now(UTC), time.monotonic()  # the wall clock may be set back during the measurement
        self._observer.started(case, repeat)

        def on_message(rank: int, message: Message) -> None:
            self._observer.message(case, rank, message)

        def write(attempt: Attempt, after: list[float]) -> Record:
            """Write one record, whole or not at all."""
            values = {
                "stagebench": __version__,
                "case_id": case.id,
                "case": case,
                "repeat": repeat,
                "outcome": attempt.outcome,
                "reason": attempt.reason,
                "started": started.isoformat(timespec="seconds"),
                "seconds": attempt.seconds,
                "turns_with": tuple(other for other in together if other != case.id),
                "session": self._id,
                "interpreter": {**vars(item.launch.interpreter), "path": str(item.launch.interpreter.path)},
                "bundle": bundle.written_digest(item.launch.bundle),
                **fields,
                "load": {"before": before, "after": after},
                "evidence": attempt.evidence or None,
            }
            problem = None

            def crashed(reason: str) -> Record:
                return Record.model_validate(
                    {**values, "outcome": "crash", "reason": reason, "ranks": (), "evidence": None}
                )

            try:
                ranks = [rank_of(rank, sent) for rank, sent in sorted(attempt.messages.items())]
                record = Record.model_validate({**values, "ranks": ranks, "passes": pass_ends(attempt)})
                problem = broken(record) if record.result == "ok" else None
            except ValidationError as error:  # an adapter, or an engine, reported something else than a figure
                problem = misfit(error)
            if problem:
                ended = f"{attempt.reason}; and " if attempt.outcome != "ok" else ""
                record = crashed(f"{ended}what its ranks reported cannot be kept: {problem}; fix the adapter")
            try:
                self._folder.write_record(record)
            except Outsized as error:
                record = crashed(f"its record cannot be kept: {error}")
                self._folder.write_record(record)
            return record

        try:
            attempt = yield from self._attempted(item, repeat, on_message, bool(together))
        except (KeyboardInterrupt, GeneratorExit) as error:
            seconds = time.monotonic() - began
            how = "by Ctrl-C or SIGTERM" if isinstance(error, KeyboardInterrupt) else "with another whose turn it was"
            with suppress(StoreError):  # not a measurement: nothing waits for the disk
                write(Attempt(CANCELLED, f"stopped after {seconds:.0f} s, {how}", {}, seconds, {}), load())
            raise
        self._observer.finished(case, self._kept(partial(write, attempt, load())))

    def _attempted(self, item: Runnable, repeat: int, on_message: OnMessage, in_turns: bool) -> Measuring:
        """Measure once, as soon as the disk has room for the attempt; a disk that fails later is the case's outcome."""
        case, launch = item.case, item.launch
        patience, began = Patience(self._observer.note), time.monotonic()
        while True:
            try:
                folder = self._folder.attempt(case.id, repeat)
                if case.collective:
                    task = exchanging(case.collective, launch.adapter)
                else:
                    data = locate(case.data, launch.workload, launch.adapter.capabilities.format(case.input.format))
                    task = measuring(case, repeat, launch.workload, data, launch.model_server, launch.trace)
                attempt = yield from launch.running(folder, task, on_message, in_turns)
                if self._proofs:
                    self._proofs.doubt(case, attempt)
                return replace(attempt, reason=attempt.reason + slowed(case, attempt) + kept(attempt))
            except StoreError as error:
                patience.wait(error)
            except OSError as error:
                if error.errno not in MAY_PASS:
                    raise
                reason = f"the disk failed meanwhile: {error}; measure it again with --retry when the disk is well"
                return Attempt("crash", reason, {}, time.monotonic() - began, {})

    def _kept(self, write: Callable[[], Record]) -> Record:
        """Return the record that `write` writes once the disk accepts it; an interrupt tries a last time."""
        try:
            return patiently(write, self._observer.note)
        except KeyboardInterrupt:
            with suppress(StoreError):
                write()
            raise

    def _done(self, items: list[Runnable]) -> int:
        return sum(self._have(item.case, repeat) for item in items for repeat in range(item.case.sampling.processes))

    def _outcomes(self, items: list[Runnable]) -> Counter[str]:
        counts = Counter(str(entry.outcome) for entry in self._folder.cases if entry.outcome)
        for item in items:
            for repeat in range(self._most(item.case.sampling.processes)):
                record = self._record(item.case, repeat)
                if record is not None:
                    counts[record.outcome] += 1
        return counts
