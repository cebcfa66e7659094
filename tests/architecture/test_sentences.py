"""Sentences name their subject: counts of docstrings and comments that do not. A limit may fall and never rise.

A docstring opens with a verb (functions), or an article and a noun (classes, properties, files).
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterator

import pytest

TOPS = ("suite", "adapters", "cluster", "workloads")  # reports/ has limits of its own

# A first word that refers to a subject outside the sentence. "One of" is an article and a noun.
WITHOUT_SUBJECT = re.compile(
    r"(of|what|who|whose|whoever|where|whether|those|they|it|there|to|as|so many|likewise|besides|the same"
    r"|one(?! of)|(in|from|by|with) which)\b",
    re.IGNORECASE,
)
OPENINGS_LIMIT = 0

WORDS = [  # a pattern, the text to write instead, the limit
    (r"nobody|somebody|whoever", "no rank, another process, the user", 1),
    (r"beside", "next to, alongside, with", 0),
    (r"stands?(?! for| alone)", "is, is stored", 0),
    (r"by (itself|themselves)", "alone, separately", 0),
    (r"so many", "the number's name", 0),
    (r"told|heard|tells of|says so", "reported, received", 2),
    (r"go(es)? on", "continues", 0),
    (r"meanwhile", "during …", 0),
    (r"likewise|the same of", "the thing, repeated", 0),
    (r"(come|comes|came) of", "results from", 0),
    (r"for want of|mend|mends|mended", "without, fix", 1),
    (r"of others|another's|others'|as in use", "of other processes; in inference mode", 0),
]


def docstrings(source: str) -> Iterator[str]:
    """Yield every docstring of a source."""
    described = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, described) and (text := ast.get_docstring(node)):
            yield text


def comments(source: str) -> Iterator[str]:
    """Yield every comment of a source."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string


@pytest.fixture(scope="module")
def texts(sources):
    """The docstrings, and the comments, of every source that the limits hold for."""
    read = [text for path, text in sources.items() if path.parts[0] in TOPS]
    return [line for text in read for line in docstrings(text)], [line for text in read for line in comments(text)]


def test_docstrings_open_with_their_subject(texts):
    described, _ = texts
    assert len([line for line in described if WITHOUT_SUBJECT.match(line)]) <= OPENINGS_LIMIT


@pytest.mark.parametrize(("pattern", "instead", "limit"), WORDS)
def test_words_that_a_reader_stumbles_over_become_fewer(texts, pattern, instead, limit):
    word = re.compile(rf"\b({pattern})\b", re.IGNORECASE)
    uses = [line for lines in texts for line in lines if word.search(line)]
    assert len(uses) <= limit, f"write instead: {instead}"


@pytest.mark.parametrize("opening", ["Of one domain.", "What came of it.", "Likewise.", "One rank's time."])
def test_an_opening_without_a_subject_would_be_seen(opening):
    assert WITHOUT_SUBJECT.match(opening)
    assert not WITHOUT_SUBJECT.match("One of the ranks that train.")
    assert not WITHOUT_SUBJECT.match("Torn files are refused.")
