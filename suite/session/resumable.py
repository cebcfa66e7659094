"""A session over the cases of one run folder: interleaved rounds, a record for each process group, resumed at any time.

Rounds, not blocks: every case gets its first process before any gets its second, so a drift of the machine hits all
alike; within a round those that will be compared take turns, where they can. What has a record is not measured again.
What is measured (training, communication) a subclass says.
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
from typing import Any, Generic, Protocol, TypeVar
from uuid import uuid4

from pydantic import ValidationError

from suite import __version__
from suite.errors import MAY_PASS, Interrupted, StoreError, Unavailable
from suite.groups import grouped
from suite.plan.resolve import Planned
from suite.processes import bundle
from suite.processes.attempt import Attempt, Measuring
from suite.processes.launch import Launch, OnMessage
from suite.results.lock import held
from suite.results.rank_report import AnyRank
from suite.results.records import CANCELLED, Entry, Measured
from suite.results.run_folder import ResultFolder
from suite.results.stored import Outsized, misfit
from suite.results.this_host import load, this_host
from suite.session.end_rule import MOST_PROCESSES, PLANNED, EndRule
from suite.session.observer import Observer
from suite.session.patience import Patience, patiently
from suite.session.turns import Room, Turned, take_turns
from suite.worker.messages import Message

FAILURES = ("oom", "timeout", "crash", "diverged")
RETRIED = (*FAILURES, "unavailable")  # what the machine lacked may be there by now


class Measurable(Protocol):
    """What a session asks of a case."""

    @property
    def id(self) -> str:
        """A hash of its values."""


C = TypeVar("C", bound=Measurable)


@dataclass(frozen=True)
class Runnable(Generic[C]):
    """A case with its launch."""

    case: C
    launch: Launch


class Session(ABC, Generic[C, Entry, Measured]):
    """One run: planned cases, a folder, an observer."""

    scale: str | None = None  # the plan's, for cases.json

    def __init__(
        self,
        folder: ResultFolder[Entry, Measured],
        planned: Sequence[Planned[C]],
        observer: Observer[C, Measured],
        retry: bool = False,
        end: EndRule = PLANNED,
    ) -> None:
        """`retry`: measure again what failed or was unavailable. Nothing is started yet."""
        self._folder, self._planned, self._observer = folder, planned, observer
        self._retry, self._end, self._id = retry, end, uuid4().hex

    # --- what a subclass says -------------------------------------------------

    @abstractmethod
    def launch(self, case: C, bundles: Path) -> Launch:
        """The launch of a case, its bundle below `bundles`; Unavailable says what this machine lacks."""

    @abstractmethod
    def attempt(self, item: Runnable[C], repeat: int, folder: Path, on_message: OnMessage, in_turns: bool) -> Measuring:
        """Measure once, for the time number `repeat`; alone on this machine, or in turns with others."""

    @abstractmethod
    def ranks(self, attempt: Attempt) -> Sequence[AnyRank]:
        """What the ranks reported, as a record keeps it."""

    def processes(self, case: C) -> int:
        """Process groups, each with a record of its own."""
        return 1

    def wanting(self, items: list[Runnable[C]], processes: int) -> list[Runnable[C]]:
        """Those that want a process more; asked before each further round, when they have `processes` at most."""
        return []

    def beside(self, item: Runnable[C]) -> Hashable:
        """Those of which this is the same take turns; None: it is measured in one go."""
        return None

    def side_by_side(self, items: list[Runnable[C]]) -> list[list[Runnable[C]]]:
        """Those that `beside` joins, as they are to stand together if there is room."""
        return [items]

    def ahead(self, items: list[Runnable[C]]) -> None:
        """Called before the first process group of several: what takes time and is not timed."""

    def before(self, item: Runnable[C]) -> dict[str, Any]:
        """Called before each process group; further fields of its record."""
        return {}

    # --- the session ------------------------------------------------------------

    def run(self) -> Counter[str]:
        """Measure what has no record yet; how many records there are of each outcome.

        Raises Interrupted when Ctrl-C or SIGTERM stopped it: the same command resumes. Unavailable when nothing can run
        here. RequestError when another session measures into the folder.
        """
        with held(self._folder.path):
            items = self._prepare()
            total = sum(self.processes(item.case) for item in items)
            self._observer.begin([item.case for item in items], total, self._done(items))
            try:
                time_is_up = self._end.clock()
                for repeat, todo in self._rounds(items):
                    while todo and not time_is_up():
                        take_turns(self._starting(todo, repeat, time_is_up))
                    if todo:
                        self._observer.time_is_up()
                        break
            except KeyboardInterrupt:
                raise Interrupted(
                    f"stopped; {self._done(items)} of {total} records are in {self._folder.path}. "
                    "Run the same command again to go on"
                ) from None
            except OSError as error:  # a disk that fails, where no one looked for it
                path = self._folder.path
                gone = f"{path} is gone ({error}); put it back to go on"
                refused = f"cannot go on in {path}: {error}; what was measured is kept: run the same command again"
                raise StoreError(refused if path.is_dir() else gone) from error
            finally:
                self._observer.end()
            return self._outcomes(items)

    def _prepare(self) -> list[Runnable[C]]:
        """Find what each case needs, and write down the cases with what stands in the way of some."""
        rows, found, refused = [], [], []
        for planned in self._planned:
            case, outcome, reason = planned.case, planned.outcome, planned.reason
            if outcome is None:
                try:
                    found.append(Runnable(case, self.launch(case, self._folder.path / "bundles")))
                except Unavailable as error:
                    outcome, reason = "unavailable", str(error)
            if outcome is not None:
                refused.append((case, outcome, reason))
            row = {"id": case.id, "case": case, "outcome": outcome, "reason": reason}
            rows.append(self._folder.entry_type.model_validate(row))
        self._folder.write_cases(rows, self.scale)
        self._folder.write_host(this_host())
        if not found:
            reasons = sorted({f"  {reason}" for _, _, reason in refused})
            raise Unavailable("\n".join(["nothing that was asked for can run here:", *reasons]))
        for each in refused:
            self._observer.refused(*each)
        return found

    def _rounds(self, items: list[Runnable[C]]) -> Iterator[tuple[int, list[Runnable[C]]]]:
        """What to measure next, and side by side if there is room: the plan's rounds, then what `wanting` asks for."""
        planned = max(self.processes(item.case) for item in items)
        for repeat in range(most := self._most(planned)):
            wanting = [item for item in items if repeat < self.processes(item.case)]
            if repeat >= planned:
                wanting = self.wanting(items, repeat)
                if not wanting:
                    return
            todo = [item for item in wanting if not self._have(item.case, repeat)]
            if repeat >= planned and todo:
                self._observer.further(len(todo))
            for joined in grouped(todo, lambda item: self.beside(item) or item.case.id).values():
                for several in self.side_by_side(joined):
                    yield repeat, several
        if self._end.goes_on and (still := self.wanting(items, most)):
            self._observer.still_open(len(still), most, self._end.clear)

    def _most(self, planned: int) -> int:
        return max(planned, MOST_PROCESSES) if self._end.goes_on else planned

    def _record(self, case: C, repeat: int) -> Measured | None:
        return patiently(partial(self._folder.record, case.id, repeat), self._observer.waiting)

    def _have(self, case: C, repeat: int) -> bool:
        record = self._record(case, repeat)
        if record is None or record.outcome == CANCELLED:
            return False
        return not (self._retry and record.outcome in RETRIED)

    def _starting(self, todo: list[Runnable[C]], repeat: int, time_is_up: Callable[[], bool]) -> Iterator[Turned]:
        """Those of `todo`, taken out of it, that stand side by side: the first, and as many as there is room for."""
        self.ahead(todo)
        fields, several, room = {item.case.id: self.before(item) for item in todo}, len(todo) > 1, Room()
        together: list[str] = []

        def first() -> Turned:
            item = todo.pop(0)
            together.append(item.case.id)
            return self._measuring(item, repeat, fields[item.case.id], together if several else [])

        yield first()
        while todo and not time_is_up() and room.for_one_more():
            yield first()

    def _measuring(self, item: Runnable[C], repeat: int, fields: dict[str, Any], together: list[str]) -> Turned:
        """`together`: the ids of what is measured side by side, as soon as it has been started; empty: it is alone."""
        case, before = item.case, load()
        started, began = datetime.now(UTC), time.monotonic()  # a clock on the wall may be set back meanwhile
        self._observer.started(case, repeat)

        def on_message(rank: int, message: Message) -> None:
            self._observer.message(case, rank, message)

        def write(attempt: Attempt, after: list[float]) -> Measured:
            """One record, whole or not at all."""
            values = {
                "stagebench": __version__,
                "case_id": case.id,
                "case": case,
                "repeat": repeat,
                "outcome": attempt.outcome,
                "reason": attempt.reason,
                "started": started.isoformat(timespec="seconds"),
                "seconds": attempt.seconds,
                "turns_with": tuple(one for one in together if one != case.id),
                "session": self._id,
                "interpreter": {**vars(item.launch.interpreter), "path": str(item.launch.interpreter.path)},
                "bundle": bundle.written_digest(item.launch.bundle),
                **fields,
                "load": {"before": before, "after": after},
                "evidence": attempt.evidence or None,
            }
            kind, problem = self._folder.record_type, None

            def crashed(reason: str) -> Measured:
                return kind.model_validate(
                    {**values, "outcome": "crash", "reason": reason, "ranks": (), "evidence": None}
                )

            try:
                record = kind.model_validate({**values, "ranks": self.ranks(attempt)})
                problem = self._folder.broken(record) if record.outcome == "ok" else None
            except ValidationError as error:  # an adapter, or an engine, reported what is no figure
                problem = misfit(error)
            if problem:
                record = crashed(f"what its ranks reported cannot be kept: {problem}; mend the adapter")
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
            with suppress(StoreError):  # it is no measurement: whoever stops does not wait for the disk
                write(Attempt(CANCELLED, f"stopped after {seconds:.0f} s, {how}", {}, seconds, {}), load())
            raise
        self._observer.finished(case, self._kept(partial(write, attempt, load())))

    def _attempted(self, item: Runnable[C], repeat: int, on_message: OnMessage, in_turns: bool) -> Measuring:
        """Measure once, as soon as the disk has room for the attempt: until then nothing is started.

        Where it fails later, the case has.
        """
        patience, began = Patience(self._observer.waiting), time.monotonic()
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

    def _kept(self, write: Callable[[], Measured]) -> Measured:
        """The record that `write` writes, as soon as the disk takes it; tried a last time when a person stops it."""
        try:
            return patiently(write, self._observer.waiting)
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
