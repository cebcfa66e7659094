"""A plan from the command line's options alone: `run --adapter pytorch,mxnet --workload resnet50 --ranks 1,2`.

An option's value is written as in a plan, lists with commas. Without a strategy each adapter takes its first one that
fits the placement: without an exchange on one device, synchronous on several. Without a precision, an adapter that
lacks float32 takes its first one.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

from stagebench.suite.contracts.adapter import Adapter, Adapters, Strategy
from stagebench.suite.contracts.case import FLOAT32
from stagebench.suite.errors import RequestError
from stagebench.suite.plan.model import LONGEST_TITLE, SECTIONS, Block
from stagebench.suite.plan.overrides import from_here, value_of
from stagebench.suite.plan.problems import KeyPath
from stagebench.suite.plan.read import Plan, parse
from stagebench.suite.plan.text import key_text, rows, table_text, value_text
from stagebench.suite.text import cut
from stagebench.suite.worker.case_parts import Sampling

PLACED = ("nodes", "ranks", "devices")  # keys that decide the strategy, with the adapter
Values = Mapping[str, list[Any]]  # of keys of a plan
SAMPLING = ("processes", "steps", "seconds")


def plan_of(
    asked: Mapping[str, str], knobs: Mapping[str, Any], adapters: Adapters, overrides: Mapping[str, Any] | None = None
) -> Plan:
    """Return the plan that options describe: `asked` has their text by key, of a [[cases]] block or of SAMPLING.

    The plan's problems name the options. Relative paths start at the current folder.
    """
    values = {}
    for key, text in asked.items():
        parts = [part.strip() for part in text.split(",")]
        values[key] = [value_of(part) if part else part for part in parts]
    return from_keys(values, knobs, adapters, overrides)


def from_keys(
    keys: Mapping[str, Any], knobs: Mapping[str, Any], adapters: Adapters, overrides: Mapping[str, Any] | None = None
) -> Plan:
    """Return the plan of all combinations of the keys' values, each a value or a list, as `plan_of` does."""
    lists = {key: value if isinstance(value, list | tuple) else [value] for key, value in keys.items()}
    values = {key: [from_here(key, plain(value)) for value in several] for key, several in lists.items()}
    with writable():
        text = _text(values, knobs, adapters)
    return parse(text, Path.cwd() / "options", overrides, _option)


def from_content(content: Mapping[str, Any], overrides: Mapping[str, Any] | None = None) -> Plan:
    """Return the plan of a mapping with a plan file's keys; relative paths start at the current folder."""
    with writable():
        text = table_text(content)
    return parse(text, Path.cwd() / "the plan", overrides, _key)


def plain(value: Any) -> Any:
    return os.fspath(value) if isinstance(value, os.PathLike) else value


@contextmanager
def writable() -> Iterator[None]:
    """Raise RequestError for a value that no plan can hold."""
    try:
        yield
    except ValueError as error:
        raise RequestError(f"{error}; give words, numbers, truth values, lists or tables") from None


def _text(values: Values, knobs: Mapping[str, Any], adapters: Adapters) -> str:
    named = [*values.get("adapter", []), *(Path(str(each)).stem for each in values.get("workload", []))]
    name = re.sub(r"[^A-Za-z0-9._-]+", "", "-".join(map(str, named)))[:60].strip("-._") or "options"
    called = [", ".join(map(str, values.get(key, []))) for key in ("adapter", "workload")]
    called += [f"{key} {', '.join(map(str, values[key]))}" for key in ("batch", *PLACED) if key in values]
    title = cut("; ".join(filter(None, called)), LONGEST_TITLE)
    lines = [f"name = {value_text(name)}", f"title = {value_text(title)}"]
    defaults = {key: each for key, each in values.items() if key not in ("adapter", "strategy", *PLACED, *SAMPLING)}
    lines += ["", "[defaults]", *_rows(defaults)]
    sampling = {key: values[key] for key in SAMPLING if key in values}
    if sampling:
        usual = Sampling()._asdict()
        numbers = {key: each[0] for key, each in sampling.items() if isinstance(each[0], int | float)}
        short = any(number < usual[key] for key, number in numbers.items())
        lines += ["", "[sampling]", *_rows({"quick": [True] if short else [], **sampling})]
    blocks = list(_blocks(values, adapters))
    taken = [_taking(name, blocks, adapters) for name in knobs]
    for index, block in enumerate(blocks):
        lines += ["", "[[cases]]", *_rows(block)]
        lines += [
            f"knobs.{key_text(name)} = {value_text(each)}"
            for (name, each), takers in zip(knobs.items(), taken, strict=True)
            if index in takers
        ]
    return "\n".join(lines) + "\n"


