"""The rooms of the house: no circle of files or folders, no plugin named by the core, no two files that look alike."""

import ast
from collections import Counter, defaultdict
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from suite.plugins import adapters, launchers

COMM = "comm"  # a command's name, and so its file's in every room


@pytest.fixture(scope="module")
def arrows(sources, imports_of) -> dict[str, set[str]]:
    """By module: the modules of ours that it imports, wherever in the file."""
    modules = {".".join(path.with_suffix("").parts).removesuffix(".__init__"): text for path, text in sources.items()}
    return {
        module: {name if name in modules else name.rpartition(".")[0] for name in imports_of(text)} & set(modules)
        for module, text in modules.items()
    }


def circle(graph: dict[str, set[str]]) -> list[str]:
    """A circle of the graph, or nothing."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_files_import_each_other_in_no_circle(arrows):
    assert not circle({module: found - {module} for module, found in arrows.items()})


def test_folders_of_every_depth_depend_on_each_other_in_no_circle(arrows):
    """Also a folder and one inside it: what both need lies in one of them."""
    packages = {module.rpartition(".")[0] for module in arrows}

    def folder(module: str) -> str:
        """`workloads.networks` of workloads.networks.alexnet."""
        return module if module in packages else module.rpartition(".")[0]

    graph = defaultdict(set)
    for module, found in arrows.items():
        # A top-level package itself (suite's version) is everybody's.
        graph[folder(module)] |= {folder(each) for each in found if "." in each} - {folder(module)}
    assert not circle(graph)


def test_a_circle_would_be_seen():
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"a"}})


def test_the_core_names_no_plugin(sources):
    """Nor the variables that an adapter declares as its framework's."""
    names = {*adapters(), *launchers()}
    own = tuple(name for each in adapters().values() for name in (*each.arithmetic_variables, *each.exchange_variables))
    named = [
        f"{path}: {node.value!r}"
        for path, text in sources.items()
        if path.parts[0] == "suite"
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Constant)
        and (node.value in names or (isinstance(node.value, str) and node.value.startswith(own)))
    ]
    assert not named


def test_no_two_files_of_a_folder_have_one_stem(root, sources):
    """As launch and launcher, or read and reading: who looks for one opens the other."""
    by_folder: dict[Path, set[str]] = defaultdict(set)
    for path in (*sources, *(root / "reports" / "static").glob("*.js"), *(root / "reports").rglob("*.jinja")):
        by_folder[path.parent].add(path.name.partition(".")[0])
    alike = {
        (a, b)
        for stems in by_folder.values()
        for a in stems
        for b in stems
        if b != a and a != COMM and b.startswith(a) and b[len(a)] != "_"
    }
    assert not alike


def test_a_name_is_not_worn_out(sources):
    """`worker.py` and the like name a role that every adapter has; other names say what is inside."""
    stems = Counter(path.stem for path in sources if path.parts[0] in ("suite", "cluster", "reports"))
    worn = {stem for stem, count in stems.items() if count > 3 and stem != "__init__"}
    assert worn <= {COMM}
