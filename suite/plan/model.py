"""The shape of a plan: what its tables may say (types, ranges, keys, checked by pydantic), and what a block sweeps.

What depends on adapters, launchers, workloads and this machine is checked when the plan is resolved.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, get_type_hints

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ByteSize,
    ConfigDict,
    Field,
    WrapValidator,
    create_model,
)

from stagebench.suite.plan.problems import KeyPath
from stagebench.suite.processes.hosts import refused
from stagebench.suite.text import known
from stagebench.suite.worker.case_parts import (
    DECAYS,
    FLOORS,
    MOST_WORKERS,
    Input,
    Sampling,
    Schedule,
    Serving,
    Training,
)
from stagebench.suite.worker.pass_kinds import NAMES, USUAL

MOST_RANKS = 1024  # on one node: a larger number was meant for all nodes together
MOST_READERS = 1024  # of a rank
MOST_SLOWED = 0.95  # the share of a straggler's time that a load takes: it is then twenty times slower
MOST_CASES = 10_000  # of a plan: more are seldom intended
LONGEST_TITLE = 500  # characters
WHOLE = "all"  # a batch: every sample that a training learns from, over all devices together


def _share(value: float) -> float:
    if value not in FLOORS:
        raise ValueError(f"{value!r} is none of the shares of queries that are bounded, {', '.join(map(str, FLOORS))}")
    return value


def _listed(value: Any) -> Any:
    return value if isinstance(value, list) else [value]


T = TypeVar("T")
Swept = Annotated[list[T], BeforeValidator(_listed), Field(min_length=1)]
Count = Annotated[int, Field(ge=1, le=1_000_000)]
Batch = Annotated[Count, WrapValidator(lambda value, count: value if value == WHOLE else count(value))]
Readers = Annotated[int, Field(ge=0, le=MOST_READERS)]
RanksOfNode = Annotated[int, Field(ge=1, le=MOST_RANKS)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
if TYPE_CHECKING:
    Decay = str
    Pass = str
else:
    Pass = Literal[NAMES]  # the declarations' names
    Decay = Literal[tuple(DECAYS)]
Device = Literal["cpu", "cuda"]
Share = Annotated[float, AfterValidator(_share)]
Word = Annotated[str, Field(min_length=1)]
Memory = Annotated[ByteSize, Field(ge=0)]  # "8 GiB", or a number of bytes; 0: no limit


def _host(name: str) -> str:
    problem = refused(name)
    if problem:
        raise ValueError(problem)
    return name


HostName = Annotated[str, AfterValidator(_host)]


class Strict(BaseModel):
    """A table of a plan: it has no unknown keys, and its values are not converted silently."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class Block(Strict):
    """A [[cases]] block with the defaults filled in; every field but hosts, passes and knobs is swept."""

    adapter: Swept[Word] = []
    strategy: Swept[Word] = []
    workload: Swept[Word] = []
    data: Swept[Word] = ["synthetic"]
    batch: Swept[Batch] = [8]  # a table by workload becomes a block for each of them (stagebench.suite.plan.read)
    scaling: Swept[Literal["weak", "strong"]] = ["weak"]  # "strong": the batch is that of all devices together
    nodes: Swept[Count] = [1]
    ranks: Swept[RanksOfNode] = [1]
    devices: Swept[RanksOfNode] = [1]
    device: Swept[Device] = ["cpu"]
    threads: Swept[Count] = [1]
    launcher: Swept[Word] = ["auto"]
    binding: Swept[Literal["none", "cores"]] = ["none"]
    share_devices: Swept[bool] = [False]
    straggler: Swept[Annotated[float, Field(ge=0, le=MOST_SLOWED)]] = [0.0]
    memory_limit: Swept[Memory] = [ByteSize(0)]
    tuning: Swept[Word] = ["default"]
    precision: Swept[Word] = ["float32"]
    optimiser: Swept[Literal["sgd", "adam", "adamw"]] = ["sgd"]
    clip_norm: Swept[NotNegative] = [0.0]
    warmup_epochs: Swept[NotNegative] = [Schedule().warmup_epochs]
    decay: Swept[Decay] = [Schedule().decay]
    lr: Swept[Positive] | None = None  # None: the workload's, scaled to the global batch; 0.001 for Adam
    readers: Swept[Readers] = [1]  # 0: the training process reads
    data_mode: Swept[Literal["disk", "memory"]] = ["disk"]
    format: Swept[Word] = ["files"]
    page_cache: Swept[Literal["as is", "cold", "warm"]] = ["as is"]
    prefetch: Swept[Count] = [Input().prefetch]
    repeat: Swept[Count] = [Input().repeat]
    augment: Swept[Literal["centre", "random"]] = ["centre"]
    on_error: Swept[Literal["fail", "skip"]] = ["fail"]
    max_delay_ms: Swept[NotNegative] = [Serving().max_delay_ms]
    bound_ms: Swept[Positive] = [Serving().bound_ms]
    bound_share: Swept[Share] = [Serving().bound_share]
    model_server: Swept[Word] = [Serving().model_server]
    workers: Swept[Annotated[int, Field(ge=1, le=MOST_WORKERS)]] = [Serving().workers]
    arrivals: Swept[Word] = [Serving().arrivals]
    address: Swept[str] = [Serving().address]
    options: Swept[dict[str, Any]] = [Serving().options]
    seed: Swept[Annotated[int, Field(ge=0, lt=2**32)]] = [1]
    time_limit: Swept[Positive] = [1800.0]
    silence_limit: Swept[Positive] = [300.0]
    hosts: list[HostName] = []
    passes: Annotated[list[Pass], Field(min_length=1)] = list(USUAL)
    knobs: dict[str, Annotated[list[Any], BeforeValidator(_listed), Field(min_length=1)]] = {}