def _taking(knob: str, blocks: Sequence[Values], adapters: Adapters) -> set[int]:
    """Return the blocks that a knob changes; all blocks if it changes none: resolving refuses it."""
    takers = set()
    for index, block in enumerate(blocks):
        offered = [adapters[name].capabilities.knobs for name in block["adapter"] if name in adapters]
        owners = [known[knob].strategies for known in offered if knob in known]
        if any(not strategies or set(strategies) & set(block["strategy"]) for strategies in owners):
            takers.add(index)
    return takers or set(range(len(blocks)))


def _blocks(values: Values, adapters: Adapters) -> Iterator[dict[str, list[Any]]]:
    """Yield blocks that sweep the placements; adapters of one strategy and precision share a block."""
    for placed, several in _placements(values):
        groups: dict[tuple[str, str], list[Any]] = {} if values.get("adapter") else {("", ""): []}
        for name in values.get("adapter", []):
            adapter = adapters.get(name)
            strategy = _strategy(adapter, *several) if several else ""
            groups.setdefault((strategy, _precision(values, adapter)), []).append(name)
        for (strategy, precision), names in groups.items():
            chosen = {"strategy": values.get("strategy", [strategy]), "precision": [precision]}
            yield {"adapter": names, **{key: each for key, each in chosen.items() if each != [""]}, **placed}


def _placements(values: Values) -> Iterator[tuple[Values, tuple[bool, bool] | None]]:
    """Yield (keys of the placement, whether there are several ranks and devices), one device first.

    All placements of given strategies are yielded together, with None.
    """
    if "strategy" in values:
        yield {key: values[key] for key in PLACED if key in values}, None
        return
    all_nodes, all_ranks, all_devices = (values.get(key, [1]) for key in PLACED)
    for nodes, ranks, devices in product(all_nodes, (False, True), (False, True)):
        placed = {
            "nodes": [nodes],
            "ranks": [count for count in all_ranks if (nodes != 1 or count != 1) == ranks],
            "devices": [count for count in all_devices if (count != 1) == devices],
        }
        if all(placed.values()):
            yield {key: counts for key, counts in placed.items() if counts != [1]}, (ranks, devices)


def _strategy(adapter: Adapter | None, several_ranks: bool, several_devices: bool) -> str:
    """Return the adapter's first strategy for such a placement, or the nearest one, which resolving refuses.

    "" for an unknown adapter, which resolving refuses too.
    """
    if adapter is None:
        return ""

    def fits(strategy: Strategy) -> tuple[bool, bool, bool]:
        return (
            strategy.distributed == several_ranks,
            strategy.several_devices or not several_devices,
            strategy.synchronous or not (several_ranks or several_devices),
        )

    return max(adapter.capabilities.strategies, key=fits).name


def _precision(values: Values, adapter: Adapter | None) -> str:
    """Return the precision that an adapter without float32 takes if the options name none; else ""."""
    devices = values.get("device", ["cpu"])
    if adapter is None or "precision" in values or len(devices) != 1:
        return ""
    usual = adapter.capabilities.usual_precision(str(devices[0]))
    return "" if usual == FLOAT32 else usual


def _rows(values: Values) -> list[str]:
    """Write a list of one value as that value; passes always as a list."""
    single = {key: each[0] if len(each) == 1 and key != "passes" else each for key, each in values.items() if each}
    return rows(single)


def _key(path: KeyPath) -> str:
    """Return the key of a mapping's value, such as cases[0].batch."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).lstrip(".") or "the plan"


def _option(path: KeyPath) -> str:
    """Return the option that a key path of such a plan comes from."""
    keys = [str(part) for part in path if not isinstance(part, int)]
    if keys[1:2] == ["knobs"] and len(keys) > 2:
        return f"--knob {keys[2]}"
    known = [key for key in keys if key in Block.model_fields or key in SECTIONS["sampling"].model_fields]
    return f"--{known[-1].replace('_', '-')}" if known else "the options"
