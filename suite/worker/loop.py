"""The measuring loop: warm up until no trend is left, then time an agreed number of steps.

The steps are timed in one go; in blocks, in turns with other bodies; or in parts, of which the least disturbed by other
programs count: an intermittent load is then left out, and a permanent one is measured along with the steps. Before each
part, other measurements may have their turns.
"""

import gc
import math
import time
from contextlib import contextmanager
from statistics import median
from typing import Any, Callable, Iterator, List, NamedTuple, Optional, Tuple

from stagebench.suite.worker.case_parts import Sampling
from stagebench.suite.worker.contract import Call
from stagebench.suite.worker.gpus import driven
from stagebench.suite.worker.member import Member
from stagebench.suite.worker.messages import HostUse
from stagebench.suite.worker.noise import Meter, disturbance, together
from stagebench.suite.worker.turns import Turns

WINDOW, QUICK_WINDOW = 8, 6  # last steps that are examined for a trend; the shorter if fewer are asked for
LEAST_FALL = 0.03  # a trend is at least this: the later half's median below the earlier half's
PATIENCE, LIMIT = 3, 30  # times the steps that are needed: a warm-up with a trend ends between these two
ROUNDS = 4  # of blocks, at least, and always an even number: the first and the last block are of the same kind
BLOCK_S, BLOCK_STEPS = 0.1, 2  # the least length of a block, in seconds and in steps
FIRST = 3  # steps of the other side before turns begin: the first may compile
RESUMED = 2  # untimed steps at the begin of a block that reads
PART_S = 0.5  # seconds of a part, at least; the system counts in hundredths of a second
PACED_STEPS = 4  # steps of the slowest rank in a part that ends by the clock, at least: its last one runs over
RESUMED_SHARE = 16  # a turn's steps over the untimed ones before them: caches hold other measurements' data
MOST_WAIT_S = 5.0  # for a quiet host, or as long as the pass itself if that is longer
REPORT_S = 0.1  # of steps between reports of progress: a step's data push a report's code out of the caches


class Timed(NamedTuple):
    """The timed steps of a pass on this rank."""

    warmup_s: List[float]
    steady: bool
    step_s: List[float]  # on the trainer's time line, mark to mark
    spans: List[Tuple[float, float]]  # of every block, begin and end on this rank's `time.perf_counter`
    wall_s: float  # from the common barrier until this rank's last step is done
    returned: List[Any]  # the body's results, one per step
    dropped: int = 0  # steps whose batch did not enter the model


class Block(NamedTuple):
    """Steps behind a common barrier; the fields are Timed's."""

    step_s: List[float]
    begin_s: float
    wall_s: float
    returned: List[Any]


class Part(NamedTuple):
    """A block of a pass that is undisturbed, and the use of the hosts by other programs during it."""

    disturbance: float  # as of noise.disturbance, on the rank whose host other programs used most
    block: Block
    dropped: int
    use: Optional[HostUse]


class Side(NamedTuple):
    """A body that is measured in turns with others, of the same process or of another."""

    body: Call
    begin: Call = lambda: None  # called before each block
    untimed: int = 0  # steps that each block begins with
    multiple: int = 1  # a block has a multiple of these steps: the batches that readers may finish at once
    end: Call = lambda: None  # called after each block
    settles: bool = False  # its code is not the native step's: its warm-up lasts until no trend is left


class Turn(NamedTuple):
    """The measurement of a side in turns with native steps."""

    timed: Timed  # all of its blocks as one
    pairs: List[Tuple[float, float]]  # of every round (native, this side) seconds per step


