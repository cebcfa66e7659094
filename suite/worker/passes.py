"""The five passes: separate ways of running the same training, so that no number disturbs another.

| pass | what runs | what it gives |
|---|---|---|
| native | `step`, nothing inside | the speed |
| staged | the stage methods, synchronised at every border, a barrier before communication | each stage by itself |
| compute_only | `step_alone` on all ranks at once | what communication adds |
| comm_only | `communicate` on the model's own gradients | what communication costs alone |
| io_only | the input alone | how fast data can come |

The stages of the staged pass add up to its wall time.
"""

import time
from typing import Any, Callable, Dict, List, Optional

from suite.worker.clock import StageClock
from suite.worker.loop import Loop, Timed
from suite.worker.messages import Pass
from suite.worker.trainer import Trainer

READ_AHEAD = 17  # batches that may lie ready at any setting: MXNet's queue has 16


class Passes:
    """Runs passes on one trainer with one feed."""

    def __init__(self, trainer: Trainer, feed: Any, loop: Loop) -> None:
        """`feed` is a ResidentFeed or a StreamFeed."""
        self._trainer, self._feed, self._loop = trainer, feed, loop

    def skipped(self, name: str) -> Optional[str]:
        """Why a pass has nothing to measure here, or None."""
        if name in ("compute_only", "comm_only") and self._trainer.setup.world * self._trainer.setup.devices == 1:
            return "one device exchanges nothing"
        if name == "io_only" and not self._feed.reads:
            return "synthetic data are not read"
        return None

    def run(self, name: str) -> Pass:
        """One pass: every step on this rank."""
        method: Callable[[], Pass] = getattr(self, "_" + name)
        return method()

    def _native(self) -> Pass:
        return self._whole_steps("native", self._trainer.step)

    def _compute_only(self) -> Pass:
        return self._whole_steps("compute_only", self._trainer.step_alone)

    def _whole_steps(self, name: str, step: Callable[[Any], None]) -> Pass:
        read, place, clock = self._feed.read, self._feed.place, time.perf_counter

        def body() -> float:
            begin = clock()
            batch = read()
            waited = clock() - begin
            step(place(batch))
            return waited

        timed = self._loop.run(name, body)
        return self._result(name, timed)._replace(io_s=timed.returned, loss=self._trainer.loss())

    def _staged(self) -> Pass:
        trainer, feed, clock = self._trainer, self._feed, StageClock(self._trainer)
        distributed = trainer.setup.world > 1
        bubbles: List[Optional[Dict[str, float]]] = []

        def body() -> None:
            clock.begin()
            batch = feed.read()
            clock.lap()
            batch = feed.place(batch)
            clock.lap()
            trainer.forward(batch)
            clock.lap()
            trainer.backward()
            clock.lap()
            if distributed:
                trainer.maximum(0.0)
            clock.lap()
            trainer.communicate()
            clock.lap()
            trainer.update()
            clock.lap()
            bubbles.append(trainer.bubble())

        def measured() -> None:
            clock.forget()
            bubbles.clear()
            trainer.forget_layer_times()

        timed = self._loop.run("staged", body, measured)
        stages = without_bubbles(clock.seconds(), bubbles)
        return self._result("staged", timed)._replace(stage_s=stages, loss=trainer.loss())

    def _comm_only(self) -> Pass:
        self._trainer.forward(self._feed.place(self._feed.read()))
        self._trainer.backward()
        timed = self._loop.run("comm_only", self._trainer.communicate)
        self._trainer.update()
        return self._result("comm_only", timed)

    def _io_only(self) -> Pass:
        for _ in range(self._ahead()):
            self._feed.read()
        return self._result("io_only", self._loop.run("io_only", self._feed.read, alone=True))

    def _ahead(self) -> int:
        """Batches that may lie ready when the pass begins, and would flatter the reader."""
        setup = self._trainer.setup
        return max(READ_AHEAD, setup.readers * (setup.prefetch + 1))

    def _result(self, name: str, timed: Timed) -> Pass:
        setup = self._trainer.setup
        samples = len(timed.step_s) * setup.batch // setup.model_parallel_size  # its share of them
        return Pass(name, samples, timed.steady, timed.warmup_s, timed.step_s, timed.wall_s)


def without_bubbles(
    stages: Dict[str, List[float]], bubbles: List[Optional[Dict[str, float]]]
) -> Dict[str, List[float]]:
    """The stages' seconds with the waiting for other parts of the network taken out, as a stage `bubble`."""
    if not all(bubbles):
        return stages
    found = dict(stages, bubble=[0.0] * len(bubbles))
    for name in ("forward", "backward"):
        waited = [bubble[name] for bubble in bubbles if bubble]
        found[name] = [whole - idle for whole, idle in zip(stages[name], waited)]
        found["bubble"] = [so_far + idle for so_far, idle in zip(found["bubble"], waited)]
    return found
