"""A plan as it was read: its blocks, where they stand, and what is wrong so far."""

from dataclasses import dataclass, replace
from pathlib import Path

from suite.contracts.case import Sampling, Training
from suite.errors import RequestError
from suite.plan.locator import Path as KeyPath
from suite.plan.model import Block
from suite.plan.problems import Problems
from suite.plan.scale import Scale
from suite.suggest import known


@dataclass(frozen=True)
class Written:
    """One block as it was written, and where."""

    block: Block
    index: int
    keys: frozenset[str]  # those that stand in the block itself; others come from [defaults]
    block_knobs: frozenset[str]  # likewise, for its knobs
    broken: frozenset[str]  # keys whose values were refused: nothing may be concluded from them

    def path(self, key: str, *more: str | int) -> KeyPath:
        """Where a key of this block stands in the file."""
        if key == "knobs" and more and more[0] not in self.block_knobs:
            return ("defaults", key, *more)
        return ("cases", self.index, key, *more) if key in self.keys else ("defaults", key, *more)

    @property
    def head(self) -> KeyPath:
        """Where the block begins."""
        return ("cases", self.index)


@dataclass(frozen=True)
class Plan:
    """A plan as read; `suite.plan.resolve` makes cases of it, or tells all that is wrong with it."""

    name: str
    title: str
    file: Path
    text: str
    sampling: Sampling
    training: Training
    blocks: tuple[Written, ...]
    problems: Problems
    scales: dict[str, Scale]
    scale: Scale | None = None  # the one that is applied

    def scaled(self, name: str) -> "Plan":
        """The plan under one of its scales; RequestError when it has none of that name."""
        if name not in self.scales:
            raise RequestError(f"the plan {self.name!r} has no scale {name!r}; {known(name, self.scales)}")
        scale = self.scales[name]
        return replace(self, scale=scale, sampling=scale.sampling, training=scale.training)
