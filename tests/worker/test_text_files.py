"""Texts: how they are read, cut into windows, split and learnt; what is refused."""

import hashlib

import numpy as np
import pytest

from stagebench.suite.worker import case_parts, messages, text_files
from stagebench.suite.worker.case_parts import Schedule
from stagebench.suite.worker.contract import SGD, Batch
from stagebench.suite.worker.job import DataSet, Train
from stagebench.suite.worker.sources import TextSource, open_source, split
from stagebench.suite.worker.threaded import GatheringReader, ThreadedReader, batches_of_indices
from stagebench.suite.worker.trainer import Trainer
from stagebench.suite.worker.view import InMemory, View
from stagebench.workloads.build import Builder
from tests.support import trainers
from tests.support.errors import raising
from tests.support.jobs import READ_ONCE

TOKENS = list(range(32, 64))


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_bytes(bytes(TOKENS))
    return str(path)


def test_windows_follow_each_other_and_a_label_is_the_next_token(text):
    source = TextSource(text, 5, 256)
    inputs, labels = source.arrays
    assert (inputs.shape, labels.shape, inputs.dtype, labels.dtype) == ((6, 5), (6, 5), np.int64, np.int64)
    assert inputs.reshape(-1).tolist() == TOKENS[:30]
    assert labels.reshape(-1).tolist() == TOKENS[1:31]
    tokens, following = source.sample(2)
    assert (tokens.tolist(), following) == (TOKENS[10:15], TOKENS[11:16])
    sha = hashlib.sha256(bytes(TOKENS)).hexdigest()[:16]
    assert source.name == f"text.txt (32 tokens, SHA-256 {sha}; 6 windows of 5)"
    assert (len(source), source.classes, source.paths()) == (6, 64, [])
    assert len(TextSource(text, 31, 256)) == 1, "one window and the label of its last token"


def test_a_name_in_u16_has_tokens_of_two_bytes(tmp_path):
    wide = tmp_path / "text.u16"
    wide.write_bytes(np.array([1, 256, 50256, 2], "<u2").tobytes())
    assert text_files.loaded(str(wide)).tolist() == [1, 256, 50256, 2]
    assert TextSource(str(wide), 3, 50257).arrays[1].tolist() == [[256, 50256, 2]]
    wide.write_bytes(b"abc")
    with raising(ValueError, "text.u16", 3):
        text_files.loaded(str(wide))


@pytest.mark.parametrize(
    ("content", "positions", "vocabulary", "words"),
    [
        (b"", 4, 256, ()),
        (b"four", 4, 256, ("has 4 tokens", "takes 5", "name a longer text")),
        (b"abcdexyz", 4, 101, ("the token 101 at place 4 (from 0)", "below 101", "larger vocabulary")),
        (b"aaaaaaaa", 4, 256, ("the token 97 at every place", "name another text")),
    ],
)
def test_a_text_that_cannot_train_is_refused(tmp_path, content, positions, vocabulary, words):
    (tmp_path / "text.txt").write_bytes(content)
    with raising(ValueError, tmp_path / "text.txt", *words):
        TextSource(str(tmp_path / "text.txt"), positions, vocabulary)


def test_another_text_than_the_job_names_is_refused(text):
    data = DataSet("text", text, digest=text_files.digest(text))
    assert len(open_source(data, (5,), 256, 256)) == 6
    with raising(ValueError, text, text_files.digest(text), "0" * 16):
        open_source(data._replace(digest="0" * 16), (5,), 256, 256)
    with raising(ValueError, "below 40"):
        open_source(data, (5,), 40, 256)


def test_the_last_part_of_a_text_is_held_out(text):
    learning, testing = split(TextSource(text, 5, 256), 0.3)
    assert learning.arrays[0].reshape(-1).tolist() == TOKENS[:20]
    assert testing.arrays[0].reshape(-1).tolist() == TOKENS[20:30]
    with raising(ValueError, "0.05", 0, 6):
        split(TextSource(text, 5, 256), 0.05)


def test_every_plain_reader_keeps_whole_numbers_and_the_shuffled_order(text):
    source, setup = TextSource(text, 5, 256), trainers.setup(batch=2, readers=1)
    view = View(source, READ_ONCE, 1, "unused")
    kept = View(InMemory(view), READ_ONCE, 1, "unused")
    readers = GatheringReader(view, setup), ThreadedReader(view, setup), GatheringReader(kept, setup)
    indices = batches_of_indices(source, setup)
    for _ in range(6):
        wanted = next(indices)
        for reader in readers:
            batch = Trainer.as_numpy(None, reader.next_batch())
            assert (batch.inputs.dtype, batch.labels.dtype) == (np.int64, np.int64)
            np.testing.assert_array_equal(batch.inputs, source.arrays[0][wanted])
            np.testing.assert_array_equal(batch.labels, source.arrays[1][wanted])
    readers[1].close()
    pixels = Trainer.as_numpy(None, Batch(np.zeros((1, 1, 2, 2)), np.zeros(1)))
    assert (pixels.inputs.dtype, pixels.labels.dtype) == (np.float32, np.int64)


def test_a_network_learns_a_text_and_its_accuracy_is_of_tokens(make_job, work, tmp_path):
    """The next of 32 tokens in a circle: what follows is certain, and no window shows the whole circle."""
    (tmp_path / "circle.txt").write_bytes(bytes(TOKENS * 40))
    b = Builder("next", (8,), 64)
    embedding = b.graph.add("embedding", "embedding", ("input",), vocabulary=64, out=16)
    b.head(b.dense("fc", embedding, 64))
    data = DataSet("text", str(tmp_path / "circle.txt"))
    task = Train(b.graph, case_parts.Training(12, 0.1), Schedule(), READ_ONCE, data)
    code, sent = work(make_job(task, batch=8, optimiser=SGD(2.0, 0.9, 0.0)))
    assert code == 0
    (found,) = (message for message in sent if isinstance(message, messages.Training))
    assert [epoch.samples for epoch in found.epochs[:2]] == [144, 144], "143 windows of 8 tokens are learnt"
    assert found.losses[0] == pytest.approx(np.log(64), rel=0.1), "of a token"
    assert found.losses[-1] < 0.1
    assert found.epochs[-1].accuracy == 1.0
