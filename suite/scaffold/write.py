"""Templates rendered to a new folder, whole or not at all; their stubs are read from the contract itself."""

import ast
import inspect
import keyword
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from stagebench.suite import __version__
from stagebench.suite.contracts.hooks import CONTRACT
from stagebench.suite.errors import RequestError
from stagebench.suite.files import disk
from stagebench.suite.plugins import adapters
from stagebench.suite.worker.member import Member
from stagebench.suite.worker.trainer import Trainer
from stagebench.workloads import kinds

SECTION = re.compile(r"    # --- ")
SUFFIX = ".jinja"
PATTERN = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True)
class Stub:
    """A method to write."""

    name: str
    source: str  # comment of a section, or signature and docstring, indented as in the class
    is_method: bool = True


@dataclass(frozen=True)
class Kind:
    """A layer kind to lower."""

    name: str
    words: str  # attributes, meaning, parameters


def write(name: str, parent: Path) -> Path:
    """Write the package `stagebench-NAME` below `parent` and return its folder.

    RequestError for a bad name, a folder that exists or cannot be written.
    """
    check(name)
    folder = parent / f"stagebench-{name}"
    if folder.exists():
        raise RequestError(f"{folder} exists already; name another place with -o")
    with disk(f"{folder} cannot be written", "name another place with -o", RequestError):
        parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=parent, prefix=f".{folder.name}-") as scratch:
            whole = Path(scratch) / "whole"
            for path, text in rendered(name).items():
                (whole / path).parent.mkdir(parents=True, exist_ok=True)
                (whole / path).write_text(text)
            whole.rename(folder)
    return folder


def rendered(name: str) -> dict[str, str]:
    """Return the text of every file of the package, by path."""
    environment = Environment(
        loader=PackageLoader("stagebench.suite.scaffold"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # Python and TOML, not HTML
    )
    package = f"stagebench_{name}"
    values = {
        "name": name,
        "package": package,
        "klass": "".join(part.capitalize() for part in name.split("_")),
        "version": __version__,
        "contract": CONTRACT,
        "stubs": methods(),
        "optional": optional(),
        "kinds": [Kind(name, _words(kind)) for name, kind in kinds.KINDS.items()],
    }
    return {
        path.replace("package/", f"{package}/", 1).removesuffix(SUFFIX): environment.get_template(path).render(values)
        for path in environment.list_templates()
        if path.endswith(SUFFIX)
    }


def check(name: str) -> None:
    """Raise RequestError for a name that cannot be a folder, a package, a plan's value and a tox environment."""
    remedy = "choose lower-case letters, digits and underscores, such as 'lumen'"
    if not PATTERN.fullmatch(name):
        raise RequestError(f"an adapter cannot be called {name!r}: its name is a Python identifier too; {remedy}")
    if keyword.iskeyword(name):
        raise RequestError(f"an adapter cannot be called {name!r}: that is a keyword of Python; {remedy}")
    if name in adapters():
        raise RequestError(
            f"there is an adapter {name!r} already (`stagebench list adapters`); choose another name, "
            "or uninstall the package that brings it"
        )


def methods() -> list[Stub]:
    """Return the trainer's abstract methods, its base's first, with their docstrings, under the contract's headings."""
    life, *rest = _stubs(Trainer)
    return [life, *(stub for stub in _stubs(Member) if stub.name), *rest]


def _stubs(kind: Any) -> list[Stub]:
    lines = inspect.getsource(kind).splitlines()
    (body,) = ast.parse("\n".join(lines)).body
    assert isinstance(body, ast.ClassDef)
    stubs = {
        node.lineno: Stub(node.name, "\n".join(lines[node.lineno - 1 : node.body[0].end_lineno]))
        for node in body.body
        if isinstance(node, ast.FunctionDef) and node.name in kind.__abstractmethods__
    }
    headings = {number: Stub("", line, False) for number, line in enumerate(lines, 1) if SECTION.match(line)}
    return [stub for _, stub in sorted({**stubs, **headings}.items())]


def optional() -> list[str]:
    """Return the methods with a default that an adapter may override."""
    return [
        name
        for name, value in {**vars(Member), **vars(Trainer)}.items()
        if inspect.isfunction(value) and not name.startswith("_") and name not in Trainer.__abstractmethods__
    ]


def _words(kind: type[kinds.Layer]) -> str:
    meaning, *more = inspect.cleandoc(kind.__doc__ or "").split("\n\n")
    parameters = [*kind.initialisers, *kind.statistics]
    details = [f"Attributes: {', '.join(kind.attributes)}." if kind.attributes else ""]
    details += [f"Holds {', '.join(parameters)}." if parameters else ""]
    lines = [f"The kind `{kind.kind}`: {meaning[0].lower()}{meaning[1:]}", *more, " ".join(filter(None, details))]
    text = "\n\n".join(filter(None, lines)) + ("\n" if len(lines) > 2 or any(details) else "")
    return text.replace("\n", "\n    ").replace("    \n", "\n")
