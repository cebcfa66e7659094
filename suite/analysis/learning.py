"""How a network learnt: epochs, accuracy, loss curves that may be compared, and the staleness of its weights."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from stagebench.suite.results.rank_report import Rank
from stagebench.suite.worker import messages

AGREEING_STEPS = 50  # steps over which two curves are compared point by point
WINDOW = 0.1  # of the stretch that all compared trainings have in common: curves are smoothed over it
MOST = 1e15  # of a number in a note: beyond it, sums and products overflow a float


@dataclass(frozen=True)
class Epoch:
    """An epoch of all ranks together."""

    seconds: float  # the slowest rank's, without testing
    samples: int
    accuracy: float  # on the test data
    loss: float | None  # the last step's, the mean over ranks; None: not a finite number
    joules: float | None = None  # of all hosts, without testing; None: not counted

    @property
    def rate(self) -> float:
        return self.samples / self.seconds if self.samples else 0.0  # a slow worker may have had none, in no time


@dataclass(frozen=True)
class Learnt:
    """A training of a process group."""

    epochs: tuple[Epoch, ...]
    steps: tuple[int, ...]
    losses: tuple[float | None, ...]  # at those steps, the mean over ranks
    target: float  # accuracy
    seconds_then: tuple[float, ...] = ()  # of training, when the slowest rank had taken those steps; () unknown
    opening_seconds: float | None = None  # the slowest rank's to open its input, in no epoch; None: unknown

    @property
    def best(self) -> float:
        return max(epoch.accuracy for epoch in self.epochs)

    @property
    def seconds(self) -> float:
        return sum(epoch.seconds for epoch in self.epochs)

    @property
    def target_epoch(self) -> int | None:
        """The first epoch, from 1, that reaches the target accuracy; None if none does."""
        return next((number for number, epoch in enumerate(self.epochs, 1) if epoch.accuracy >= self.target), None)

    @property
    def target_seconds(self) -> float | None:
        """Seconds of training until then."""
        return sum(epoch.seconds for epoch in self.epochs[: self.target_epoch]) if self.target_epoch else None

    @property
    def target_joules(self) -> float | None:
        """The energy of training until then, on all hosts; None if a host's counters could not be read."""
        spent = [epoch.joules for epoch in self.epochs[: self.target_epoch or 0]]
        known = [joules for joules in spent if joules is not None]
        return sum(known) if known and len(known) == len(spent) else None

    def distance(self, other: "Learnt") -> float | None:
        """Return the largest difference of the losses over the first steps; None if their steps differ."""
        largest = None
        for step, other_step, ours, theirs in zip(self.steps, other.steps, self.losses, other.losses, strict=False):
            if step >= AGREEING_STEPS:
                break
            if step != other_step or ours is None or theirs is None:
                return None
            largest = max(largest or 0.0, abs(ours - theirs))
        return largest


def learnt(
    ranks: Sequence[messages.Training], target: float, joules: Callable[[int], float | None] = lambda epoch: None
) -> Learnt:
    """Join the ranks' reports of one training; `joules` are those of an epoch, by its index."""
    epochs = tuple(
        Epoch(
            seconds=max(rank.train_s for rank in reports),
            samples=sum(rank.samples for rank in reports),
            accuracy=fmean(rank.accuracy for rank in reports),
            loss=mean([rank.loss for rank in reports]),
            joules=joules(number),
        )
        for number, reports in enumerate(zip(*(rank.epochs for rank in ranks), strict=True))
    )
    opened = [rank.open_s for rank in ranks if rank.open_s is not None]
    opening = max(opened) if len(opened) == len(ranks) else None
    if all(rank.loss_steps == ranks[0].loss_steps for rank in ranks):
        losses = tuple(map(mean, zip(*(rank.losses for rank in ranks), strict=True)))
        seconds = tuple(map(max, zip(*(rank.loss_s for rank in ranks), strict=True)))
        return Learnt(epochs, tuple(ranks[0].loss_steps), losses, target, seconds, opening)
    # Asynchronous workers: all their losses, in the order in which they came.
    timed = all(rank.loss_s for rank in ranks)
    points: list[tuple[float, int, float | None]] = []
    for rank in ranks:
        points += zip(rank.loss_s if timed else rank.loss_steps, rank.loss_steps, rank.losses, strict=True)
    points.sort(key=lambda point: point[0])
    order, steps, each_loss = zip(*points, strict=True)
    return Learnt(epochs, steps, each_loss, target, order if timed else (), opening)


def mean(values: Sequence[float | None]) -> float | None:
    """Return None if a value is None, or without values."""
    known = [value for value in values if value is not None]
    return fmean(known) if values and len(known) == len(values) else None


@dataclass(frozen=True)
class Curve:
    """A loss curve by samples that all ranks together had seen, and by seconds of training.

    A rank's loss is that of its own batch. A point is first the mean over ranks, then (`smoothed`) the mean over all
    points within a tenth of the compared stretch before it, which takes out the noise of single batches.
    """

    samples: tuple[float, ...]
    seconds: tuple[float, ...]  # () if the record did not keep them
    losses: tuple[float | None, ...]

    def by(self, seconds: bool) -> tuple[float, ...]:
        return self.seconds if seconds else self.samples


def curve(training: Learnt, global_batch: int) -> Curve:
    """Return a training's losses; `global_batch` samples go into every step."""
    samples = tuple(float((step + 1) * global_batch) for step in training.steps)
    return Curve(samples, training.seconds_then, training.losses)


def smoothed(at: Sequence[float], losses: Sequence[float | None], window: float) -> list[float | None]:
    """Return, for each point, the mean of those in the `window` that ends with it; None if one is not finite."""
    means: list[float | None] = []
    begin = 0
    for end, place in enumerate(at, 1):
        while at[begin] <= place - window:
            begin += 1
        means.append(mean(losses[begin:end]))
    return means


def reached(at: Sequence[float], losses: Sequence[float | None], place: float, window: float) -> float | None:
    """Return the smoothed loss at a place: the mean of the points in the `window` that ends there; None without any."""
    return mean([loss for where, loss in zip(at, losses, strict=True) if place - window < where <= place])


def noted(note: Any, name: str) -> float | None:
    """Return a number from 0 by its name in a trainer's note; None if it is missing, or something else.

    Notes are an adapter's free words: whatever they hold, a page is made.
    """
    value = note.get(name) if isinstance(note, dict) else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MOST:
        return None
    return float(value)


@dataclass(frozen=True)
class Staleness:
    """The age of the weights that asynchronous workers computed with: updates between a pull and its push."""

    mean: float  # over all ranks and steps of a training
    most: float
    steps: int


def staleness_of(ranks: Sequence[Rank]) -> Staleness | None:
    """Return the staleness in the ranks' notes ({"mean", "max", "steps"} each; others are skipped); None without."""
    known = []
    for rank in ranks:
        average, most, steps = (noted(rank.notes.get("staleness"), name) for name in ("mean", "max", "steps"))
        if average is not None and most is not None and steps is not None and steps >= 1:
            known.append(Staleness(average, most, int(steps)))
    return joined_staleness(known)


def joined_staleness(several: Sequence[Staleness]) -> Staleness | None:
    """Return the mean over all steps, and the maximum; None of none."""
    if not several:
        return None
    steps = sum(each.steps for each in several)
    weighted = sum(each.mean * each.steps for each in several)
    return Staleness(weighted / steps, max(each.most for each in several), steps)