def _table(kind: Any, **bounds: Any) -> type[Strict]:
    """Return the model of a table that has the fields and defaults of `kind`, with the types or else the bounds."""
    types = get_type_hints(kind) | bounds
    fields: dict[str, Any] = {name: (types[name], value) for name, value in kind()._asdict().items()}
    return create_model(f"{kind.__name__}Table", __base__=Strict, **fields)


SECTIONS = {
    "sampling": _table(
        Sampling,
        warmup_steps=Count,
        warmup_limit=Positive,
        steps=Count,
        seconds=NotNegative,
        processes=Count,
        breakdowns=Count,
    ),
    "training": _table(
        Training,
        epochs=Count,
        held_out=Annotated[float, Field(gt=0, lt=1)],
        target=Annotated[float, Field(gt=0, le=1)],
        patience=Annotated[int, Field(ge=0, le=1_000_000)],
    ),
}


class Heading(Strict):
    """The keys of a plan before its tables: its name, its title and its limit of cases."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
    title: Annotated[str, Field(max_length=LONGEST_TITLE)] = ""
    most_cases: Count = MOST_CASES


@dataclass(frozen=True)
class Written:
    """A block as it was written, and its place in the file."""

    block: Block
    index: int  # among the [[cases]]
    keys: frozenset[str]  # the keys in the block itself; others come from [defaults]
    block_knobs: frozenset[str]  # the knobs in the block itself
    broken: frozenset[str]  # keys whose values were refused: nothing may be concluded from them

    def path(self, key: str, *more: str | int) -> KeyPath:
        """Return the place of a key of this block in the file: in the block itself, or in [defaults]."""
        if key == "knobs" and more and more[0] not in self.block_knobs:
            return ("defaults", key, *more)
        return ("cases", self.index, key, *more) if key in self.keys else ("defaults", key, *more)

    @property
    def head(self) -> KeyPath:
        return ("cases", self.index)


SWEPT = tuple(name for name in Block.model_fields if name not in ("hosts", "passes", "knobs"))


@dataclass(frozen=True)
class Choice:
    """A combination of values, one for every swept key and knob of a block."""

    written: Written  # the block in the file
    block: Block  # the block that is swept: the written one, or the rest that a scale leaves of it
    values: dict[str, Any]
    knobs: dict[str, Any]

    def __getitem__(self, key: str) -> Any:
        return self.values[key]


def count(block: Block) -> int:
    columns = [*(getattr(block, key) for key in SWEPT), *block.knobs.values()]
    return prod(len(column or [None]) for column in columns)


def choices(written: Written, block: Block) -> Iterator[Choice]:
    """Yield every choice of a block, the first swept key varying slowest."""
    columns = [getattr(block, key) or [None] for key in SWEPT]
    for row in product(*columns, *block.knobs.values()):
        values = dict(zip(SWEPT, row, strict=False))
        yield Choice(written, block, values, dict(zip(block.knobs, row[len(SWEPT) :], strict=True)))


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
    """A smaller version of a plan, for a smaller machine or a first look, with its sampling and training.

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
        times, divisor = self.head.multiply_batch, self.head.divide_batch
        batches = [
            each if each == WHOLE else max(1, each * times // divisor) for each in swept.get("batch", block.batch)
        ]
        if self.head.device:
            swept["device"] = [self.head.device]
        return block.model_copy(update={**swept, "knobs": knobs, "batch": list(dict.fromkeys(batches))})

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
    found = [value for each in there for value in each or ()]
    for index, value in enumerate(values):
        if value not in found:
            names = dict.fromkeys(map(str, found))
            yield (*place, index), f"no block has {what} = {value!r}; {known(str(value), names)}"
