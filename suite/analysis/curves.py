"""Loss curves that may be compared: noise of single batches taken out, read at equal samples and at equal time.

A rank's loss is that of its own batch. Here a point of a curve is first the mean over ranks,
then the mean over all points that were kept within a tenth of the compared stretch before it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from suite.analysis.learning import Learnt, mean

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
