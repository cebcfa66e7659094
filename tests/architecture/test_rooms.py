"""The rooms of the house: no circle of files or folders, no plugin named by the core, no two files that look alike."""

import ast
import re
from collections import defaultdict
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from stagebench.suite.plugins import adapters, launchers
from tests.architecture.conftest import module_of

COMM = "comm"  # a command's name, and so its file's in every package
ENGLISH = {"local", "reference"}  # names of plugins that mean something else too
FORMAT = {"ONNX"}  # of files, which the core writes; the first word of a title, too
ENGINES = {"srun", "sbatch", "mpich", "hydra", "open mpi", "ompi", "prterun", "pmi", "pmix", "kubernetes"}
# What MPI's libraries read, whoever starts them: exchange variables for a record, and what the controller must not
# hand on where an MPI's engine has started it.
LIBRARIES = {"suite/worker/variables.py", "suite/processes/query.py"}


@pytest.fixture(scope="module")
def arrows(sources, imports_of):
    """By module: the modules of ours that it imports, wherever in the file."""
    modules = {module_of(path): text for path, text in sources.items()}
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


def test_files_import_each_other_in_no_circle_which_would_be_seen(arrows):
    assert not circle({module: found - {module} for module, found in arrows.items()})
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"a"}})


def test_folders_of_every_depth_depend_on_each_other_in_no_circle(arrows):
    """Also a folder and one inside it: what both need lies in one of them."""
    packages = {module.rpartition(".")[0] for module in arrows}

    def folder(module):
        """`stagebench.workloads.networks` of stagebench.workloads.networks.alexnet."""
        return module if module in packages else module.rpartition(".")[0]

    graph = defaultdict(set)
    for module, found in arrows.items():
        # A package itself (suite's version) is everybody's.
        graph[folder(module)] |= {folder(each) for each in found if each.count(".") > 1} - {folder(module)}
    assert not circle(graph)


def plugins_words() -> re.Pattern[str]:
    """Plugins' names, the first words of their titles, the variables that they declare, and what their engines print.

    A name that is an English word too counts where it is all of a string.
    """
    found = [*adapters().values(), *launchers().values()]
    variables = [
        name for each in adapters().values() for name in (*each.arithmetic_variables, *each.exchange_variables)
    ]
    titles = {each.title.split()[0] for each in adapters().values() if each.environment} - FORMAT
    words = {each.name for each in found} | titles
    alone, within = "|".join(ENGLISH), "|".join(map(re.escape, sorted((words - ENGLISH) | ENGINES)))
    return re.compile(rf"^({alone})$|^({'|'.join(variables)})|(?<![a-z])(?<!~/\.)({within})(?![a-z])", re.IGNORECASE)


def spoken(text: str) -> list[str]:
    """A file's strings, parts of formatted ones too, without its docstrings."""
    tree = ast.parse(text)
    described = (ast.Module, ast.ClassDef, ast.FunctionDef)
    silent = {
        id(node.body[0].value) for node in ast.walk(tree) if isinstance(node, described) and ast.get_docstring(node)
    }
    strings = (node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in silent)
    return [node.value for node in strings if isinstance(node.value, str)]


def test_the_core_names_no_plugin(sources):
    """Nor its engine, not even as a word of a message or of a pattern."""
    words = plugins_words()
    named = [
        f"{path}: {string!r}"
        for path, text in sources.items()
        if path.parts[0] == "suite" and path.as_posix() not in LIBRARIES
        for string in spoken(text)
        if words.search(string)
    ]
    assert not named


@pytest.mark.parametrize("words", ["--adapter pytorch,mxnet", "srun: error", "SLURM_PROCID", "local", "TF_CONFIG"])
def test_a_plugin_s_name_would_be_seen(words):
    assert plugins_words().search(words)
    assert not plugins_words().search("a local reference that loads jackets in batches, sshd")


def test_no_two_files_of_a_folder_have_one_stem(root, sources):
    """Refuse `launch` next to `launcher`, or `read` next to `reading`; other folders may use the same name."""
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
