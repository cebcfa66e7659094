"""A plan read from its file or text. Problems wait until `resolve` can report all of them."""

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from stagebench.suite.errors import RequestError
from stagebench.suite.files import stands
from stagebench.suite.plan import overrides
from stagebench.suite.plan.model import MOST_CASES, SECTIONS, TABLES, Block, Heading, Scale, ScaleBlock, Written
from stagebench.suite.plan.problems import KeyPath, Lines, Problems
from stagebench.suite.plan.text import Table, rows, value_text, values_of
from stagebench.suite.text import known, shown
from stagebench.suite.worker.case_parts import Sampling, Training

LARGEST = 1 << 22  # bytes of a plan or a network's file: any content of this size is read in seconds
BYTES = "should be a number of bytes, or one with a unit, such as '8 GiB'"
# Problems for which pydantic has no words of the form "should be ...".
WORDED = {
    "byte_size": BYTES,
    "byte_size_unit": BYTES,
    "string_unicode": "should be UTF-8 text; rename the file or folder",
}
# Keys of [sampling] of which a full measurement has no smaller values.
FULL = ("warmup_steps", "steps", "seconds", "processes", "breakdowns")
M = TypeVar("M", bound=BaseModel)
TOP_KEYS = ("name", "title", "most_cases", "defaults", "sampling", "training", "scale", "cases", overrides.TABLE)


@dataclass(frozen=True)
class Plan:
    """A plan as read; `stagebench.suite.plan.resolve` makes cases of it, or reports all its problems."""

    name: str
    title: str
    file: Path  # relative paths in the plan start at its folder
    text: str  # with the overrides
    sampling: Sampling
    training: Training
    blocks: tuple[Written, ...]
    problems: Problems
    scales: dict[str, Scale]
    most_cases: int = MOST_CASES  # beyond it the plan is refused
    scale: Scale | None = None  # the applied one
    profile: str | None = None  # its name
    networks: tuple[str, ...] = ()  # names of the networks from files; see stagebench.suite.plan.networks

    def scaled(self, name: str) -> "Plan":
        """Return the plan under one of its scales; RequestError for an unknown name."""
        if name not in self.scales:
            raise RequestError(f"the plan {self.name!r} has no scale {name!r}; {known(name, self.scales)}")
        scale = self.scales[name]
        return replace(self, scale=scale, profile=name, sampling=scale.sampling, training=scale.training)


def ready_made() -> dict[str, Path]:
    """Return the plans that come with stagebench, by name."""
    folder = Path(str(resources.files("stagebench.suite"))) / "plans"
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def load(name_or_path: str | Path, scale: str | None = None, asked: Mapping[str, Any] | None = None) -> Plan:
    """Read a ready-made plan by name, or a file; `asked` are overrides (`overrides_from`).

    RequestError if it is missing or not TOML.
    """
    file = ready_made().get(str(name_or_path), Path(name_or_path))
    if not stands(file) or not file.is_file():
        raise RequestError(
            f"there is no plan {shown(str(name_or_path))}: neither a file nor a ready-made plan; "
            f"{known(name_or_path, ready_made())}"
        )
    try:
        if file.stat().st_size > LARGEST:
            raise RequestError(f"the plan {file} has {file.stat().st_size} bytes, {LARGEST} at most; name a plan")
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        why = error.strerror or error
        raise RequestError(f"cannot read the plan {file}: {why}; name a file that can be read") from error
    except UnicodeDecodeError as error:
        raise RequestError(f"the plan {file} is not UTF-8 text: {error}; save it as UTF-8") from error
    plan = parse(text, file, asked)
    return plan if scale is None else plan.scaled(scale)


def parse(
    text: str,
    file: Path,
    asked: Mapping[str, Any] | None = None,
    option: Callable[[KeyPath], str | None] = lambda path: None,
) -> Plan:
    """Parse a plan's text; `option` returns the command line's option that a key path comes from, if any."""
    content = _toml(text, file)
    before = content.get(overrides.TABLE, {})
    if asked:
        kept = {**(before if isinstance(before, dict) else {}), **asked}
        heading = f"{overrides.without_table(text)}\n# --set on the command line\n[{overrides.TABLE}]"
        text = "\n".join([heading, *rows(kept), ""])
        content = _toml(text, file)
    _refuse_many(content, file, asked or {})
    lines = Lines(text)

    def place(path: KeyPath) -> str | None:
        """Return the place of an overridden value: the option, or the line in the table [overrides]."""
        key = overrides.key_of(path)
        if key in (asked or {}):
            return f"--set {key}={value_text((asked or {})[key])}"
        if isinstance(before, dict) and key in before:
            return f"{file}:{lines.line((overrides.TABLE, key))}"
        return option(path)

    return _Reader(file, text, content, Problems(file, lines, place)).plan()


