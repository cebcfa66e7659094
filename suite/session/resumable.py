"""A session over the cases of one run folder: interleaved rounds, a record for each process group, resumed at any time.

Every case gets its first process before any case gets its second, so that a drift of the machine affects all alike.
Within a round, cases that will be compared take turns if they can. A case and repeat with a record is not measured
again. Subclasses measure training (`suite.session.training`) and communication (`suite.comm.session`).
"""

import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar
from uuid import uuid4

from pydantic import ValidationError

from suite import __version__
from suite.errors import MAY_PASS, Interrupted, StoreError, Unavailable
from suite.processes import bundle
from suite.processes.attempt import Attempt, Measuring
from suite.processes.launch import Launch, OnMessage
from suite.results.lock import held
from suite.results.records import CANCELLED, AnyEntry, AnyRecord
from suite.results.run_folder import ResultFolder
from suite.results.stored import Outsized, misfit
from suite.results.this_host import load, this_host
from suite.session.end_rule import MOST_PROCESSES, PLANNED, TIME_IS_UP, EndRule, further_round, still_open
from suite.session.observer import Measurable, Observer
from suite.session.patience import Patience, patiently
from suite.session.turns import Room, Turned, take_turns
from suite.text import grouped
from suite.worker.messages import Message

FAILURES = ("oom", "timeout", "crash", "diverged")
RETRIED = (*FAILURES, "unavailable")  # the missing part may be installed by now


C = TypeVar("C", bound=Measurable)


@dataclass(frozen=True)
class Runnable(Generic[C]):
    """A case with its launch."""

    case: C
    launch: Launch


