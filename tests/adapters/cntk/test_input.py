"""What CNTK reads: records in its two formats, arrays in memory, image files."""

import os
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from stagebench.adapters.cntk import packing as formats
from stagebench.adapters.cntk.machine import cntk as C  # noqa: N812 - the usual name
from stagebench.suite.worker import packed_set
from stagebench.suite.worker.contract import Batch
from stagebench.suite.worker.packed_set import RecordSource
from stagebench.suite.worker.photographs import decoder
from stagebench.suite.worker.sources import ArraySource
from stagebench.suite.worker.view import View
from stagebench.workloads import weights
from stagebench.workloads.networks import by_name
from tests.adapters.alike_reading import Reading
from tests.support import jobs
from tests.support.errors import raising
from tests.support.jobs import READ_ONCE
from tests.support.sent import Nobody

FORMS = ["cbf", "ctf"]
ASKED = READ_ONCE  # what a view wants to know of a case's input
SAMPLES = 42  # not a multiple of a chunk's
SHAPE = (1, 6, 5)


def view_of(source, folder, seed=1, **asked):
    return View(source, ASKED._replace(**asked), seed, str(folder / "skipped.txt"))


@pytest.fixture
def arrays(tmp_path):
    """Each image tells its number, by which it is known again."""
    images = np.random.RandomState(1).randint(0, 200, (SAMPLES,) + SHAPE[1:]).astype(np.uint8)
    images[:, 0, 0] = np.arange(SAMPLES)
    np.savez(str(tmp_path / "arrays.npz"), images=images, labels=np.arange(SAMPLES) % 7)
    return ArraySource(str(tmp_path / "arrays.npz"), SHAPE)


@pytest.fixture
def records(trainer, tmp_path, arrays):
    """A function that packs the arrays."""

    def make(form, parts=2, source=arrays):
        folder = tmp_path / form
        folder.mkdir()
        packed_set.pack(
            trainer(), source, jobs.packing(form, folder, parts=parts, kind="arrays", shape=SHAPE), Nobody()
        )
        return RecordSource(str(folder))

    return make


