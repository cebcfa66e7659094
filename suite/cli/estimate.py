"""How long is left: from finished processes, and before the first has finished, from how far it has come."""

import time
from collections.abc import Callable

from suite.contracts.case import TRAIN, Case
from suite.plan.resolve import empty_passes
from suite.session.resumable import Measurable
from suite.worker.messages import Message, Progress

TIMED = ("native", TRAIN)  # passes whose steps give a speed
WARMUP_SHARE = 0.3  # of a pass, when one must guess


class Estimate:
    """Follows a session's events; `clock` gives seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()
        self._started: float | None = None
        self._case_id = ""
        self._passes: list[str] = []  # of the running process
        self._batch = 0  # samples of an iteration of the running case
        self._phase = ""
        self._steps: list[tuple[float, int]] = []  # of that phase, when and how many: the first message and the latest
        self.fraction = 0.0  # of the running process
        self._seconds: dict[str, list[float]] = {}  # finished processes, by case
        self.processes = self.done = 0

    def begin(self, processes: int, done: int) -> None:
        """What lies ahead; `processes` counts those already `done`."""
        self.processes, self.done, self._began = processes, done, self._clock()

    def further(self, processes: int) -> None:
        """More than planned lies ahead."""
        self.processes += processes

    def started(self, case: Measurable, repeat: int) -> None:
        self._case_id, self._started, self.fraction = case.id, self._clock(), 0.0
        self._passes = passes_run(case, repeat) if isinstance(case, Case) else []
        self._batch, self._steps = case.global_batch if isinstance(case, Case) else 0, []

    def message(self, message: Message) -> None:
        """Rank 0's progress moves the fraction of the running process."""
        if not isinstance(message, Progress) or message.name not in self._passes:
            return
        if message.name in TIMED and message.phase != "warmup":
            self._take(message)
        step = min(1.0, message.step / max(1, message.of))
        within = WARMUP_SHARE * step if message.phase == "warmup" else WARMUP_SHARE + (1 - WARMUP_SHARE) * step
        self.fraction = max(self.fraction, (self._passes.index(message.name) + within) / len(self._passes))

    def _take(self, message: Progress) -> None:
        now = (self._clock(), message.step)
        again = message.phase != self._phase or (self._steps and message.step < self._steps[-1][1])
        self._phase, self._steps = message.phase, [now] if again else [*self._steps[:1], now]

    def finished(self, case: Measurable) -> None:
        """A process group has ended, well or not."""
        self.done += 1
        if self._started is not None:
            self._seconds.setdefault(case.id, []).append(self._clock() - self._started)
        self._started, self._passes, self.fraction = None, [], 0.0

    @property
    def rate(self) -> float | None:
        """Samples/s of the running process's native pass or epoch, by rank 0's progress; None before it has any."""
        if len(self._steps) < 2:
            return None
        (began, first), (now, last) = self._steps
        return (last - first) * self._batch / (now - began) if now > began else None

    @property
    def elapsed(self) -> float:
        """Seconds since the session began."""
        return self._clock() - self._began

    @property
    def left(self) -> float | None:
        """Seconds that are probably left; None while nothing is known."""
        remaining = max(0, self.processes - self.done)
        running = self._clock() - self._started if self._started is not None else 0.0
        expected = self._expected(running)
        if expected is None:
            return None
        if self._started is None:
            return remaining * expected
        own = self._own(running, expected)
        return max(0.0, own - running) + max(0, remaining - 1) * expected

    def _expected(self, running: float) -> float | None:
        """Seconds of a process, the mean over all cases; a case not yet seen counts as the mean of those seen."""
        seen = {case: sum(values) / len(values) for case, values in self._seconds.items()}
        if seen:
            return sum(seen.values()) / len(seen)
        return running / self.fraction if self.fraction > 0.05 else None

    def _own(self, running: float, expected: float) -> float:
        before = self._seconds.get(self._case_id)
        if before:
            return sum(before) / len(before)
        return running / self.fraction if self.fraction > 0.05 else max(running, expected)


def passes_run(case: Case, repeat: int) -> list[str]:
    """The passes of a process that have something to measure."""
    empty = empty_passes(case)
    return [name for name in case.passes_of(repeat) if name not in empty]
