"""The passes: separate ways of running the same training, so that no number disturbs another.

`stagebench.suite.worker.pass_kinds` declares them.

The stages of the staged pass add up to its wall time. Differences come from blocks in turns: a machine's drift is
larger than most of them.
"""

import time
from typing import Any, Callable, ContextManager, Dict, List, Optional, Sequence

from stagebench.suite.worker.clock import StageClock
from stagebench.suite.worker.common_clock import CommonClock
from stagebench.suite.worker.contract import Call, LayerTimes
from stagebench.suite.worker.loop import RESUMED, Loop, Side, Timed, Turn
from stagebench.suite.worker.messages import HostUse, Kernels, Pass
from stagebench.suite.worker.noise import Meter
from stagebench.suite.worker.pass_kinds import BY_NAME, COMM_ONLY, COMPUTE_ONLY, IO_ONLY, NATIVE, RESIDENT, STAGED
from stagebench.suite.worker.trainer import Trainer

STAGED_ROUNDS = 2  # at least: where a step takes seconds, a staged one takes more


class Passes:
    """A runner of passes, on one trainer with one feed."""

    def __init__(self, trainer: Trainer, feed: Any, loop: Loop, wanted: Sequence[str] = ()) -> None:
        """`feed` is a ResidentFeed or a StreamFeed; `wanted` are all passes to come, in their order."""
        self._trainer, self._feed, self._loop, self._wanted = trainer, feed, loop, wanted
        self.alone = trainer.setup.world == 1
        self._exchanged: Optional[Pass] = None  # `comm_only`, once `compute_only` took turns with it
        self.host_use: Optional[HostUse] = None  # during the native pass's steps, once that was run

    def skipped(self, name: str) -> Optional[str]:
        """Return why a pass has nothing to measure here, or None."""
        setup = self._trainer.setup
        return BY_NAME[name].skipped(setup.world * setup.devices, self._feed.reads)

    def run(self, name: str) -> Pass:
        """Run one pass: every step on this rank."""
        method: Callable[[], Pass] = getattr(self, f"_{name}")
        if name == NATIVE:
            return method()  # metered part by part
        meter = Meter()
        meter.begin()
        return method()._replace(host_use=meter.end())

    def layer_times(self) -> List[LayerTimes]:
        """Return the layers' times, after the staged pass; Unsupported if layers cannot be distinguished."""
        return self._trainer.layer_times(self._feed.resident().place(None))

    def kernels(self, trace: str) -> Kernels:
        """Return the kernels' times; Unsupported if there are none.

        It is called after all other passes: a profiler may leave something behind.
        """
        return self._trainer.kernel_times(self._in_stages, trace)

    def _in_stages(self, within: Callable[[str], ContextManager[Any]]) -> None:
        """Run one staged iteration for the profiler; the batch is read outside of the stages."""
        trainer, feed = self._trainer, self._feed
        batch = feed.read()
        with within("h2d"):
            batch = feed.place(batch)
        with within("forward"):
            trainer.forward(batch)
        with within("backward"):
            trainer.backward()
        if trainer.setup.world > 1:
            trainer.maximum(0.0)  # as in the staged pass: no rank waits for another one's backward
        with within("communication"):
            trainer.communicate()
        with within("update"):
            trainer.update()

    def _native(self) -> Pass:
        self._feed.drain()
        timed, aside, self.host_use = self._loop.undisturbed(NATIVE, self._native_side())
        return self._result(NATIVE, timed)._replace(
            io_s=timed.returned,
            loss=self._trainer.loss(),
            gradient_bytes=self._trainer.gradient_bytes(),
            set_aside_s=aside,
            own_pace=not self._trainer.waits_for_ranks(),
            dropped_steps=timed.dropped,
        )

    def _native_side(self) -> Side:
        if not self._feed.reads:
            return Side(self._reading)
        return Side(self._reading, self._feed.drain, RESUMED, max(1, self._trainer.setup.readers))

    def _reading(self) -> float:
        """Run a native step; return how long the host waited for its batch."""
        begin = time.perf_counter()
        batch = self._feed.read()
        waited = time.perf_counter() - begin
        self._trainer.step(self._feed.place(batch))
        return waited

    def _resident(self) -> Pass:
        resident = Side(self._on(self._trainer.step), self._feed.fill)
        return self._difference(RESIDENT, self._loop.in_turns(RESIDENT, self._native_side(), resident)[0])

    def _compute_only(self) -> Pass:
        """Time steps without their exchange in turns with native steps.

        If the exchange alone is wanted too, it takes its turns here: the hidden part is computed from all three.
        """
        others = [Side(self._on(self._trainer.step_alone))]
        if COMM_ONLY in self._wanted:
            others.append(self._exchange_side())
        alone, *exchange = self._exchange_turns(COMPUTE_ONLY, others)
        for turn in exchange:
            self._exchanged = self._paired(COMM_ONLY, turn)
        return self._difference(COMPUTE_ONLY, alone)

    def _comm_only(self) -> Pass:
        return self._exchanged or self._paired(COMM_ONLY, self._exchange_turns(COMM_ONLY, [self._exchange_side()])[0])

    def _exchange_turns(self, name: str, others: List[Side]) -> List[Turn]:
        """Time sides in turns with native steps on resident batches; no data are read at that time."""
        native = Side(self._on(self._trainer.step))
        self._feed.fill()
        return self._loop.in_turns(name, native, *others)

    def _exchange_side(self) -> Side:
        """Return the side that repeats the exchange of an iteration."""
        trainer, place = self._trainer, self._feed.resident().place

        def begin() -> None:
            trainer.forward(place(None))
            trainer.backward()

        return Side(trainer.communicate, begin, end=trainer.update)

    def _difference(self, name: str, turn: Turn) -> Pass:
        return self._paired(name, turn)._replace(loss=self._trainer.loss())

    def _paired(self, name: str, turn: Turn) -> Pass:
        return self._result(name, turn.timed)._replace(pairs_s=turn.pairs)

    def _on(self, step: Callable[[Any], None]) -> Call:
        """Return that step on batches that are on the device."""
        place = self._feed.resident().place
        return lambda: step(place(None))

    def _staged(self) -> Pass:
        trainer, feed, native = self._trainer, self._feed, self._native_side()
        untimed = max(1, native.untimed)
        clock = StageClock(trainer, untimed)
        distributed = trainer.setup.world > 1
        common = CommonClock(trainer.setup.rank, trainer.maximum)
        offsets: List[float] = []  # to the common clock, of each block; the first one warms up
        errors: List[float] = []
        bubbles: List[Optional[Dict[str, float]]] = []

        def begin() -> None:
            feed.drain()
            common.agree()  # again: clocks drift
            offsets.append(common.offset)
            errors.append(common.error)

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
                trainer.synchronize()  # a rank is late when its device is
                trainer.maximum(0.0)
            clock.lap()
            trainer.communicate()
            clock.lap()
            trainer.update()
            clock.lap()
            bubbles.append(trainer.bubble())

        def end() -> None:
            warm = len(offsets) > 1
            del bubbles[clock.end_block(warm)]
            if not warm:
                trainer.forget_layer_times()

        staged = Side(body, begin, untimed, native.multiple, end, settles=True)
        (turn,) = self._loop.in_turns(STAGED, native, staged, least_rounds=STAGED_ROUNDS)
        spans = [(start + offset, stop + offset) for offset, (start, stop) in zip(offsets[1:], turn.timed.spans)]
        stages = without_bubbles(clock.seconds(), bubbles)
        found = self._difference(STAGED, turn)._replace(stage_s=stages)
        return found._replace(spans_s=spans, clock_error_s=max(errors))

    def _io_only(self) -> Pass:
        self._feed.drain()
        return self._result(IO_ONLY, self._loop.alone(IO_ONLY, self._feed.read))

    def _result(self, name: str, timed: Timed) -> Pass:
        setup = self._trainer.setup
        trained = len(timed.step_s) - timed.dropped
        samples = trained * setup.batch // setup.model_parallel_size  # its share of them
        return Pass(name, samples, timed.steady, timed.warmup_s, timed.step_s, timed.wall_s)


def without_bubbles(
    stages: Dict[str, List[float]], bubbles: List[Optional[Dict[str, float]]]
) -> Dict[str, List[float]]:
    """Return the stages' seconds without the waiting for other parts of the network.

    The waiting becomes a stage `bubble`.
    """
    if not all(bubbles):
        return stages
    found = dict(stages, bubble=[0.0] * len(bubbles))
    for name in ("forward", "backward"):
        waited = [bubble[name] for bubble in bubbles if bubble]
        found[name] = [whole - idle for whole, idle in zip(stages[name], waited)]
        found["bubble"] = [so_far + idle for so_far, idle in zip(found["bubble"], waited)]
    return found