def numbers(arrays, batch):
    """Which samples these are, after their pixels and labels were compared."""
    found = [int(np.abs(arrays.arrays[0] - image).reshape(SAMPLES, -1).sum(axis=1).argmin()) for image in batch.inputs]
    np.testing.assert_allclose(batch.inputs, arrays.arrays[0][found], rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(batch.labels, arrays.arrays[1][found])
    return found


def reading(trainer, source, folder, rank=0, world=1, **options):
    """A trainer that has opened its input."""
    ours = trainer(**options)
    ours.setup = ours.setup._replace(rank=rank, world=world)
    ours.open_input(view_of(source, folder))
    return ours


def read(ours, arrays, batches):
    return [number for _ in range(batches) for number in numbers(arrays, ours.as_numpy(ours.next_batch()))]


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("form", FORMS)
def test_every_record_comes_once_an_epoch_in_another_order(trainer, tmp_path, arrays, records, form, parts):
    ours = reading(trainer, records(form, parts), tmp_path, batch=3)
    first, second = (read(ours, arrays, SAMPLES // 3) for _ in range(2))
    assert sorted(first) == sorted(second) == list(range(SAMPLES))
    assert first != second
    again = reading(trainer, records_at(tmp_path, form), tmp_path, batch=3)
    assert read(again, arrays, SAMPLES // 3) == first  # the seed decides
    assert {"cbf": "CBFDeserializer", "ctf": "CTFDeserializer"}[form] in ours.notes()["reader"]


def records_at(folder, form):
    return RecordSource(str(folder / form))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("world", [2, 3])
def test_the_ranks_shares_of_a_sweep_are_the_set(trainer, tmp_path, arrays, records, form, world):
    packed_set, seen = records(form), Counter()
    per_epoch = SAMPLES // world
    for rank in range(world):
        ours = reading(trainer, packed_set, tmp_path, rank, world, batch=2)
        mine = read(ours, arrays, per_epoch // 2)
        assert len(set(mine)) >= len(mine) - formats.CHUNK_SAMPLES  # a tail may belong to the next sweep
        seen.update(set(mine))
    assert len(seen) >= SAMPLES - 2 * formats.CHUNK_SAMPLES * (world - 1)
    assert sum(count - 1 for count in seen.values()) <= formats.CHUNK_SAMPLES * (world - 1)


@pytest.mark.parametrize("form", FORMS)
def test_what_cntk_has_read_trains_as_numpys_arrays_do(trainer, tmp_path, records, form):
    graph = by_name()["mnist_small"].graph()
    stream = np.random.RandomState(2)
    np.savez(str(tmp_path / "big.npz"), images=stream.randint(0, 255, (8, 28, 28)), labels=stream.randint(0, 10, 8))
    source = records(form, 1, ArraySource(str(tmp_path / "big.npz"), graph.input_shape))
    source.shape = graph.input_shape
    for precision in ("float32", "float64"):
        ours = reading(trainer, source, tmp_path, batch=4, precision=precision)
        host = ours.next_batch()
        assert isinstance(host.inputs, C.io.MinibatchData)
        copied = ours.as_numpy(host)
        losses = []
        for batch in (host, Batch(copied.inputs, copied.labels)):
            ours.build(graph, dict(weights.initial(graph)))
            placed = ours.to_device(batch)
            ours.forward(placed), ours.backward(), ours.communicate(), ours.update()
            ours.step(placed)
            losses.append((ours.loss(), ours.predict(placed).tolist()))
        assert losses[0] == losses[1]


def threads():
    return len(os.listdir("/proc/self/task"))


@pytest.mark.parametrize("form", FORMS)
def test_a_batch_lives_while_the_thread_reads_ahead_and_close_ends_the_thread(trainer, tmp_path, arrays, records, form):
    source, before_all = records(form), threads()
    ours = reading(trainer, source, tmp_path, batch=2)
    for _ in range(3):
        kept = ours.next_batch()
        before = ours.as_numpy(kept).inputs
        time.sleep(0.02)  # long enough for the next batch
        np.testing.assert_array_equal(ours.as_numpy(kept).inputs, before)
    del kept
    ours._reader.close()
    assert threads() == before_all


def spoilt(path, form):
    content = path.read_bytes()
    yield "cut", content[: len(content) // 2]
    yield "empty", b""
    if form == "cbf":
        yield "a hole", content[:40] + content[48:]
        yield "another file", bytes(range(256)) * 8


def an_epoch(trainer, source, folder):
    ours = reading(trainer, source, folder)
    return [ours.as_numpy(ours.next_batch()).labels for _ in range(SAMPLES // 2)]


@pytest.mark.parametrize("form", FORMS)
def test_a_broken_file_is_named(trainer, tmp_path, records, form):
    source = records(form)
    path = Path(source.joined) / ("records." + form)
    for what, content in spoilt(path, form):
        path.write_bytes(content)
        with raising(OSError, "records." + form):
            pytest.fail("%s: read as %r" % (what, an_epoch(trainer, source, tmp_path)))


@pytest.mark.parametrize("form", FORMS)
def test_more_ranks_than_chunks_are_refused(trainer, tmp_path, records, form):
    with raising(ValueError, 100):
        reading(trainer, records(form), tmp_path, 0, 100)


@pytest.mark.parametrize("form", FORMS)
def test_parts_without_samples_are_left_out(tmp_path, arrays, form):
    folders = [str(tmp_path / name) for name in ("none", "some", "joined")]
    for folder in folders:
        os.mkdir(folder)
    formats.write(form, iter(()), folders[0])
    formats.write(form, (packed_set.record(arrays, index) for index in range(5)), folders[1])
    formats.join(form, folders[:2], folders[2])
    joined = Path(formats.name_in(folders[2], form))
    assert joined.read_bytes() == Path(formats.name_in(folders[1], form)).read_bytes()


def test_this_environment_decodes_as_the_others_do():
    # Pillow for Python 3.6 does not: what is delivered, `stagebench data readers` compares.
    assert decoder() is not None, "simplejpeg is not installed; tox run -e cntk makes the environment anew"


class TestReading(Reading):
    most, words = 0.01, (("files", "image reader"),)
