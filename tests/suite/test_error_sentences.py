"""One list holds the sentence of every error; a test elsewhere asserts an error's class and the values that it names.

`python -m tests.suite.test_error_sentences` writes the list anew, so that a change of wording is a change of that file.
"""

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.errors import raising

ROOT = Path(__file__).parents[2]
LIST = ROOT / "tests" / "support" / "error_sentences.txt"
ROOMS = ("workloads", "suite", "adapters", "cluster", "reports")
QUOTED = 2  # words in a row that `match` may take from a sentence, to tell two errors of one class apart


def text(node: ast.expr, constants: dict[str, ast.expr]) -> str:
    """Return a string's template with {} for each value, or "" where the expression is no string."""
    match node:
        case ast.Constant(value=str(words)):
            return words
        case ast.JoinedStr(values=parts):
            return "".join(text(part, {}) if isinstance(part, ast.Constant) else "{}" for part in parts)
        case ast.BinOp(left=left, op=ast.Mod()):
            return re.sub(r"%[-+.\d]*[a-z]", "{}", text(left, constants)).replace("%%", "%")
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            sides = text(left, constants), text(right, constants)
            return "".join(side or "{}" for side in sides) if any(sides) else ""
        case ast.Name(id=name) if name in constants:
            return text(constants[name], {})
    return ""


@functools.cache
def sentences() -> list[str]:
    """Return each error's class and sentence as the tree raises them, or returns them to be raised."""
    found = set()
    for path in (path for room in ROOMS for path in (ROOT / room).rglob("*.py")):
        source = path.read_text()
        if "raise " not in source:
            continue
        tree = ast.parse(source)
        assigned = [node for node in tree.body if isinstance(node, ast.Assign)]
        constants = {name.id: node.value for node in assigned for name in node.targets if isinstance(name, ast.Name)}
        for node in ast.walk(tree):
            made = node.exc if isinstance(node, ast.Raise) else node.value if isinstance(node, ast.Return) else None
            if isinstance(made, ast.Call):
                kind = ast.unparse(made.func).rpartition(".")[2]
                parts = [text(argument, constants) for argument in made.args]
                if any(parts) and (isinstance(node, ast.Raise) or kind.endswith(("Error", "Unavailable"))):
                    found.add(f"{kind}: {'; '.join(part or '{}' for part in parts)}".replace("\n", "\\n"))
    return sorted(found)


def runs(words: str) -> Iterator[tuple[str, ...]]:
    """Yield every run of words that is longer than a test may quote."""
    split = re.findall(r"[a-z']+", words.lower())
    return (tuple(split[at : at + QUOTED + 1]) for at in range(len(split) - QUOTED))


def test_the_list_holds_every_sentence():
    assert LIST.read_text().splitlines() == sentences(), "python -m tests.suite.test_error_sentences"


def test_no_expected_error_is_matched_by_its_wording():
    written = {run for line in sentences() for part in line.partition(": ")[2].split("{}") for run in runs(part)}
    quoting = []
    for path in sorted((ROOT / "tests").rglob("*.py")):
        source = path.read_text() if "reports" not in path.parts else ""
        if "match=" not in source:
            continue
        calls = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
        for keyword in (keyword for call in calls for keyword in call.keywords if keyword.arg == "match"):
            plain = re.sub(r"\\.", " ", text(keyword.value, {}))
            pieces = re.split(r"\{\}|\.[*+]|\[.*?\]|[()|]", plain)
            if any(run in written for piece in pieces for run in runs(piece)):
                quoting.append(f"{path.relative_to(ROOT)}:{keyword.value.lineno}")
    assert not quoting, "match the values, and the class; the list holds the words"


def test_another_value_or_a_sentence_of_no_list_is_not_expected():
    one = next(line for line in sentences() if line.startswith("ValueError: ") and line.count("{}") == 2)
    listed = ValueError(one.partition(": ")[2].replace("{}", "7"))
    with raising(ValueError, 7):
        raise listed
    for error, value in ((listed, 8), (ValueError("it holds 7 of a kind"), 7)):
        with pytest.raises(AssertionError, match="7"), raising(ValueError, value):
            raise error


if __name__ == "__main__":
    LIST.write_text("\n".join(sentences()) + "\n")