def differences(before: str, now: str) -> list[str]:
    """Return the keys in which two plans' texts differ, in words; empty if one is no TOML. Order does not count."""
    try:
        sides = [dict(_flat(values_of(text), "")) for text in (before, now)]
    except ValueError:
        return []
    words = []
    for key in dict.fromkeys([*sides[1], *sides[0]]):
        option = "--set " if key.startswith(f"{overrides.TABLE}.") else ""
        name = option + key.removeprefix(f"{overrides.TABLE}.")
        equals = "=" if option else " = "
        there, here = (f"{name}{equals}{value_text(side[key])}" if key in side else f"no {name}" for side in sides)
        if there != here:
            words.append(f"{there} there, {here} here")
    return words


def _flat(value: Any, key: str) -> Any:
    if isinstance(value, dict):
        for name, each in value.items():
            yield from _flat(each, f"{key}.{name}".lstrip("."))
    elif isinstance(value, list) and any(isinstance(each, dict) for each in value):
        for index, each in enumerate(value):
            yield from _flat(each, f"{key}[{index}]")
    else:
        yield key, value


def _refuse_many(content: Table, file: Path, asked: Mapping[str, Any]) -> None:
    """Raise RequestError for more blocks than the plan allows cases: a hundred thousand take minutes to read.

    A block whose batch depends on the network counts once for each network.
    """
    named = content.get(overrides.TABLE, {})
    key, blocks, defaults = "most_cases", content.get("cases", []), content.get("defaults", {})
    most = {**content, **(named if isinstance(named, dict) else {}), **asked}.get(key, MOST_CASES)
    if not isinstance(blocks, list) or not isinstance(most, int):
        return
    count = 0
    for block in blocks:
        both: Table = {}
        for table in (defaults, block):
            both |= table if isinstance(table, dict) else {}
        networks = both.get("workload")
        count += len(networks) if isinstance(both.get("batch"), dict) and isinstance(networks, list) else 1
    if count > max(most, MOST_CASES):
        raise RequestError(
            f"{file}: the plan has {count:,} [[cases]] blocks of a case or more each, and it allows "
            f"{max(most, MOST_CASES):,} cases; take some out, or allow more: {key} = {count} at the plan's "
            f"top, or --set {key}={count}"
        )


def _toml(text: str, file: Path) -> Table:
    try:
        return values_of(text)
    except tomllib.TOMLDecodeError as error:
        place = re.search(r"line (\d+)", str(error))
        line = place.group(1) if place else str(text.count("\n") + 1)
        raise RequestError(f"{file}:{line}: not valid TOML: {error}; fix this line") from error
    except ValueError as error:
        raise RequestError(f"{file}: {error}") from error


