"""Scale profiles: smaller versions of a plan, for a smaller machine or a first look.

    [scale.small]
    divide_batch = 16           # every number, at least 1; what becomes equal is merged
    multiply_batch = 4          # every number
    device = "cuda"             # of every case

    [scale.small.keep]          # any key of a [[cases]] block but hosts: of each block's values only these
    adapter = ["pytorch", "mxnet"]
    ranks = [1, 2]
    knobs = { overlap = "auto" }        # for the blocks that name the knob

    [scale.small.sampling]      # replaces these keys of the plan; [scale.small.training] works alike
    steps = 5

A block that is left without a value of some key is skipped. Batches are kept first, multiplied and divided then.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from suite.plan.model import WHOLE, Block, Count, Device, Strict
from suite.plan.problems import KeyPath
from suite.text import known
from suite.worker.case_parts import Sampling, Training

TABLES = ("keep", "sampling", "training")


class ScaleBlock(Strict):
    """[scale.NAME] without its tables, which have models of their own."""

    divide_batch: Count = 1
    multiply_batch: Count = 1
    device: Device | None = None
    keep: Annotated[dict[str, Any], Field(default_factory=dict)]
    sampling: Annotated[dict[str, Any], Field(default_factory=dict)]
    training: Annotated[dict[str, Any], Field(default_factory=dict)]


@dataclass(frozen=True)
class Scale:
    """A profile, with the plan's sampling and training under it."""

    name: str
    head: ScaleBlock
    keep: dict[str, list[Any]]  # by key of a block
    knobs: dict[str, list[Any]]  # by knob
    sampling: Sampling
    training: Training

    def scaled(self, block: Block) -> Block | None:
        """Return the rest of a block under this profile; None if nothing is left."""
        swept = {key: _common(getattr(block, key), values) for key, values in self.keep.items()}
        knobs = {name: _common(values, self.knobs.get(name, values)) for name, values in block.knobs.items()}
        if not all((*swept.values(), *knobs.values())):
            return None
        batches = map(self._sized, swept.get("batch", block.batch))
        if self.head.device:
            swept["device"] = [self.head.device]
        return block.model_copy(update={**swept, "knobs": knobs, "batch": list(dict.fromkeys(batches))})

    def _sized(self, batch: Any) -> Any:
        return batch if batch == WHOLE else max(1, batch * self.head.multiply_batch // self.head.divide_batch)

    def errors(self, blocks: Sequence[Block]) -> Iterator[tuple[KeyPath, str]]:
        """Yield (place below [scale.NAME], problem): values that no block has, a profile that leaves no block."""
        for key, values in self.keep.items():
            yield from _unknown(("keep", key), key, values, [getattr(block, key) for block in blocks])
        for name, values in self.knobs.items():
            there = [block.knobs[name] for block in blocks if name in block.knobs]
            yield from _unknown(("keep", "knobs", name), f"knob {name}", values, there)
        if blocks and not any(self.scaled(block) for block in blocks):
            yield (
                ("keep",),
                f"the scale {self.name!r} keeps no block: none has a value of every key that is kept; keep values that "
                "one block has",
            )


def _common(values: list[Any] | None, kept: list[Any]) -> list[Any]:
    return [value for value in values or () if value in kept]


def _unknown(
    place: KeyPath, what: str, values: list[Any], there: Sequence[list[Any] | None]
) -> Iterator[tuple[KeyPath, str]]:
    found = list(dict.fromkeys(value for each in there for value in each or ()))
    for index, value in enumerate(values):
        if value not in found:
            yield (*place, index), f"no block has {what} = {value!r}; {known(value, map(str, found))}"
