"""How long is left: from finished processes, and before the first has finished, from how far the running ones are."""

import time
from collections.abc import Callable

from suite.contracts.case import TRAIN, Case
from suite.plan.resolve import empty_passes
from suite.session.resumable import Measurable
from suite.worker.messages import Message, Progress

TIMED = ("native", TRAIN)  # passes whose steps give a speed
WARMUP_SHARE = 0.3  # of a pass, when one must guess


class Running:
    """A process group that was started and has not ended."""

    def __init__(self, case: Measurable, repeat: int) -> None:
        self.seconds = 0.0  # that it had, without others' turns
        self.fraction = 0.0  # of its work
        self._passes = passes_run(case, repeat) if isinstance(case, Case) else []
        self._batch = case.global_batch if isinstance(case, Case) else 0  # samples of an iteration
        self._phase = ""
        self._steps: list[tuple[float, int]] = []  # of that phase, when and how many: the first message and the latest

    def message(self, message: Message) -> None:
        """Rank 0's progress moves the fraction."""
        if not isinstance(message, Progress) or message.name not in self._passes:
            return
        if message.name in TIMED and message.phase != "warmup":
            self._take(message)
        step = min(1.0, message.step / max(1, message.of))
        within = WARMUP_SHARE * step if message.phase == "warmup" else WARMUP_SHARE + (1 - WARMUP_SHARE) * step
        self.fraction = max(self.fraction, (self._passes.index(message.name) + within) / len(self._passes))

    def _take(self, message: Progress) -> None:
        now = (self.seconds, message.step)
        again = message.phase != self._phase or (self._steps and message.step < self._steps[-1][1])
        self._phase, self._steps = message.phase, [now] if again else [*self._steps[:1], now]

    @property
    def rate(self) -> float | None:
        """Samples/s of the native pass or epoch; None before it has any."""
        if len(self._steps) < 2:
            return None
        (began, first), (now, last) = self._steps
        return (last - first) * self._batch / (now - began) if now > began else None


class Estimate:
    """Follows a session's events; `clock` gives seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = self._looked = clock()
        self._running: dict[str, Running] = {}  # by case; those that take turns are several
        self._turn = ""  # the case that works
        self._seconds: dict[str, list[float]] = {}  # finished processes, by case
        self.processes = self.done = 0

    def begin(self, processes: int, done: int) -> None:
        """What lies ahead; `processes` counts those already `done`."""
        self.processes, self.done, self._began = processes, done, self._clock()

    def further(self, processes: int) -> None:
        """More than planned lies ahead."""
        self.processes += processes

    def started(self, case: Measurable, repeat: int) -> None:
        self._look()
        self._running[case.id], self._turn = Running(case, repeat), case.id

    def message(self, case: Measurable, message: Message) -> None:
        """Of its rank 0, which works now."""
        self._look()
        self._turn = case.id
        if case.id in self._running:
            self._running[case.id].message(message)

    def finished(self, case: Measurable) -> None:
        """A process group has ended, well or not."""
        self._look()
        self.done += 1
        ended = self._running.pop(case.id, None)
        if ended is not None:
            self._seconds.setdefault(case.id, []).append(ended.seconds)

    def _look(self) -> None:
        """The time since the last look was that of the case whose turn it was."""
        now = self._clock()
        if self._turn in self._running:
            self._running[self._turn].seconds += now - self._looked
        self._looked = now

    @property
    def running(self) -> int:
        """Process groups that were started and have not ended."""
        return len(self._running)

    @property
    def fraction(self) -> float:
        """Of the running processes' work, in processes."""
        return sum(each.fraction for each in self._running.values())

    @property
    def rate(self) -> float | None:
        """Samples/s, by rank 0's progress, of the case that works; None before it has any."""
        working = self._running.get(self._turn)
        return working.rate if working else None

    @property
    def elapsed(self) -> float:
        """Seconds since the session began."""
        return self._clock() - self._began

    @property
    def left(self) -> float | None:
        """Seconds that are probably left; None while nothing is known."""
        self._look()
        expected = self._expected()
        if expected is None:
            return None
        own = [max(0.0, self._own(case, each, expected) - each.seconds) for case, each in self._running.items()]
        return sum(own) + max(0, self.processes - self.done - len(own)) * expected

    def _expected(self) -> float | None:
        """Seconds of a process, the mean over all cases; a case not yet seen counts as the mean of those seen."""
        seen = [sum(values) / len(values) for values in self._seconds.values()]
        guesses = seen or [_guess(each) for each in self._running.values() if _known(each)]
        return sum(guesses) / len(guesses) if guesses else None

    def _own(self, case: str, running: Running, expected: float) -> float:
        before = self._seconds.get(case)
        if before:
            return sum(before) / len(before)
        return _guess(running) if _known(running) else max(running.seconds, expected)


def _known(running: Running) -> bool:
    return running.fraction > 0.05


def _guess(running: Running) -> float:
    """Seconds of it all, from how far it is."""
    return running.seconds / running.fraction


def passes_run(case: Case, repeat: int) -> list[str]:
    """The passes of a process that have something to measure."""
    empty = empty_passes(case)
    return [name for name in case.passes_of(repeat) if name not in empty]
