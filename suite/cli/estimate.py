"""How far a session has come, how long is left, and how fast the running case is."""

import time
from collections.abc import Callable

from stagebench.suite.contracts.case import Case
from stagebench.suite.plan.resolve import empty_passes
from stagebench.suite.worker.messages import ExchangeTimes, Message, Progress
from stagebench.suite.worker.pass_kinds import SPEEDS, TRAIN

EARLY = 0.05  # processes: before so much work is done, the time left is unknown
TIMED = (*SPEEDS, TRAIN)  # passes whose steps give a speed
WARMUP_SHARE = 0.3  # of a pass, as a guess


class Estimate:
    """How long is left, from the share of the work that is done and the time that it took."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` gives seconds."""
        self.processes = self.done = 0
        self._clock = clock
        self._began = self._looked = clock()
        self._before = 0  # processes that an earlier session measured
        self._busy = 0.0  # seconds in which a process ran
        self._running: dict[str, Running] = {}  # by case; several take turns
        self._turn = ""  # the case whose turn it is

    def begin(self, processes: int, done: int) -> None:
        """Set the number of all processes, of which `done` are measured already."""
        self.processes, self.done, self._before, self._began = processes, done, done, self._clock()

    def started(self, case: Case, repeat: int) -> None:
        self._look()
        self._running = {**self._running, case.id: Running(case, repeat)}
        self._turn = case.id

    def message(self, case: Case, message: Message) -> None:
        """Take a message of rank 0, whose turn it is."""
        now = self._look()
        self._turn = case.id
        if case.id not in self._running:
            return
        if isinstance(message, Progress):
            self._running[case.id].progress(message, now)
        elif isinstance(message, ExchangeTimes):
            self._running[case.id].exchanged()

    def finished(self, case: Case) -> None:
        """Count a process group that has ended, whatever its outcome."""
        self._look()
        self.done += 1
        self._running = {id_: each for id_, each in self._running.items() if id_ != case.id}

    def _look(self) -> float:
        now = self._clock()
        if self._running:
            self._busy += now - self._looked
        self._looked = now
        return now

    @property
    def fraction(self) -> float:
        """The work done by the running processes, in processes."""
        return sum(each.fraction for each in self._running.values())

    @property
    def rate(self) -> float | None:
        """Samples/s of the case whose turn it is, by rank 0's steps; None before it has any."""
        running = self._running.get(self._turn)
        return running.rate if running else None

    @property
    def elapsed(self) -> float:
        """Seconds since the session began."""
        return self._clock() - self._began

    @property
    def left(self) -> float | None:
        """Seconds that are probably left; None while too little is done to tell."""
        busy = self._busy + (self._clock() - self._looked if self._running else 0.0)
        work = self.done - self._before + self.fraction
        return busy / work * max(0.0, self.processes - self._before - work) if work > EARLY else None


class Running:
    """A process group that has started and not ended."""

    def __init__(self, case: Case, repeat: int) -> None:
        self.fraction = 0.0  # of its work
        self._passes, self._batch = passes_run(case, repeat), case.global_batch
        self._sizes = len(set(case.collective.counts)) if case.collective else 0  # that a collective is measured for
        self._phase = ""
        self._steps: list[tuple[float, int]] = []  # (time, steps) of that phase: the first message and the latest

    def progress(self, message: Progress, now: float) -> None:
        """Take rank 0's progress."""
        if message.name not in self._passes:
            return
        if message.name in TIMED and message.phase != "warmup":
            restarted = message.phase != self._phase or (self._steps and message.step < self._steps[-1][1])
            self._phase = message.phase
            self._steps = [*([] if restarted else self._steps[:1]), (now, message.step)]
        step = min(1.0, message.step / max(1, message.of))
        within = WARMUP_SHARE * step if message.phase == "warmup" else WARMUP_SHARE + (1 - WARMUP_SHARE) * step
        self.fraction = max(self.fraction, (self._passes.index(message.name) + within) / len(self._passes))

    def exchanged(self) -> None:
        """Count one more message size as measured."""
        self.fraction = min(1.0, self.fraction + 1 / self._sizes) if self._sizes else 0.0

    @property
    def rate(self) -> float | None:
        """Samples/s of the native pass or epoch; None before it has any."""
        steps = self._steps
        if len(steps) < 2 or steps[1][0] <= steps[0][0]:
            return None
        return (steps[1][1] - steps[0][1]) * self._batch / (steps[1][0] - steps[0][0])


def passes_run(case: Case, repeat: int) -> list[str]:
    """Return the passes of a process that have something to measure."""
    empty = empty_passes(case)
    return [name for name in case.passes_of(repeat) if name not in empty]
