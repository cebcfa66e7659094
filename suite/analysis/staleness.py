"""How old the weights were that asynchronous workers computed with: updates of others between a pull and its push."""

from collections.abc import Sequence
from dataclasses import dataclass

from suite.results.rank_report import Rank


@dataclass(frozen=True)
class Staleness:
    """Over all ranks and steps of a training."""

    mean: float
    most: float
    steps: int


def of_process(ranks: Sequence[Rank]) -> Staleness | None:
    """From the ranks' notes ({"mean", "max", "steps"} each); None where no rank notes it."""
    notes = [rank.notes.get("staleness") for rank in ranks]
    reported = [note for note in notes if isinstance(note, dict) and note.get("steps")]
    return joined([Staleness(float(note["mean"]), float(note["max"]), int(note["steps"])) for note in reported])


def joined(several: Sequence[Staleness]) -> Staleness | None:
    """The mean over all steps, the most of all; None of none."""
    if not several:
        return None
    steps = sum(one.steps for one in several)
    return Staleness(sum(one.mean * one.steps for one in several) / steps, max(one.most for one in several), steps)
