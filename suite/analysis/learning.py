"""How a network learnt: epochs, accuracy, and when the target was reached."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from suite.results import rank_report

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
