"""What there is to write, read from the contract itself: a stub for every abstract method, for every layer kind."""

import ast
import inspect
import re
from dataclasses import dataclass

from suite.worker.trainer import Trainer
from workloads import kinds

SECTION = re.compile(r"    # --- ")
ROW = re.compile(r"\| (\w+) \|([^|]*)\|([^|]*)\|")


@dataclass(frozen=True)
class Stub:
    """One thing to write."""

    name: str
    source: str  # comment of a section, or signature and docstring, indented as in the class
    is_method: bool = True


@dataclass(frozen=True)
class Kind:
    """One layer kind to lower."""

    name: str
    words: str  # attributes, meaning, parameters


def methods() -> list[Stub]:
    """Every abstract method of the trainer with its docstring, under the contract's own headings."""
    lines = inspect.getsource(Trainer).splitlines()
    (body,) = ast.parse("\n".join(lines)).body
    assert isinstance(body, ast.ClassDef)
    found = {
        node.lineno: Stub(node.name, "\n".join(lines[node.lineno - 1 : node.body[0].end_lineno]))
        for node in body.body
        if isinstance(node, ast.FunctionDef) and node.name in Trainer.__abstractmethods__
    }
    headings = {number: Stub("", line, False) for number, line in enumerate(lines, 1) if SECTION.match(line)}
    return [each for _, each in sorted({**found, **headings}.items())]


def optional() -> list[str]:
    """Methods with a default that an adapter may have reasons to override."""
    return [
        name
        for name, value in vars(Trainer).items()
        if inspect.isfunction(value) and not name.startswith("_") and name not in Trainer.__abstractmethods__
    ]


def layer_kinds() -> list[Kind]:
    """Every kind, in the words of `workloads.kinds`."""
    rows = {name: (attrs.strip(), meaning.strip()) for name, attrs, meaning in ROW.findall(kinds.__doc__ or "")}
    return [Kind(name, _words(name, *rows[name])) for name in kinds.KINDS]


def _words(kind: str, attrs: str, meaning: str) -> str:
    parameters = [role for owner, role in kinds.DEFAULT_INIT if owner == kind]
    parameters += [role for role, _ in kinds.buffer_shapes(kind, [(1, 1, 1)])]
    lines = [f"The kind `{kind}`: {meaning.removesuffix('; see below') or 'what its name says'}."]
    details = [f"Attributes: {attrs}." if attrs else "", f"Holds {', '.join(parameters)}." if parameters else ""]
    if any(details):
        lines += ["", " ".join(filter(None, details)), ""]
    return "\n    ".join(lines).replace("    \n", "\n")
