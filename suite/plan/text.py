"""Cases written as a plan, which resolves to the same ids, and values as TOML."""

import json
import re
import tomllib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import date, time
from typing import Any

from stagebench.suite.contracts.case import Case
from stagebench.suite.plan.model import MOST_CASES, SWEPT
from stagebench.suite.worker.pass_kinds import TRAIN

Table = dict[str, Any]  # of a TOML text
USUAL = Case("", "", "")
ALWAYS = ("adapter", "strategy", "workload", "data", "batch", "tuning", "lr", "launcher")  # written even if usual
CALLED = {"ranks": "ranks_per_node", "data_mode": "mode"}  # keys of a plan by the names of a case's fields
BARE = re.compile(r"[A-Za-z0-9_-]+")
DEEPEST = 16  # levels of a plan's tables and lists; a plan needs 6
TOO_DEEP = "its lists or tables are nested too deeply; write a plan's values as lists of words and numbers"
MOST_BITS = 4096  # of a whole number; Python prints no more than 4,300 digits
TOO_LONG = "it has a whole number of more than a thousand digits; write a smaller one"


@dataclass(frozen=True)
class Block:
    """A case, and a line about it."""

    case: Case
    comment: str


def plan_text(name: str, title: str, about: str, blocks: list[Block], own_networks: Collection[str] = ()) -> str:
    """Write a plan file. [sampling] is the first case's, [training] that of the first case that learns.

    `own_networks` are named by the files that a run folder keeps: the plan belongs next to run.json.
    """
    lines = [
        *(f"# {line}" for line in about.splitlines()),
        f"name = {value_text(name)}",
        f"title = {value_text(title)}",
        *([f"most_cases = {len(blocks)}"] if len(blocks) > MOST_CASES else []),
        "",
        "[sampling]",
    ]
    lines += rows(blocks[0].case.sampling._asdict())
    learning = next((block.case.training for block in blocks if TRAIN in block.case.passes), None)
    if learning is not None:
        lines += ["", "[training]", *rows(learning._asdict())]
    for block in blocks:
        comment = [f"# {line}" for line in block.comment.splitlines()]
        lines += ["", *comment, "[[cases]]", *_case(block.case, own_networks)]
    return "\n".join(lines) + "\n"


def rows(values: Mapping[str, Any]) -> list[str]:
    """Write the lines of a table."""
    return [f"{key_text(key)} = {value_text(value)}" for key, value in values.items()]


def table_text(content: Mapping[str, Any]) -> str:
    """Write a plan's values as TOML: its words and numbers, then each table; ValueError for other values."""
    headed: list[str] = []
    plain = {}
    for key, value in content.items():
        if isinstance(value, Mapping):
            headed += ["", f"[{key_text(key)}]", *rows(value)]
        elif isinstance(value, list | tuple) and value and all(isinstance(each, Mapping) for each in value):
            headed += [line for each in value for line in ("", f"[[{key_text(key)}]]", *rows(each))]
        else:
            plain[key] = value
    return "\n".join([*rows(plain), *headed, ""])


def _case(case: Case, own_networks: Collection[str]) -> Iterable[str]:
    given = {key: setting(case, key) for key in DEFAULTS}
    if case.scaling == "strong":
        given["batch"] = case.global_batch
    if case.workload in own_networks:
        given["workload"] = f"networks/{case.workload}.json"
    yield from rows({key: value for key, value in given.items() if key in ALWAYS or value != DEFAULTS[key]})
    yield f"passes = {value_text(case.passes)}"
    for key, each in case.knobs.items():
        # A list of values is swept, so a value that is a list is written in another list.
        yield f"knobs.{key_text(key)} = {value_text([each] if isinstance(each, list | tuple) else each)}"


def setting(case: Case, key: str) -> Any:
    """Return a case's value for a key of a [[cases]] block."""
    name, parts = CALLED.get(key, key), (case, case.placement, case.input, case.schedule, case.serving)
    return next(getattr(part, name) for part in parts if hasattr(part, name))


DEFAULTS = {key: setting(USUAL, key) for key in (*ALWAYS, *SWEPT, "hosts")}


def values_of(text: str) -> Table:
    """Parse a TOML text; ValueError for any other text, or values that no plan can have: see the messages above."""
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        raise
    except (ValueError, RecursionError) as error:
        raise ValueError(TOO_DEEP if isinstance(error, RecursionError) else TOO_LONG) from None
    level: list[Any] = [content]
    for _ in range(DEEPEST):
        inner = [value for each in level for value in (each.values() if isinstance(each, dict) else each)]
        level = [value for value in inner if isinstance(value, dict | list)]
        if any(isinstance(value, int) and value.bit_length() > MOST_BITS for value in inner):
            raise ValueError(TOO_LONG)
        if dated := [value for value in inner if isinstance(value, date | time)]:
            raise ValueError(
                f"{dated[0].isoformat()} is a date or a time, of which a plan has none; write it in quotes"
            )
    if level:
        raise ValueError(TOO_DEEP)
    return content


def value_text(given: Any) -> str:
    """Write a string, number, truth value, list or table as TOML; ValueError for anything else."""
    if isinstance(given, int | float) and not isinstance(given, bool):
        return repr(given)
    if isinstance(given, str | bool):  # JSON's escapes are valid in TOML, which needs one more
        return json.dumps(given, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(given, list | tuple):
        return f"[{', '.join(value_text(each) for each in given)}]"
    if isinstance(given, dict):
        return f"{{ {', '.join(f'{key_text(key)} = {value_text(each)}' for key, each in given.items())} }}"
    raise ValueError(f"{given!r} cannot be written into a plan")


def key_text(name: str) -> str:
    """Write a key as TOML, quoted if necessary."""
    return name if BARE.fullmatch(name) else value_text(name)
