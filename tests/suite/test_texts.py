"""Texts as a plan names them: the built-in one, a file of one's own, the digest, and what is refused first."""

import hashlib
import sys

import numpy as np
import pytest

from stagebench.suite.analysis.comparability import group
from stagebench.suite.data import locate, made
from stagebench.suite.data.compatibility import fit
from stagebench.suite.data.make import python_topics
from stagebench.suite.errors import RequestError, Unavailable
from stagebench.suite.worker.job import DataSet
from stagebench.suite.worker.text_files import digest
from stagebench.workloads.build import Builder
from stagebench.workloads.graph import Graph
from stagebench.workloads.networks import by_name
from tests.support.errors import raising

GPT, MNIST = by_name()["gpt_char"], by_name()["mnist_small"]
WIDE = np.arange(300).astype("<u2").tobytes()
LEARNS = """
[[cases]]
adapter = "alpha"
strategy = "single"
workload = "gpt_char"
passes = ["train"]
"""


@pytest.fixture
def prose(tmp_path):
    path = tmp_path / "prose.txt"
    path.write_bytes(bytes(np.random.RandomState(0).randint(97, 123, 2000).astype(np.uint8)))
    return path


def test_python_s_topics_are_made_of_this_python_s_pydoc(data_home, stagebench):
    from pydoc_data.topics import topics

    text = "\n".join(topics[name] for name in sorted(topics)).encode()
    sha = hashlib.sha256(text).hexdigest()[:16]
    error = fit("real", "python-topics", GPT.graph(), data_home)
    assert (error.outcome, error.reason.endswith("stagebench data make python-topics")) == ("unavailable", True)
    told = stagebench("data", "make", "python-topics")
    assert told.out == f"{data_home / 'python-topics.txt'}: {len(text):,} bytes, whose SHA-256 begins with {sha}\n"
    assert made("python-topics").read_bytes() == text
    found = fit("real", "python-topics", GPT.graph(), data_home)
    assert (found.data, found.outcome) == (f"python-topics@{sha}", None)
    assert found.samples == (len(text) - 1) // 64
    assert locate(found.data, GPT) == DataSet("text", str(data_home / "python-topics.txt"), digest=sha)
    assert f"{len(text):,} of {len(text):,} tokens can be read" in stagebench("data", "check", "python-topics").out


def test_a_python_without_the_topics_is_named_with_the_remedy(data_home, monkeypatch):
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", None)
    with raising(Unavailable, sys.executable):
        python_topics(data_home / "python-topics.txt")
    assert made("python-topics") is None


def test_a_case_names_a_text_with_its_digest_and_only_equal_texts_are_compared(cases, prose):
    plan = LEARNS + 'data = "prose.txt"\n'
    (one,) = cases(plan)
    assert (one.outcome, one.case.data) == (None, f"{prose}@{digest(str(prose))}")
    assert one.case.data_name == f"prose.txt@{digest(str(prose))}"
    assert locate(one.case.data, GPT) == DataSet("text", str(prose), digest=digest(str(prose)))
    (named,) = cases(LEARNS + f'data = "{one.case.data}"\n')
    assert named.case.id == one.case.id, "a plan that is written from a case"
    prose.write_bytes(prose.read_bytes()[::-1])
    (other,) = cases(plan)
    assert other.case.id != one.case.id
    assert group(other.case) != group(one.case)
    (gone,) = cases(LEARNS + f'data = "{one.case.data}"\n')
    assert gone.outcome == "unavailable"
    assert f"{prose} has the digest {digest(str(prose))}, not {one.case.data[-16:]}; bring that" in gone.reason


def test_a_file_whose_name_ends_like_a_digest_is_itself(tmp_path, prose):
    odd = prose.rename(tmp_path / "prose@0123456789abcdef")
    found = fit(odd.name, "text", GPT.graph(), tmp_path)
    assert found.data == f"{odd}@{digest(str(odd))}"
    assert locate(found.data, GPT).path == str(odd)


def test_the_batch_of_all_samples_is_that_of_the_windows_that_are_learnt_and_a_split_wants_both_parts(cases, prose):
    (whole,) = cases("[training]\nheld_out = 0.1\n" + LEARNS + 'data = "prose.txt"\nbatch = "all"\n')
    assert whole.case.batch == 31 - 3
    prose.write_bytes(bytes(range(130)))
    with pytest.raises(RequestError, match=r"held_out = 0.1 tests with 0 of the 2 samples of prose.txt"):
        cases("[training]\nheld_out = 0.1\n" + LEARNS + 'data = "prose.txt"\n')
    (found,) = cases("[training]\nheld_out = 0.5\n" + LEARNS + 'data = "prose.txt"\n')
    assert found.outcome is None
    np.savez(prose.with_name("mine.npz"), images=np.zeros((4, 28, 28), np.uint8), labels=np.arange(4))
    (found,) = cases(LEARNS + 'data = "mine.npz"\n')
    wants = "gpt_char wants a text; name a file of tokens, or python-topics"
    assert (found.outcome, found.reason) == ("unsupported", f"mine.npz holds images of 1x28x28, {wants}")


def one_label() -> Graph:
    """The network tells whole windows apart."""
    b = Builder("one_label", (4,), 3)
    add = b.graph.add
    b.head(b.dense("fc", add("mean", "mean", (add("e", "embedding", ("input",), vocabulary=256, out=4),)), 3))
    return b.graph


@pytest.mark.parametrize(
    ("name", "content", "graph", "outcome", "words"),
    [
        ("data.txt", bytes(64), GPT.graph(), "unsupported", "has 64 tokens, and one sample takes 65: 64 and the one "),
        ("data.txt", b"a" * 99, GPT.graph(), "unsupported", "has the token 97 at every place"),
        ("data.txt", b"text", MNIST.graph(), "unsupported", "data.txt is a text, mnist_small wants images of 1x28x28"),
        ("data.txt", b"text!", one_label(), "unsupported", "one_label wants labels of shape () for (4,) tokens; name "),
        ("wide.u16", WIDE, GPT.graph(), "unsupported", "token 256 at place 256 (from 0), and the network takes those"),
        ("wide.u16", b"odd", GPT.graph(), "wrong", "3 bytes, an odd number"),
    ],
)
def test_what_does_not_fit_the_network_is_refused_before_anything_starts(
    tmp_path, name, content, graph, outcome, words
):
    (tmp_path / name).write_bytes(content)
    found = fit(name, "text", graph, tmp_path)
    assert found.outcome == outcome
    assert words in found.reason
