"""Numbers in a trainer's notes, which are an adapter's free words: whatever stands there, a page is made.

How a network learnt: epochs, accuracy, and when the target was reached.

Loss curves that may be compared: noise of single batches taken out, read at equal samples and at equal time.

A rank's loss is that of its own batch. Here a point of a curve is first the mean over ranks,
then the mean over all points that were kept within a tenth of the compared stretch before it.

How old the weights were that asynchronous workers computed with: updates of others between a pull and its push.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from suite.results import rank_report
from suite.results.rank_report import Rank

MOST = 1e15  # of anything that is noted: beyond it, sums and products leave what a float holds


def noted(note: Any, name: str) -> float | None:
    """A number from 0 by its name in a note; None where there is none, or something else."""
    found = note.get(name) if isinstance(note, dict) else None
    if isinstance(found, bool) or not isinstance(found, int | float) or not 0 <= found <= MOST:
        return None
    return float(found)


AGREEING_STEPS = 50  # over which two curves are laid on each other


@dataclass(frozen=True)
class Epoch:
    """One epoch of all ranks together."""

    seconds: float  # the slowest rank's, without testing
    samples: int
    accuracy: float  # on what was held out
    loss: float | None  # the last step's, the mean over ranks; None: it was no number

    @property
    def rate(self) -> float:
        return self.samples / self.seconds if self.samples else 0.0  # a slow worker may have had none, in no time


@dataclass(frozen=True)
class Learnt:
    """One process group's training."""

    epochs: tuple[Epoch, ...]
    steps: tuple[int, ...]
    losses: tuple[float | None, ...]  # at those steps, the mean over ranks
    target: float
    seconds_then: tuple[float, ...] = ()  # of training, when the slowest rank had taken those steps; () where not kept
    opening_seconds: float | None = None  # the slowest rank's to open its input, in no epoch; None: not kept

    @property
    def best(self) -> float:
        return max(epoch.accuracy for epoch in self.epochs)

    @property
    def seconds(self) -> float:
        return sum(epoch.seconds for epoch in self.epochs)

    @property
    def target_epoch(self) -> int | None:
        """The first epoch, from 1, whose accuracy is the target's; None when none is."""
        return next((number for number, epoch in enumerate(self.epochs, 1) if epoch.accuracy >= self.target), None)

    @property
    def target_seconds(self) -> float | None:
        """Seconds of training until then."""
        reached = self.target_epoch
        return None if reached is None else sum(epoch.seconds for epoch in self.epochs[:reached])

    def distance(self, other: "Learnt") -> float | None:
        """The largest difference of the losses over the first steps; None when they cannot be laid on each other."""
        pairs = [
            (ours, theirs)
            for step, ours, theirs in zip(self.steps, self.losses, other.losses, strict=False)
            if step < AGREEING_STEPS
        ]
        if self.steps[: len(pairs)] != other.steps[: len(pairs)] or not pairs:
            return None
        known = [abs(ours - theirs) for ours, theirs in pairs if ours is not None and theirs is not None]
        return max(known) if len(known) == len(pairs) else None


def learnt(ranks: Sequence[rank_report.Training], target: float) -> Learnt:
    """The ranks' records of one training, joined."""
    epochs = tuple(_epoch(column) for column in zip(*(rank.epochs for rank in ranks), strict=True))
    opened = [rank.open_s for rank in ranks if rank.open_s is not None]
    opening = max(opened) if len(opened) == len(ranks) else None
    if len({rank.loss_steps for rank in ranks}) > 1:  # workers that wait for nobody: all their losses, as they came
        timed = all(rank.loss_s for rank in ranks)
        orders = [rank.loss_s if timed else rank.loss_steps for rank in ranks]
        several = zip(orders, ranks, strict=True)
        rows = [row for order, rank in several for row in zip(order, rank.loss_steps, rank.losses, strict=True)]
        seconds, steps, losses = zip(*sorted(rows, key=lambda row: row[0]), strict=True)
        return Learnt(epochs, steps, losses, target, seconds if timed else (), opening)
    return Learnt(
        epochs,
        ranks[0].loss_steps,
        tuple(mean(losses) for losses in zip(*(rank.losses for rank in ranks), strict=True)),
        target,
        tuple(max(times) for times in zip(*(rank.loss_s for rank in ranks), strict=True)),
        opening,
    )


def _epoch(ranks: Sequence[rank_report.Epoch]) -> Epoch:
    return Epoch(
        seconds=max(rank.train_s for rank in ranks),
        samples=sum(rank.samples for rank in ranks),
        accuracy=fmean(rank.accuracy for rank in ranks),
        loss=mean([rank.loss for rank in ranks]),
    )


def mean(values: Sequence[float | None]) -> float | None:
    """None where one of them is no number, or where there is none."""
    known = [value for value in values if value is not None]
    return fmean(known) if known and len(known) == len(values) else None


WINDOW = 0.1  # of the stretch that all compared trainings have in common


@dataclass(frozen=True)
class Curve:
    """Loss by samples that all ranks together had seen, and by seconds of training."""

    samples: tuple[float, ...]
    seconds: tuple[float, ...]  # () where the record did not keep them
    losses: tuple[float | None, ...]

    def by(self, seconds: bool) -> tuple[float, ...]:
        return self.seconds if seconds else self.samples


def curve(learnt: Learnt, global_batch: int) -> Curve:
    """A training's losses; `global_batch` samples go into every step."""
    return Curve(tuple(float((step + 1) * global_batch) for step in learnt.steps), learnt.seconds_then, learnt.losses)


def smoothed(at: Sequence[float], losses: Sequence[float | None], window: float) -> list[float | None]:
    """Each point the mean of those in the `window` that ends with it; None where one of them is no number."""
    found: list[float | None] = []
    begin = 0
    for end, place in enumerate(at, 1):
        while at[begin] <= place - window:
            begin += 1
        found.append(mean(losses[begin:end]))
    return found


def reached(at: Sequence[float], losses: Sequence[float | None], place: float, window: float) -> float | None:
    """The smoothed loss at a place: the mean of the points in the `window` that ends there; None without any."""
    return mean([loss for where, loss in zip(at, losses, strict=True) if place - window < where <= place])


@dataclass(frozen=True)
class Staleness:
    """Over all ranks and steps of a training."""

    mean: float
    most: float
    steps: int


def staleness_of(ranks: Sequence[Rank]) -> Staleness | None:
    """From the ranks' notes ({"mean", "max", "steps"} each, other notes of that name are skipped); None without any."""
    notes = [rank.notes.get("staleness") for rank in ranks]
    numbers = [(noted(note, "mean"), noted(note, "max"), noted(note, "steps")) for note in notes]
    return joined_staleness(
        [
            Staleness(mean, most, int(steps))
            for mean, most, steps in numbers
            if mean is not None and most is not None and steps is not None and steps >= 1
        ]
    )


def joined_staleness(several: Sequence[Staleness]) -> Staleness | None:
    """The mean over all steps, the most of all; None of none."""
    if not several:
        return None
    steps = sum(one.steps for one in several)
    return Staleness(sum(one.mean * one.steps for one in several) / steps, max(one.most for one in several), steps)