class Session(ABC, Generic[C]):
    """A run: planned cases, a folder, an observer."""

    scale: str | None = None  # the plan's, for cases.json

    def __init__(
        self,
        folder: ResultFolder[Any, Any],
        planned: Sequence[tuple[C, str | None, str]],
        observer: Observer,
        retry: bool = False,
        end: EndRule = PLANNED,
    ) -> None:
        """Take the planned cases, each with the outcome and reason if it cannot run; nothing is started yet.

        `retry`: measure failed and unavailable cases again.
        """
        self._folder, self._planned, self._observer = folder, planned, observer
        self._retry, self._end, self._id = retry, end, uuid4().hex

    # --- for subclasses ---------------------------------------------------------

    @abstractmethod
    def launch(self, case: C, bundles: Path) -> Launch:
        """Return the launch of a case, its bundle below `bundles`; Unavailable if this machine lacks something."""

    @abstractmethod
    def attempt(self, item: Runnable[C], repeat: int, folder: Path, on_message: OnMessage, in_turns: bool) -> Measuring:
        """Measure repeat number `repeat`; with `in_turns`, interleaved with other cases."""

    @abstractmethod
    def reports(self, attempt: Attempt) -> dict[str, Any]:
        """Return the fields of the record that come from the ranks' messages: `ranks`, and others."""

    def processes(self, case: C) -> int:
        """Return the number of process groups, each with a record of its own."""
        return 1

    def undecided(self, items: list[Runnable[C]], processes: int) -> list[Runnable[C]]:
        """Return the cases that need a further round; called when every case has at most `processes` records."""
        return []

    def turn_key(self, item: Runnable[C]) -> Hashable:
        """Return a key; cases with equal keys are interleaved. None: measure without interleaving."""
        return None

    def turn_groups(self, items: list[Runnable[C]]) -> list[list[Runnable[C]]]:
        """Split cases of one `turn_key` into the groups that take turns."""
        return [items]

    def prepare(self, items: list[Runnable[C]]) -> None:
        """Do work that takes time and is not timed; called before the first process group of `items`."""

    def record_fields(self, item: Runnable[C]) -> dict[str, Any]:
        """Return further fields of the record; called before each process group."""
        return {}

    # --- the session ------------------------------------------------------------

    def run(self) -> Counter[str]:
        """Measure every process group without a record; return the number of records of each outcome.

        Raises Interrupted after Ctrl-C or SIGTERM (the same command resumes), Unavailable if no case can run here,
        RequestError if another session measures into the folder.
        """
        with held(self._folder.path):
            items, entries = self._runnable()
            total = sum(self.processes(item.case) for item in items)
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

    def _runnable(self) -> tuple[list[Runnable[C]], list[AnyEntry]]:
        """Launch every case as far as its interpreter; store all cases, each with the reason if it cannot run."""
        entries: list[AnyEntry] = []
        items: list[Runnable[C]] = []
        for case, outcome, reason in self._planned:
            if outcome is None:
                try:
                    items.append(Runnable(case, self.launch(case, self._folder.path / "bundles")))
                except Unavailable as error:
                    outcome, reason = "unavailable", str(error)
            row = {"id": case.id, "case": case, "outcome": outcome, "reason": reason}
            entries.append(self._folder.entry_type.model_validate(row))
        self._folder.write_cases(entries, self.scale)
        self._folder.write_host(this_host())
        if not items:
            reasons = sorted({f"  {entry.reason}" for entry in entries if entry.outcome})
            raise Unavailable("\n".join(["nothing that was asked for can run here:", *reasons]))
        return items, entries

    def _rounds(self, items: list[Runnable[C]]) -> Iterator[tuple[int, list[Runnable[C]]]]:
        """Yield (repeat, cases that take turns if memory allows): the plan's rounds, then those for undecided cases."""
        planned = max(self.processes(item.case) for item in items)
        for repeat in range(most := self._most(planned)):
            due = [item for item in items if repeat < self.processes(item.case)]
            if repeat >= planned:
                due = self.undecided(items, repeat)
                if not due:
                    return
            todo = [item for item in due if not self._have(item.case, repeat)]
            if repeat >= planned and todo:
                self._observer.note(further_round(len(todo)), further=len(todo))
            for joined in grouped(todo, lambda item: self.turn_key(item) or item.case.id).values():
                for group in self.turn_groups(joined):
                    yield repeat, group
        if self._end.goes_on and (undecided := self.undecided(items, most)):
            self._observer.note(still_open(len(undecided), most, self._end.clear))

    def _most(self, planned: int) -> int:
        return max(planned, MOST_PROCESSES) if self._end.goes_on else planned

    def _record(self, case: C, repeat: int) -> AnyRecord | None:
        return patiently(partial(self._folder.record, case.id, repeat), self._observer.note)

    def _have(self, case: C, repeat: int) -> bool:
        record = self._record(case, repeat)
        if record is None or record.outcome == CANCELLED:
            return False
        return not (self._retry and record.outcome in RETRIED)

    def _starting(self, todo: list[Runnable[C]], repeat: int, time_is_up: Callable[[], bool]) -> Iterator[Turned]:
        """Start the first case of `todo`, and further ones while memory allows; started cases leave `todo`."""
        self.prepare(todo)
        fields, several, room = {item.case.id: self.record_fields(item) for item in todo}, len(todo) > 1, Room()
        together: list[str] = []
        while todo and (not together or (not time_is_up() and room.for_one_more())):
            item = todo.pop(0)
            together.append(item.case.id)
            yield self._measuring(item, repeat, fields[item.case.id], together if several else [])

    def _measuring(self, item: Runnable[C], repeat: int, fields: dict[str, Any], together: list[str]) -> Turned:
        """Measure one process group and write its record.

        `together` grows to the ids of all cases that take turns; empty: this case is measured alone.
        """
        case, before = item.case, load()
        started, began = datetime.now(UTC), time.monotonic()  # the wall clock may be set back during the measurement
        self._observer.started(case, repeat)

        def on_message(rank: int, message: Message) -> None:
            self._observer.message(case, rank, message)

        def write(attempt: Attempt, after: list[float]) -> AnyRecord:
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
            kind: type[AnyRecord] = self._folder.record_type
            problem = None

            def crashed(reason: str) -> AnyRecord:
                return kind.model_validate(
                    {**values, "outcome": "crash", "reason": reason, "ranks": (), "evidence": None}
                )

            try:
                record = kind.model_validate({**values, **self.reports(attempt)})
                problem = self._folder.broken(record) if record.result == "ok" else None
            except ValidationError as error:  # an adapter, or an engine, reported something else than a figure
                problem = misfit(error)
            if problem:
                record = crashed(f"what its ranks reported cannot be kept: {problem}; fix the adapter")
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

    def _attempted(self, item: Runnable[C], repeat: int, on_message: OnMessage, in_turns: bool) -> Measuring:
        """Measure once, as soon as the disk has room for the attempt; a disk that fails later is the case's outcome."""
        patience, began = Patience(self._observer.note), time.monotonic()
        while True:
            try:
                folder = self._folder.attempt(item.case.id, repeat)
                return (yield from self.attempt(item, repeat, folder, on_message, in_turns))
            except StoreError as error:
                patience.wait(error)
            except OSError as error:
                if error.errno not in MAY_PASS:
                    raise
                reason = f"the disk failed meanwhile: {error}; measure it again with --retry when the disk is well"
                return Attempt("crash", reason, {}, time.monotonic() - began, {})

    def _kept(self, write: Callable[[], AnyRecord]) -> AnyRecord:
        """Return the record that `write` writes once the disk accepts it; an interrupt tries a last time."""
        try:
            return patiently(write, self._observer.note)
        except KeyboardInterrupt:
            with suppress(StoreError):
                write()
            raise

    def _done(self, items: list[Runnable[C]]) -> int:
        return sum(self._have(item.case, repeat) for item in items for repeat in range(self.processes(item.case)))

    def _outcomes(self, items: list[Runnable[C]]) -> Counter[str]:
        counts = Counter(str(entry.outcome) for entry in self._folder.cases if entry.outcome)
        for item in items:
            for repeat in range(self._most(self.processes(item.case))):
                record = self._record(item.case, repeat)
                if record is not None:
                    counts[record.outcome] += 1
        return counts
