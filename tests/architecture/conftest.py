"""Where the source is, and what each file of it imports."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.linked import PACKAGES, ROOT


def is_worker_half(path: Path) -> bool:
    """Whether a file (relative to the root) travels into a framework's interpreter."""
    top = path.parts[0]
    if top == "adapters":
        return path.name != "plugin.py"
    return top == "workloads" or path.parts[:2] == ("suite", "worker") or path == Path("suite/__init__.py")


def module_of(path: Path) -> str:
    """The module of a file (relative to the root): stagebench.suite.errors of suite/errors.py."""
    names = path.with_suffix("").parts
    return ".".join(names if names == ("stagebench",) else ("stagebench", *names)).removesuffix(".__init__")


def imported(source: str) -> Iterator[str]:
    """Every module a source imports, wherever in it; `from a import b` gives a.b."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports here are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.fixture(scope="session")
def root():
    """The checkout."""
    return ROOT


@pytest.fixture(scope="session")
def sources():
    """Every file of the import packages, relative to the root, and its text."""
    files = sorted(path for top in PACKAGES for path in (ROOT / top).rglob("*.py"))
    return {path.relative_to(ROOT): path.read_text() for path in [ROOT / "stagebench.py", *files]}


@pytest.fixture(scope="session")
def worker_half(sources):
    """The files that run in a framework's interpreter."""
    return {path: text for path, text in sources.items() if is_worker_half(path)}


@pytest.fixture(scope="session")
def imports_of():
    """The function `imported`."""
    return imported