class _Reader:
    """Turns the TOML's values into checked blocks, collecting problems."""

    def __init__(self, file: Path, text: str, content: Table, problems: Problems) -> None:
        self.file, self.text, self.content, self.problems = file, text, content, problems
        self.overrides = dict(self.table((overrides.TABLE,)))
        for key in list(self.overrides):
            problem = overrides.unknown(key)
            if problem:
                self.problems.add((overrides.TABLE, key), problem)
                del self.overrides[key]
        self.content = overrides.apply(content, self.overrides)

    def plan(self) -> Plan:
        content, problems = self.content, self.problems
        for key in content:
            if key not in TOP_KEYS:
                problems.add((key,), f"unknown key {shown(key)}; {known(key, TOP_KEYS)}")
        own: Table = {key: value for key, value in content.items() if key in Heading.model_fields}
        heading, _ = self.checked(Heading, own, ())
        defaults = self.table(("defaults",))
        shared = {key: each for key, each in defaults.items() if key != "batch" or not isinstance(each, dict)}
        self.checked(Block, shared, ("defaults",))
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
            most_cases=getattr(heading, "most_cases", MOST_CASES),
        )

    def table(self, path: tuple[str, ...]) -> Table:
        """Return the table at a path; empty if there is none, or (a problem) another value."""
        value: Any = self.content
        for key in path:
            value = value.get(key, {}) if isinstance(value, dict) else {}
        if isinstance(value, dict):
            return value
        name = ".".join(path)
        self.problems.add(path, f"{name} is a table: write [{name}], not {path[-1]} = {shown(value)}")
        return {}

    def section(self, path: tuple[str, ...], usual: Table) -> Table:
        """Read a table of values, [sampling] or [training]; `usual` has the keys that it leaves out."""
        model, values = SECTIONS[path[-1]], self.table(path)
        self.checked(model, values, path)
        return self.checked(model, {**usual, **values}, None)[0].model_dump()

    def sampling(self, path: tuple[str, ...], usual: Table) -> Sampling:
        """Read a sampling table; a short measurement must be marked as quick."""
        asked, full = Sampling(**self.section(path, usual)), Sampling()._asdict()
        below = [
            f"{key} = {value:g} (full: {full[key]:g})"
            for key, value in asked._asdict().items()
            if key in FULL and value < full[key]
        ]
        if any(key.startswith("sampling.") for key in self.overrides):
            return asked._replace(quick=asked.quick or bool(below))
        if below and not asked.quick:
            self.problems.add(
                path,
                f"[{'.'.join(path)}] asks for less than a full measurement: {', '.join(below)}; add quick = true, "
                "which marks the rows",
            )
        return asked

    def training(self, path: tuple[str, ...], usual: Table) -> Training:
        return Training(**self.section(path, usual))

    def scale(self, name: str, blocks: tuple[Written, ...]) -> Scale:
        """Read a profile, and add its problems: its own, and values that no block has."""
        path = ("scale", name)
        own = {key: value for key, value in self.table(path).items() if key not in TABLES}
        head = self.checked(ScaleBlock, own, path)[0]
        keep = self.table((*path, "keep"))
        kept, broken = self.checked(Block, keep, (*path, "keep"))
        if "hosts" in keep:
            self.problems.add((*path, "keep", "hosts"), "hosts are not swept; choose them by nodes, or with --hosts")
        broken |= {"hosts", "knobs"}.union(*(block.broken for block in blocks))
        scale = Scale(
            name,
            head,
            {key: getattr(kept, key) for key in keep if key not in broken},
            dict(getattr(kept, "knobs", {})),
            self.sampling((*path, "sampling"), self.table(("sampling",))),
            self.training((*path, "training"), self.table(("training",))),
        )
        for place, problem in scale.errors([block.block for block in blocks]):
            self.problems.add((*path, *place), problem)
        return scale

    def blocks(self, defaults: Table) -> list[Written]:
        raw = self.content.get("cases", [])
        if isinstance(raw, dict):
            self.problems.add(("cases",), "[cases] is one table, the cases are a list of them; write [[cases]]")
            return []
        if not isinstance(raw, list) or not raw or not all(isinstance(block, dict) for block in raw):
            self.problems.add(("cases",), "the plan has no [[cases]] block; write at least one")
            return []
        return [
            self.written(index, each, defaults)
            for index, block in enumerate(raw)
            for each in self.by_workload(index, block, defaults)
        ]

    def by_workload(self, index: int, raw: Table, defaults: Table) -> list[Table]:
        """Split a block whose batch is a table, `{ alexnet = 1024, resnet50 = 32 }`, into one for each workload."""
        batches = raw.get("batch", defaults.get("batch"))
        if not isinstance(batches, dict):
            return [raw]
        workloads = raw.get("workload", defaults.get("workload", []))
        names = [name for name in (workloads if isinstance(workloads, list) else [workloads]) if isinstance(name, str)]
        for name in (name for name in names if name not in batches):
            problem = f"the table of batches has no {shown(name)}; {known(name, batches)}; write {name} = ... into it"
            self.problems.add(("cases", index), problem)
        blocks = [{**raw, "workload": name, "batch": batches[name]} for name in names if name in batches]
        return blocks or [{**raw, "batch": 1}]

    def written(self, index: int, raw: Table, defaults: Table) -> Written:
        own, usual = raw.get("knobs", {}), defaults.get("knobs", {})
        self.checked(Block, raw, ("cases", index))
        merged = {**defaults, **raw}
        if isinstance(own, dict) and isinstance(usual, dict):
            merged["knobs"] = {**usual, **own}
        block, broken = self.checked(Block, merged, None)
        return Written(block, index, frozenset(raw), frozenset(own if isinstance(own, dict) else ()), broken)

    def checked(self, model: type[M], values: Table, base: KeyPath | None) -> tuple[M, frozenset[str]]:
        """Return the model without the refused keys, and these keys; their problems are added if `base` is given."""
        try:
            return model.model_validate(values), frozenset()
        except ValidationError as error:
            refused = error.errors(include_url=False)
        if base is not None:
            for problem in refused:
                self.problems.add((*base, *problem["loc"]), _in_words(problem, model))
        broken = frozenset(str(problem["loc"][0]) for problem in refused)
        kept = {key: value for key, value in values.items() if key not in broken}
        return (model.model_construct(**kept) if model is Heading else model.model_validate(kept)), broken


def _in_words(problem: Any, model: type[BaseModel]) -> str:
    key, value, message = str(problem["loc"][0]), problem["input"], str(problem["msg"])
    if problem["type"] == "extra_forbidden":
        return f"unknown key {shown(key)}; {known(key, model.model_fields)}"
    if problem["type"] == "missing":
        return f"the key {key!r} is missing; write {key} = ..."
    if problem["type"] == "literal_error":
        allowed = str(problem["ctx"]["expected"]).replace("'", "").replace(" or ", ", ").split(", ")
        return f"{key} = {shown(value)}: {known(value, allowed)}"
    if problem["type"] == "string_pattern_mismatch":
        return (
            f"{key} = {shown(value)}: should be letters, digits, '.', '_' and '-', and begin with a letter or a digit"
        )
    if problem["type"] == "value_error":
        return f"{key}: {problem['ctx']['error']}"
    if key == "ranks" and problem["type"] == "less_than_equal":
        most = problem["ctx"]["le"]
        return f"ranks = {value!r}: a node takes {most} at most; ask for fewer, or for more nodes"
    words = WORDED.get(problem["type"], message).removeprefix("Input ").removeprefix("List ")
    return f"{key} = {shown(value)}: {words}"
