"""From a block's lists to single choices: the product, in the order written."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

from suite.plan.model import Block
from suite.plan.written import Written

SWEPT = tuple(name for name in Block.model_fields if name not in ("hosts", "passes", "knobs"))


@dataclass(frozen=True)
class Choice:
    """One value for every swept key of a block."""

    written: Written  # where it stands in the file
    block: Block  # what is swept: the written one, or what a scale leaves of it
    values: dict[str, Any]
    knobs: dict[str, Any]

    def __getitem__(self, key: str) -> Any:
        """The value of a swept key."""
        return self.values[key]


def choices(written: Written, block: Block) -> Iterator[Choice]:
    """Every choice of a block, the first swept key varying slowest."""
    columns = [getattr(block, key) or [None] for key in SWEPT]
    for row in product(*columns, *block.knobs.values()):
        values = dict(zip(SWEPT, row, strict=False))
        yield Choice(written, block, values, dict(zip(block.knobs, row[len(SWEPT) :], strict=True)))