class Loop(NamedTuple):
    """A loop that runs the body of a pass on every rank, with the same number of steps unless ranks run alone."""

    trainer: Member
    sampling: Sampling
    progress: Callable[..., None]
    turns: Optional[Turns] = None  # without them, no other measurement is waited for

    def alone(self, name: str, body: Call) -> Timed:
        """Warm up, then time by every rank's own clock; no synchronisation between steps.

        The body exchanges nothing, and its pace is not known beforehand: a reader first hands out what it read ahead.
        """
        warmup, steady = self._warm_up(name, body)
        steps, least_s = self.sampling.steps, self.sampling.seconds
        with little_to_collect():
            block = self._timed(name, body, steps, reported_every(warmup), 0, steps, least_s)
        return joined(warmup, steady, [block])

    def undisturbed(self, name: str, side: Side) -> Tuple[Timed, List[float], Optional[HostUse]]:
        """Return (the steps that count, seconds of those that were set aside, the system's counts during the former).

        Warm up, then time parts, each behind a common barrier. A part during which other programs used the host of any
        rank is set aside and another one is run; the further parts are as many as were wanted, or take MOST_WAIT_S or
        `warmup_limit`, at most. Then the least disturbed parts count: the time of their steps does not matter. If
        measurements take turns, each part is one turn, and the pass ends with a turn that lasts. Ranks whose steps wait
        for no other rank make as many as they can in the seconds of a part; the other ranks' parts are equal steps.
        """
        trainer = self.trainer
        meter = Meter(driven(trainer.setup))  # before the warm-up: devices would cool down while it is made
        warmup, steady = self._warm_up(name, side.body)
        size, least_s, wanted, more = self._agreed_parts(warmup, self._multiple(side))
        every, parts = reported_every(warmup), []  # type: int, List[Part]
        with little_to_collect():
            while len(parts) < wanted + more and sum(part.disturbance < 1.0 for part in parts) < wanted:
                self._resume(side, size, first=not parts)
                done, dropped = sum(len(part.block.step_s) for part in parts), trainer.dropped_steps()
                meter.begin()
                of = max(wanted * size, done + size)
                block = self._timed(name, side.body, size, every, done, of, least_s, settled=not trainer.ahead)
                use = meter.end()
                dropped = trainer.dropped_steps() - dropped
                parts.append(Part(trainer.maximum(disturbance(use)), block, dropped, use))
        if self.turns is not None:
            self.turns.wait(more=False)
        chosen = sorted(range(len(parts)), key=lambda at: max(parts[at].disturbance, 1.0))[:wanted]
        kept = [part for at, part in enumerate(parts) if at in chosen]
        aside = [each for at, part in enumerate(parts) if at not in chosen for each in part.block.step_s]
        whole = joined(warmup, steady, [part.block for part in kept], sum(part.dropped for part in kept))
        return whole, aside, together([part.use for part in kept])

    def _resume(self, side: Side, size: int, first: bool) -> None:
        """Prepare `size` steps: wait for this rank's turn, empty the read-ahead, run steps that do not count.

        A side that does none of these is prepared once, before its first part.
        """
        untimed = max(side.untimed, self.trainer.ahead)
        if self.turns is not None and self.turns.taken:
            self.turns.wait(more=True)
            untimed = max(untimed, size // RESUMED_SHARE, 1)
        elif not first and not untimed:
            return
        side.begin()
        for _ in range(untimed):
            side.body()

    def in_turns(self, name: str, native: Side, *others: Side, least_rounds: int = ROUNDS) -> List[Turn]:
        """Return a turn for each of `others`, from the same rounds: a round has a block of every side.

        Rounds follow each other back and forth, as native, other, other, native, and so on: drift hits all sides alike.
        Blocks of the native side are as many steps as those of the first other one. There are at least `least_rounds`,
        an even number.
        """
        # The native side is warm from its own pass, as is a side with the same code; drift hits all sides.
        warmups, steady = [], []
        for other in others:
            other.begin()
            if other.settles:
                warmup, settled = self._warm_up(name, other.body)
            else:
                warmup, settled = [self._synchronised(name, other.body, 1 + at, FIRST) for at in range(FIRST)], True
            warmups.append(warmup)
            steady.append(settled)
            other.end()
        least = self._multiple(native, others[0])
        blocks_of = [max(BLOCK_STEPS, self._most(BLOCK_S / usual(warmup))) for warmup in warmups]
        sizes = [up_to(least, blocks_of[0]), *blocks_of[1:]]
        # An even number of rounds, in which two sides together make the steps of a separate pass or more.
        rounds = max(least_rounds, up_to(2, int(math.ceil(self._agreed_steps(warmups[0]) / (2.0 * sizes[0])))))
        for _ in range(BLOCK_STEPS):
            native.body()
        sides, sizes, every = (native, *others), [sizes[0], *sizes], reported_every(warmups[0])
        blocks: List[List[Block]] = [[] for _ in sides]
        done, of = 0, rounds * sum(sizes)
        with little_to_collect():
            for number in range(rounds):
                for at in range(len(sides))[:: 1 if number % 2 == 0 else -1]:
                    blocks[at].append(self._block(name, sides[at], sizes[at], every, done, of))
                    done += sizes[at]
        turns = []
        for warmup, settled, own in zip(warmups, steady, blocks[1:]):
            per_step = [[block.wall_s / len(block.step_s) for block in side] for side in (blocks[0], own)]
            turns.append(Turn(joined(warmup, settled, own), list(zip(*per_step))))
        return turns

    def _block(self, name: str, side: Side, steps: int, every: int, done: int, of: int) -> Block:
        side.begin()
        for _ in range(max(side.untimed, 1)):  # the first step after another body would take longer
            side.body()
        found = self._timed(name, side.body, steps, every, done, of)
        side.end()
        return found

    def _timed(
        self,
        name: str,
        body: Call,
        steps: int,
        every: int,
        done: int,
        of: int,
        least_s: float = 0.0,
        settled: bool = True,
    ) -> Block:
        """Time steps of the body.

        The first step begins on all ranks behind a common barrier. After `steps`, further ones are run until `least_s`
        is over. Unless `settled`, as many steps are in flight at the end as at the begin.

        Progress is reported at the first step, then once per `every` steps. `done` of the pass's `of` steps were run
        before.
        """
        trainer, mark = self.trainer, self.trainer.mark
        settle = trainer.synchronize if settled else lambda: None
        marks: List[Any] = []
        returned: List[Any] = []
        settle()
        trainer.maximum(0.0)
        begin = time.perf_counter()
        marks.append(mark())
        while len(returned) < steps or time.perf_counter() < begin + least_s:
            returned.append(body())
            marks.append(mark())
            if (len(returned) - 1) % every == 0:
                self.progress(name=name, phase="measure", step=done + len(returned), of=max(of, len(returned)))
        settle()
        wall = time.perf_counter() - begin
        return Block([trainer.elapsed(a, b) for a, b in zip(marks, marks[1:])], begin, wall, returned)

    def _warm_up(self, name: str, body: Call) -> Tuple[List[float], bool]:
        """Return (seconds of each step, whether no trend was left); every rank takes the same decision.

        The warm-up ends when the last steps show no trend on any rank. A persistent trend ends it, too: after
        `warmup_limit`, but not before PATIENCE times the steps that are needed, or after LIMIT times as many.
        """
        sampling = self.sampling
        window = WINDOW if sampling.warmup_steps >= WINDOW else QUICK_WINDOW
        least = max(sampling.warmup_steps, window)
        seconds: List[float] = []
        began = time.perf_counter()
        while True:
            seconds.append(self._synchronised(name, body, len(seconds) + 1, least))
            if len(seconds) < least:
                continue
            # Two collective questions, so that all ranks leave the loop together.
            if not self.trainer.maximum(float(falling(seconds[-window:]))):
                return seconds, True
            late = len(seconds) >= PATIENCE * least and time.perf_counter() - began > sampling.warmup_limit
            if self.trainer.maximum(float(late)) or len(seconds) >= LIMIT * least:
                return seconds, False

    def _synchronised(self, name: str, body: Call, step: int, of: int) -> float:
        """Return the seconds of one step of a warm-up, until all of its work is done."""
        start = time.perf_counter()
        body()
        self.trainer.synchronize()
        self.progress(name=name, phase="warmup", step=step, of=of)
        return time.perf_counter() - start

    def _agreed_steps(self, warmup: List[float]) -> int:
        return max(self.sampling.steps, self._most(self.sampling.seconds / usual(warmup)))

    def _most(self, value: float) -> int:
        """Return the value of the rank where it is largest, rounded up."""
        return int(self.trainer.maximum(float(math.ceil(value))))

    def _multiple(self, *sides: Side) -> int:
        """Return the number of which the steps of a part, or of a block, are a multiple: reads and exchanges end."""
        multiple = self.trainer.period
        for side in sides:
            multiple = multiple * side.multiple // math.gcd(multiple, side.multiple)
        return multiple

    def _agreed_parts(self, warmup: List[float], multiple: int) -> Tuple[int, float, int, int]:
        """Return (steps of a part, its least seconds, wanted parts, the number that may be run beyond)."""
        most, sampling, step_s = self.trainer.maximum, self.sampling, usual(warmup)
        wait_s = min(MOST_WAIT_S, sampling.warmup_limit)
        if not self.trainer.waits_for_ranks():
            whole_s = most(max(sampling.seconds, sampling.steps * step_s))
            wanted = max(1, int(whole_s // max(PART_S, PACED_STEPS * most(step_s))))
            return multiple, whole_s / wanted, wanted, max(wanted, int(math.ceil(wait_s * wanted / whole_s)))
        steps = self._agreed_steps(warmup)
        part, wait = self._most(PART_S / step_s), self._most(wait_s / step_s)
        wanted = max(1, steps // part)
        size = up_to(multiple, -(-steps // wanted))
        return size, 0.0, wanted, max(wanted, -(-wait // size))


def joined(warmup: List[float], steady: bool, blocks: List[Block], dropped: int = 0) -> Timed:
    """Return blocks of steps as one."""
    steps = [each for block in blocks for each in block.step_s]
    returned = [each for block in blocks for each in block.returned]
    spans = [(block.begin_s, block.begin_s + block.wall_s) for block in blocks]
    return Timed(warmup, steady, steps, spans, sum(block.wall_s for block in blocks), returned, dropped)


@contextmanager
def little_to_collect() -> Iterator[None]:
    """Exempt the objects that exist by now from garbage collection; later ones are collected as before.

    A search through all objects that a framework's import has made takes 60 to 90 ms. Though rare, it would hit the
    steps of some ranks and spare those of other ranks.
    """
    gc.collect()
    getattr(gc, "freeze", lambda: None)()  # Python 3.6 has none
    try:
        yield
    finally:
        getattr(gc, "unfreeze", lambda: None)()


def falling(seconds: List[float]) -> bool:
    """Return whether steps still get quicker: the later half against the earlier one, each without its slowest step.

    All of the later ones must be below all of the earlier ones, which noise does 7 times in 100 with halves of four (20
    with three), and their medians LEAST_FALL apart. A spike does not count: it neither ends nor prolongs a warm-up.
    """
    half = len(seconds) // 2
    earlier, later = sorted(seconds[:half])[:-1], sorted(seconds[-half:])[:-1]
    return later[-1] < earlier[0] and median(later) < (1.0 - LEAST_FALL) * median(earlier)


def reported_every(warmup: List[float]) -> int:
    """Return the number of steps from one report of progress to the next."""
    return max(1, int(REPORT_S / usual(warmup)))


def up_to(multiple: int, steps: int) -> int:
    """Round `steps` up to a multiple of `multiple`."""
    return -(-steps // multiple) * multiple


def usual(seconds: List[float]) -> float:
    """Return the median of the last steps."""
    return median(seconds[-QUICK_WINDOW:])
