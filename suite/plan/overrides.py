"""Overrides: `--set KEY=VALUE` on the command line, kept in the run's plan.toml as a table of their own.

    [overrides]
    batch = [8]                 # a key of a [[cases]] block: of every block
    "knobs.overlap" = "none"    # of the blocks that name the knob; of every block where none does
    "sampling.steps" = 5        # a key of [sampling] or [training]

An override wins over a scale: the scale's own values for the key are dropped.
"""

import re
from collections.abc import Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

from stagebench.suite.data.compatibility import NAMES
from stagebench.suite.errors import RequestError
from stagebench.suite.files import expanded, stands
from stagebench.suite.plan.model import SECTIONS, Block
from stagebench.suite.plan.problems import KeyPath
from stagebench.suite.plan.text import Table, values_of
from stagebench.suite.text import known, shown

TABLE = "overrides"
OF_A_SCALE = {"batch": ("divide_batch", "multiply_batch"), "device": ("device",)}  # a scale's keys for a block's
KEYS = (
    "most_cases",
    *(key for key in Block.model_fields if key != "knobs"),
    "knobs.NAME",
    *(f"{section}.{key}" for section, model in SECTIONS.items() for key in model.model_fields),
)


def overrides_from(options: Sequence[str]) -> Table:
    """Read `--set KEY=VALUE` options; RequestError for a malformed one or an unknown key."""
    overrides: Table = {}
    for option in options:
        key, _, value = (part.strip() for part in option.partition("="))
        if not key or not value:
            raise RequestError(f"--set {option!r} should read KEY=VALUE, such as batch=[8,16] or sampling.steps=5")
        overrides |= checked({key: value_of(value)})
    return overrides


def checked(asked: Mapping[str, Any]) -> Table:
    """Return overrides with absolute paths; RequestError for an unknown key."""
    for key, value in asked.items():
        if problem := unknown(key):
            raise RequestError(f"--set {key}={value}: {problem}")
    return {
        key: [from_here(key, each) for each in value] if isinstance(value, list | tuple) else from_here(key, value)
        for key, value in asked.items()
    }


def unknown(key: str) -> str | None:
    """Return the problem of an override's key; None for a key of a plan."""
    if key in KEYS or (key.startswith("knobs.") and len(key) > len("knobs.")):
        return None
    return f"a plan has no key {shown(key)}; {known(key, KEYS)}"


def value_of(text: str) -> Any:
    """Read a value as TOML, else as a word; `8,16` is a list of two."""
    try:
        return values_of(f"value = {text}")["value"]
    except ValueError:
        parts = [part.strip() for part in text.split(",")]
        return [value_of(part) for part in parts] if len(parts) > 1 else text


def is_path(workload: str) -> bool:
    """True if a workload's value is a network's file, not a name."""
    return workload.endswith((".py", ".json")) or "/" in workload


def from_here(key: str, value: Any) -> Any:
    """Make a path absolute, since on the command line it starts at the current folder; other values stay."""
    if not isinstance(value, str):
        return value
    data = key == "data" and value not in NAMES and ("/" in value or stands(Path(value)))
    return str(expanded(value).absolute()) if data or (key == "workload" and is_path(value)) else value


def apply(content: Table, overrides: Mapping[str, Any]) -> Table:
    """Return a plan's TOML values with the overrides applied; the reader refuses a non-table later."""
    content = deepcopy(content)
    blocks = _tables(content.get("cases"))
    scales = _tables(list(content["scale"].values())) if isinstance(content.get("scale"), dict) else []
    defaults = content.setdefault("defaults", {})
    for key, value in overrides.items():
        section, dot, name = key.partition(".")
        if key == "most_cases":
            content[key] = value
        elif section in SECTIONS and dot:
            _forget([scale.get(section) for scale in scales], name)
            for table in _tables([content.setdefault(section, {})]):
                table[name] = value
        elif section == "knobs" and dot:
            tables = _tables([defaults, *blocks])
            owners = [table for table in tables if isinstance(table.get("knobs"), dict) and name in table["knobs"]]
            for knobs in _tables([table.setdefault("knobs", {}) for table in owners or blocks]):
                knobs[name] = value
            keeps = _tables([scale.get("keep") for scale in scales])
            _forget([keep.get("knobs") for keep in keeps], name)
        else:
            for block in _tables([defaults, *blocks]):
                block[key] = value
            _forget([scale.get("keep") for scale in scales], key)
            _forget(scales, *OF_A_SCALE.get(key, ()))
    return content


def key_of(path: KeyPath) -> str:
    """Return the override's key for a key path: "knobs.overlap" for ("cases", 0, "knobs", "overlap")."""
    rest = path[2:] if path[:1] == ("cases",) else path[1:] if path[:1] == ("defaults",) else path
    if rest[:1] == ("knobs",) or (rest[:1] and rest[0] in SECTIONS):
        return ".".join(str(part) for part in rest[:2])
    return str(rest[0]) if rest else ""


def without_table(text: str) -> str:
    """Return a plan's text without its [overrides]."""
    return re.sub(rf"(?ms)^(# --set[^\n]*\n)?\[{TABLE}\][ \t]*(#[^\n]*)?\n.*?(?=^\[|\Z)", "", text).rstrip() + "\n"


def _tables(values: Any) -> list[Table]:
    return [value for value in values if isinstance(value, dict)] if isinstance(values, list) else []


def _forget(tables: list[Any], *keys: str) -> None:
    for table in _tables(tables):
        for key in keys:
            table.pop(key, None)
