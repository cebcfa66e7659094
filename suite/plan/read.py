"""Reading a plan: the file, its TOML, its shape. Problems wait until `resolve` can tell all of them."""

import re
import tomllib
from pathlib import Path
from typing import Any

from suite.contracts.case import Sampling, Training
from suite.errors import RequestError
from suite.plan.checked import checked
from suite.plan.locator import Locator
from suite.plan.model import Block, Heading, SamplingBlock, TrainingBlock
from suite.plan.problems import Problems
from suite.plan.ready import find
from suite.plan.scale import TABLES, Scale, ScaleBlock
from suite.plan.written import Plan, Written
from suite.suggest import known

TOP_KEYS = ("name", "title", "defaults", "sampling", "training", "scale", "cases")


def load(name_or_path: str | Path, scale: str | None = None) -> Plan:
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
    plan = _Reader(file, text, content).plan()
    return plan if scale is None else plan.scaled(scale)


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
        checked(self.problems, Heading, heading, ())
        defaults = self.table(("defaults",))
        checked(self.problems, Block, defaults, ("defaults",))
        blocks = tuple(self.blocks(defaults))
        return Plan(
            name=str(content.get("name", self.file.stem)),
            title=str(content.get("title", "")),
            file=self.file,
            text=self.text,
            sampling=self.sampling(("sampling",), {}),
            training=self.training(("training",), {}),
            blocks=blocks,
            problems=problems,
            scales={name: self.scale(name, blocks) for name in self.table(("scale",))},
        )

    def table(self, path: tuple[str, ...]) -> dict[str, Any]:
        """The table at a path; empty where there is none, or (a problem) something else."""
        value: Any = self.content
        for key in path:
            value = value.get(key, {}) if isinstance(value, dict) else {}
        if isinstance(value, dict):
            return value
        name = ".".join(path)
        self.problems.add(path, f"{name} is a table: write [{name}], not {path[-1]} = {value!r}")
        return {}

    def sampling(self, path: tuple[str, ...], usual: dict[str, Any]) -> Sampling:
        """A sampling table; `usual` has the keys that it leaves out."""
        own = self.table(path)
        checked(self.problems, SamplingBlock, own, path)
        block = checked(self.problems, SamplingBlock, {**usual, **own}, None)[0]
        assert isinstance(block, SamplingBlock)
        below = block.below_design()
        if below and not block.quick:
            asked = ", ".join(below)
            self.problems.add(
                path,
                f"[{'.'.join(path)}] asks for less than a full measurement: {asked}; add quick = true, which marks "
                "the rows",
            )
        return Sampling(**block.model_dump())

    def training(self, path: tuple[str, ...], usual: dict[str, Any]) -> Training:
        """A training table; `usual` as above."""
        own = self.table(path)
        checked(self.problems, TrainingBlock, own, path)
        block = checked(self.problems, TrainingBlock, {**usual, **own}, None)[0]
        assert isinstance(block, TrainingBlock)
        return Training(**block.model_dump())

    def scale(self, name: str, blocks: tuple[Written, ...]) -> Scale:
        """A profile, with its own problems and those of values that no block has."""
        path = ("scale", name)
        own = {key: value for key, value in self.table(path).items() if key not in TABLES}
        head = checked(self.problems, ScaleBlock, own, path)[0]
        assert isinstance(head, ScaleBlock)
        keep = self.table((*path, "keep"))
        kept, broken = checked(self.problems, Block, keep, (*path, "keep"))
        if "hosts" in keep:
            self.problems.add((*path, "keep", "hosts"), "hosts are not swept; choose them by nodes, or with --hosts")
        broken |= {"hosts", "knobs"}.union(*(block.broken for block in blocks))
        scale = Scale(
            name,
            head.divide_batch,
            {key: getattr(kept, key) for key in keep if key not in broken},
            dict(getattr(kept, "knobs", {})),
            self.sampling((*path, "sampling"), self.table(("sampling",))),
            self.training((*path, "training"), self.table(("training",))),
        )
        for place, told in scale.slips([block.block for block in blocks]):
            self.problems.add((*path, *place), told)
        return scale

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
        checked(self.problems, Block, raw, ("cases", index))
        merged = {**defaults, **raw}
        if isinstance(own, dict) and isinstance(usual, dict):
            merged["knobs"] = {**usual, **own}
        block, broken = checked(self.problems, Block, merged, None)
        assert isinstance(block, Block)
        return Written(block, index, frozenset(raw), frozenset(own if isinstance(own, dict) else ()), broken)
