"""Networks of the user: `workload = "./mine.py"` or `"graph.json"`, in a plan or on the command line.

A Python file uses the builder and defines `network()`, which returns it, or a variable `graph`:

    from stagebench.workloads.build import Builder

    def network():
        b = Builder("mine", (3, 32, 32), 10)
        x = b.relu("relu1", b.conv("conv1", "input", 16, 3, pad=1))
        b.head(b.dense("fc", b.flatten("flat", x), 10))
        return b

It may define the other fields of `stagebench.workloads.catalogue.Workload`: optimiser, dataset, proof_batch, proof_lr,
source, preprocessing. A JSON file is what `stagebench.workloads.graph.Graph.to_dict` writes.
"""

import json
import os
import re
import runpy
import traceback
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from stagebench.suite import plugins
from stagebench.suite.contracts.case import Case
from stagebench.suite.contracts.hooks import hookimpl
from stagebench.suite.errors import RequestError, StoreError
from stagebench.suite.files import expanded, file_name, stands
from stagebench.suite.plan.overrides import is_path
from stagebench.suite.plan.read import LARGEST, Plan
from stagebench.suite.plugin_errors import check_declared
from stagebench.suite.text import cut, shown
from stagebench.workloads.build import Builder
from stagebench.workloads.catalogue import Optimiser, Workload
from stagebench.workloads.graph import Graph

OF_A_NETWORK = "remove it: all but roofs and predictions do without it"
LONGEST = 500  # characters of an error in a file
# In a clone the folder of this name can be imported, and its classes are others.
FORMER = re.compile(r"^\s*(?:from|import) +(workloads\.(?:build|catalogue|graph))\b", re.MULTILINE)
OPTIONAL = ("optimiser", "dataset", "proof_batch", "proof_lr", "source", "preprocessing")


def registered(plan: Plan) -> Plan:
    """Register the networks that a plan names by their files; return the plan with their names instead.

    A file that cannot be read is added to the plan's problems, which `resolve` raises.
    """
    names: dict[str, str] = {}
    blocks = []
    for written in plan.blocks:
        for index, value in enumerate(written.block.workload):
            if not is_path(value) or value in names:
                continue
            try:
                names[value] = register(plan.file.parent / expanded(value)).name
            except RequestError as error:
                plan.problems.add(written.path("workload", index), str(error))
                names[value] = ""
        known = [names.get(value, value) for value in written.block.workload]
        broken = written.broken | ({"workload"} if "" in known else set())
        block = written.block.model_copy(update={"workload": [name for name in known if name]})
        blocks.append(replace(written, block=block, broken=frozenset(broken)))
    scale = plan.scale
    if scale is not None and "workload" in scale.keep:
        kept = [names.get(value, value) for value in scale.keep["workload"]]
        scale = replace(scale, keep={**scale.keep, "workload": kept})
    own = tuple(dict.fromkeys(filter(None, names.values())))
    _check_contexts(plan, own)
    return replace(plan, blocks=tuple(blocks), scale=scale, networks=own)


def _check_contexts(plan: Plan, own: Sequence[str]) -> None:
    """Add a problem for a network of a file with a context: the run folder keeps it as the file has it."""
    for written in plan.blocks:
        for index, value in enumerate(written.block.workload):
            whole, at, _ = value.partition("@")
            if at and whole in own:
                problem = f"{value} is the network of a file, which says its own context; write {whole}"
                plan.problems.add(written.path("workload", index), problem)


def register(file: Path) -> Workload:
    """Register the network of a file like a plugin's; RequestError names the place of an error in it."""
    workload = read(file)
    known = plugins.workloads().get(workload.name)
    if known is None:
        plugins.manager().register(_Own(workload), name=f"the file {file.absolute()}")
    elif known.graph().digest != workload.graph().digest or known.source != workload.source:
        raise RequestError(f"{file}: there is a workload {workload.name!r} already; give this network another name")
    return workload


