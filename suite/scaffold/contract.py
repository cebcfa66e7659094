"""The stubs of an adapter, read from the contract itself: one for every abstract method and layer kind."""

import ast
import inspect
import re
from dataclasses import dataclass

from suite.worker.trainer import Trainer
from workloads import kinds

SECTION = re.compile(r"    # --- ")


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


def methods() -> list[Stub]:
    """Return every abstract method of the trainer with its docstring, under the contract's headings."""
    lines = inspect.getsource(Trainer).splitlines()
    (body,) = ast.parse("\n".join(lines)).body
    assert isinstance(body, ast.ClassDef)
    stubs = {
        node.lineno: Stub(node.name, "\n".join(lines[node.lineno - 1 : node.body[0].end_lineno]))
        for node in body.body
        if isinstance(node, ast.FunctionDef) and node.name in Trainer.__abstractmethods__
    }
    headings = {number: Stub("", line, False) for number, line in enumerate(lines, 1) if SECTION.match(line)}
    return [stub for _, stub in sorted({**stubs, **headings}.items())]


def optional() -> list[str]:
    """Return the methods with a default that an adapter may override."""
    return [
        name
        for name, value in vars(Trainer).items()
        if inspect.isfunction(value) and not name.startswith("_") and name not in Trainer.__abstractmethods__
    ]


def layer_kinds() -> list[Kind]:
    """Return every kind, described as in its class."""
    return [Kind(name, _words(kind)) for name, kind in kinds.KINDS.items()]


def _words(kind: type[kinds.Layer]) -> str:
    meaning, *more = inspect.cleandoc(kind.__doc__ or "").split("\n\n")
    parameters = [*kind.initialisers, *kind.statistics]
    details = [f"Attributes: {', '.join(kind.attributes)}." if kind.attributes else ""]
    details += [f"Holds {', '.join(parameters)}." if parameters else ""]
    lines = [f"The kind `{kind.kind}`: {meaning[0].lower()}{meaning[1:]}", *more, " ".join(filter(None, details))]
    text = "\n\n".join(filter(None, lines)) + ("\n" if len(lines) > 2 or any(details) else "")
    return text.replace("\n", "\n    ").replace("    \n", "\n")
