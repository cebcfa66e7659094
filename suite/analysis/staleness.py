"""How old the weights were that asynchronous workers computed with: updates of others between a pull and its push."""

from collections.abc import Sequence
from dataclasses import dataclass

from suite.analysis.notes import noted
from suite.results.rank_report import Rank


@dataclass(frozen=True)
class Staleness:
    """Over all ranks and steps of a training."""

    mean: float
    most: float
    steps: int


def of_process(ranks: Sequence[Rank]) -> Staleness | None:
    """From the ranks' notes ({"mean", "max", "steps"} each, other notes of that name are skipped); None without any."""
    notes = [rank.notes.get("staleness") for rank in ranks]
    numbers = [(noted(note, "mean"), noted(note, "max"), noted(note, "steps")) for note in notes]
    return joined(
        [
            Staleness(mean, most, int(steps))
            for mean, most, steps in numbers
            if mean is not None and most is not None and steps is not None and steps >= 1
        ]
    )


def joined(several: Sequence[Staleness]) -> Staleness | None:
    """The mean over all steps, the most of all; None of none."""
    if not several:
        return None
    steps = sum(one.steps for one in several)
    return Staleness(sum(one.mean * one.steps for one in several) / steps, max(one.most for one in several), steps)