def read(file: Path) -> Workload:
    """Read the network of a file as a workload; RequestError names the place of an error in it."""
    if not stands(file) or not file.is_file():
        raise RequestError(
            f"there is no file {file}; name a Python file that uses stagebench.workloads.build, or a JSON graph"
        )
    fields = _from_json(file) if file.suffix == ".json" else _from_python(file)
    graph = fields.pop("graph")
    if not isinstance(graph.name, str) or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", graph.name):
        raise RequestError(f"{file}: the network's name is {graph.name!r}; take letters, digits, '.', '_' and '-'")
    if not graph.layers or not graph.heads:
        missing = "head" if graph.layers else "layer"
        raise RequestError(f"{file}: the network {shown(graph.name)} has no {missing}; add one")
    if len(graph.input_shape) == 2:
        raise RequestError(
            f"{file}: the network {shown(graph.name)} takes {graph.input_shape!r}; begin with images (channels, "
            "height, width), and cut them into tokens by the layer kind `tokens`"
        )
    photographs = len(graph.input_shape) == 3 and graph.input_shape[0] == 3
    usual = {
        "optimiser": Optimiser(0.01, 64, 0.9, 0.0),
        "dataset": "python-topics" if graph.vocabulary else "imagenet-like" if photographs else "digits",
        "proof_batch": 4,
        "proof_lr": 0.001,
        "source": str(file.absolute()),
    }
    workload = Workload(graph.name, lambda: graph, **{**usual, **fields})
    try:
        check_declared(workload, Workload)
    except TypeError as error:
        raise RequestError(f"{file}: {error}; correct it") from error
    return workload


def network_of(run: Path, case: Case) -> Graph | None:
    """Return the network of a case of a run folder; None if it is missing or not the one that was measured.

    StoreError names a broken file of the folder.
    """
    file = run / "networks" / f"{file_name(case.workload)}.json"
    workload, kept = None, os.path.lexists(file)
    try:
        workload = read(file) if kept else plugins.workloads().get(case.workload)
    except RequestError as error:  # its remedies are for the author of a network
        if kept:
            raise StoreError(f"{error}; {OF_A_NETWORK}") from error
    graph = workload.graph() if workload else None
    return graph if graph and graph.digest == case.graph_digest else None


class _Own:
    def __init__(self, workload: Workload) -> None:
        self._workload = workload

    @hookimpl
    def stagebench_workloads(self) -> list[Workload]:
        return [self._workload]


def _from_python(file: Path) -> dict[str, Any]:
    try:
        text = file.read_text(errors="replace")
        former = FORMER.search(text)
        content = {} if former else runpy.run_path(str(file), run_name=file.stem)
        made = content["network"]() if callable(content.get("network")) else content.get("graph")
    except SyntaxError as error:
        raise RequestError(f"{error.filename}:{error.lineno}: {error.msg}; correct it") from error
    except (Exception, SystemExit) as error:
        own = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
        line = f":{own[-1].lineno}" if own else ""
        raise RequestError(f"{file}{line}: {type(error).__name__}: {cut(str(error), LONGEST)}; correct it") from error
    if former:
        at = text.count("\n", 0, former.start(1)) + 1
        raise RequestError(f"{file}:{at}: there is no {former[1]} any more; write stagebench.{former[1]}")
    graph = made.graph if isinstance(made, Builder) else made
    if not isinstance(graph, Graph):
        what = "no function network() and no variable graph" if graph is None else f"a {type(graph).__name__}"
        remedy = f"return the Builder of {Builder.__module__} or its graph from a function network()"
        raise RequestError(f"{file} defines {what}; {remedy}")
    return {"graph": graph, **{name: content[name] for name in OPTIONAL if name in content}}


def _from_json(file: Path) -> dict[str, Any]:
    try:
        if file.stat().st_size > LARGEST:
            raise ValueError(f"it has {file.stat().st_size} bytes, {LARGEST} at most")
        return {"graph": Graph.from_dict(json.loads(file.read_text(encoding="utf-8")))}
    except json.JSONDecodeError as error:
        why = f"not valid JSON: {error.msg}"
        raise RequestError(f"{file}:{error.lineno}: {why}; it should be what Graph.to_dict() writes") from error
    except (OSError, ValueError, RecursionError) as error:
        raise RequestError(f"{file}: {cut(str(error), LONGEST)}; it should be what Graph.to_dict() writes") from error
