"""The rise and fall of a training's learning rate, as a factor of the case's own rate at every update."""

import math
from typing import Callable, Dict, NamedTuple

# The factor of the rate from the end of the warm-up (0.0) to the end of the training (1.0). The steps are those of
# Goyal et al. 2017 (arXiv 1706.02677, section 5.1), epochs 30, 60 and 80 of 90; cosine: Loshchilov and Hutter 2017.
DECAYS: Dict[str, Callable[[float], float]] = {
    "none": lambda done: 1.0,
    "steps": lambda done: 0.1 ** sum(done >= mark / 9.0 for mark in (3, 6, 8)),
    "cosine": lambda done: 0.5 * (1.0 + math.cos(math.pi * done)),
    "linear": lambda done: 1.0 - done,
}


class Schedule(NamedTuple):
    """The course of the rate through a training."""

    warmup_epochs: float = 0.0  # over which it rises in a straight line, from one step's share to the whole
    decay: str = "none"  # a name of DECAYS

    @property
    def changing(self) -> bool:
        """True if the rate ever changes."""
        return self != Schedule()

    def factor(self, update: int, updates: int, per_epoch: float) -> float:
        """Return the factor of the case's rate at an update, counted from 0, of `updates` in the whole training."""
        rising = min(updates, int(round(self.warmup_epochs * per_epoch)))
        if update < rising:
            return (update + 1.0) / rising
        return DECAYS[self.decay]((update - rising) / float(updates - rising))
