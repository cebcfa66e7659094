"""The measuring loop: warm up until steady, then run an agreed number of steps."""

import math
import time
from typing import Any, Callable, List, NamedTuple, Tuple

from suite.worker.job import Sampling
from suite.worker.trainer import Trainer

AGREEING = 5  # steps that must agree before the measurement begins; a quick profile may ask for fewer

Timed = NamedTuple(
    "Timed",
    [
        ("warmup_s", List[float]),
        ("steady", bool),
        ("step_s", List[float]),  # on the trainer's time line, mark to mark
        ("wall_s", float),  # from the common barrier until this rank's last step is done
        ("returned", List[Any]),  # what the body returned, a step each
    ],
)


class Loop:
    """Runs the body of a pass on every rank with the same number of steps."""

    def __init__(self, trainer: Trainer, sampling: Sampling, progress: Callable[..., None]) -> None:
        self._trainer, self._sampling, self._progress = trainer, sampling, progress

    def run(
        self, name: str, body: Callable[[], Any], measured: Callable[[], None] = lambda: None, alone: bool = False
    ) -> Timed:
        """Warm up, call `measured`, then time; no synchronisation between steps.

        `alone`: the body exchanges nothing and its pace is not known beforehand (a reader
        first hands out what it had read ahead), so every rank goes by its own clock.
        """
        trainer = self._trainer
        warmup, steady = self._warm_up(name, body)
        steps = self._sampling.steps if alone else self._agreed_steps(warmup)
        measured()
        marks: List[Any] = []
        returned: List[Any] = []
        trainer.synchronize()
        trainer.maximum(0.0)
        begin = time.perf_counter()
        marks.append(trainer.mark())
        until = begin + self._sampling.seconds if alone else begin
        while len(returned) < steps or time.perf_counter() < until:
            returned.append(body())
            marks.append(trainer.mark())
            self._progress(name=name, phase="measure", step=len(returned), of=max(steps, len(returned)))
        trainer.synchronize()
        wall = time.perf_counter() - begin
        seconds = [trainer.elapsed(a, b) for a, b in zip(marks, marks[1:])]
        return Timed(warmup, steady, seconds, wall, returned)

    def _warm_up(self, name: str, body: Callable[[], Any]) -> Tuple[List[float], bool]:
        """(seconds of each step, whether the last ones agree), the same decision on every rank."""
        sampling = self._sampling
        seconds: List[float] = []
        began = time.perf_counter()
        while True:
            start = time.perf_counter()
            body()
            self._trainer.synchronize()
            seconds.append(time.perf_counter() - start)
            self._progress(name=name, phase="warmup", step=len(seconds), of=sampling.warmup_steps)
            if len(seconds) < sampling.warmup_steps:
                continue
            last = seconds[-min(AGREEING, sampling.warmup_steps) :]
            spread = max(last) / min(last) - 1.0
            # Two collective questions, so that all ranks leave the loop together.
            if self._trainer.maximum(spread) <= sampling.steady:
                return seconds, True
            if self._trainer.maximum(time.perf_counter() - began) > sampling.warmup_limit_s:
                return seconds, False

    def _agreed_steps(self, warmup: List[float]) -> int:
        last = sorted(warmup[-AGREEING:])
        usual = last[len(last) // 2]
        wanted = max(self._sampling.steps, int(math.ceil(self._sampling.seconds / usual)))
        return int(self._trainer.maximum(float(wanted)))
