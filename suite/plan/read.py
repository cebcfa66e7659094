"""Reading a plan: the file, its TOML, its shape. Problems wait until `resolve` can tell all of them."""

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from suite.case import Sampling, Training
from suite.errors import RequestError
from suite.plan.locator import Locator
from suite.plan.locator import Path as KeyPath
from suite.plan.model import Block, Heading, SamplingBlock, TrainingBlock
from suite.plan.problems import Problems
from suite.plan.ready import find
from suite.suggest import known

TOP_KEYS = ("name", "title", "defaults", "sampling", "training", "cases")


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


def load(name_or_path: str | Path) -> Plan:
    """Read a ready-made plan by name, or a file; RequestError when it is not there or not TOML."""
    file = find(name_or_path)
    try:
        text = file.read_text(encoding="utf-8")
        content = tomllib.loads(text)
    except OSError as error:
        raise RequestError(f"cannot read the plan {file}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise RequestError(f"the plan {file} is not UTF-8 text: {error}") from error
    except tomllib.TOMLDecodeError as error:
        place = re.search(r"line (\d+)", str(error))
        line = place.group(1) if place else str(text.count("\n") + 1)
        raise RequestError(f"{file}:{line}: not valid TOML: {error}") from error
    return _Reader(file, text, content).plan()


class _Reader:
    """Turns the TOML's values into checked blocks, collecting problems."""

    def __init__(self, file: Path, text: str, content: dict[str, Any]) -> None:
        self.file, self.text, self.content = file, text, content
        self.problems = Problems(file, Locator(text))

    def plan(self) -> Plan:
        content, problems = self.content, self.problems
        for key in content:
            if key not in TOP_KEYS:
                problems.add((key,), f"unknown key {key!r}; {known(key, TOP_KEYS)}")
        heading: dict[str, Any] = {key: value for key, value in content.items() if key in Heading.model_fields}
        self.checked(Heading, heading, ())
        defaults = self.table("defaults")
        self.checked(Block, defaults, ("defaults",))
        return Plan(
            name=str(content.get("name", self.file.stem)),
            title=str(content.get("title", "")),
            file=self.file,
            text=self.text,
            sampling=self.sampling(),
            training=self.training(),
            blocks=tuple(self.blocks(defaults)),
            problems=problems,
        )

    def table(self, key: str) -> dict[str, Any]:
        value = self.content.get(key, {})
        if isinstance(value, dict):
            return value
        self.problems.add((key,), f"{key} is a table: write [{key}], not {key} = {value!r}")
        return {}

    def sampling(self) -> Sampling:
        block = self.checked(SamplingBlock, self.table("sampling"), ("sampling",))[0]
        assert isinstance(block, SamplingBlock)
        below = block.below_design()
        if below and not block.quick:
            asked = ", ".join(below)
            self.problems.add(
                ("sampling",),
                f"[sampling] asks for less than a full measurement: {asked}; add quick = true, which marks the rows",
            )
        return Sampling(**block.model_dump())

    def training(self) -> Training:
        block = self.checked(TrainingBlock, self.table("training"), ("training",))[0]
        assert isinstance(block, TrainingBlock)
        return Training(**block.model_dump())

    def blocks(self, defaults: dict[str, Any]) -> list[Written]:
        raw = self.content.get("cases", [])
        if isinstance(raw, dict):
            self.problems.add(("cases",), "[cases] is one table, the cases are a list of them; write [[cases]]")
            return []
        if not isinstance(raw, list) or not raw or not all(isinstance(block, dict) for block in raw):
            self.problems.add(("cases",), "the plan has no [[cases]] block; write at least one")
            return []
        return [self.written(index, block, defaults) for index, block in enumerate(raw)]

    def written(self, index: int, raw: dict[str, Any], defaults: dict[str, Any]) -> Written:
        own, usual = raw.get("knobs", {}), defaults.get("knobs", {})
        self.checked(Block, raw, ("cases", index))
        merged = {**defaults, **raw}
        if isinstance(own, dict) and isinstance(usual, dict):
            merged["knobs"] = {**usual, **own}
        block, broken = self.checked(Block, merged, None)
        assert isinstance(block, Block)
        return Written(block, index, frozenset(raw), frozenset(own if isinstance(own, dict) else ()), broken)

    def checked(
        self, model: type[BaseModel], values: dict[str, Any], base: KeyPath | None
    ) -> tuple[BaseModel, frozenset[str]]:
        """The model, less the keys it refused (also returned); their problems are told when `base` is given."""
        try:
            return model.model_validate(values), frozenset()
        except ValidationError as error:
            refused = error.errors(include_url=False)
        if base is not None:
            for problem in refused:
                self.problems.add((*base, *problem["loc"]), _told(problem, model))
        broken = frozenset(str(problem["loc"][0]) for problem in refused)
        kept = {key: value for key, value in values.items() if key not in broken}
        return (model.model_construct(**kept) if model is Heading else model.model_validate(kept)), broken


def _told(problem: Any, model: type[BaseModel]) -> str:
    key, value, message = str(problem["loc"][0]), problem["input"], str(problem["msg"])
    if problem["type"] == "extra_forbidden":
        return f"unknown key {key!r}; {known(key, model.model_fields)}"
    if problem["type"] == "missing":
        return f"the key {key!r} is missing"
    if problem["type"] == "literal_error":
        allowed = str(problem["ctx"]["expected"]).replace("'", "").replace(" or ", ", ").split(", ")
        return f"{key} = {value!r}: {known(value, allowed)}"
    if problem["type"] == "string_pattern_mismatch":
        return f"{key} = {value!r}: should be letters, digits, '.', '_' and '-', and begin with a letter or a digit"
    if key == "ranks" and problem["type"] == "less_than_equal":
        most = problem["ctx"]["le"]
        return f"ranks = {value!r}: more than {most} ranks on a node is a slip; ranks are counted per node, see nodes"
    words = message.removeprefix("Input ").removeprefix("List ")
    return f"{key} = {value!r}: {words}"
