"""Every reader delivers the right samples: files and arrays in the order of all adapters, records once an epoch."""

import os
from pathlib import Path

import mxnet as mx
import numpy as np
import pytest
from PIL import Image

from adapters.mxnet.input import shares
from adapters.mxnet.record_files import files_of
from suite.worker.contract import Unsupported
from suite.worker.packed_set import RecordSource, pack
from suite.worker.photographs import without_exif
from suite.worker.sources import FolderSource
from suite.worker.threaded import batches_of_indices
from suite.worker.view import View
from tests.support import jobs, trainers
from tests.support.errors import raising
from tests.support.sent import Nobody
from tests.support.trainers import by_strategy
from workloads.graph import Graph

trainer_of = by_strategy("mxnet")

SHAPE, COUNT = (3, 224, 224), 24


def photograph(number, size=(300, 256)):
    """Smooth colours, none like another's, with edges."""
    stream = np.random.RandomState(number)
    pixels = np.kron(stream.randint(0, 255, (8, 8, 3)), np.ones((size[1] // 8, size[0] // 8 + 1, 1)))
    return Image.fromarray(pixels[:, : size[0]].astype(np.uint8))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A class an image, so that a label names its image."""
    place = tmp_path_factory.mktemp("images")
    for label in range(COUNT):
        (place / f"{label:02}").mkdir()
        photograph(label).save(place / f"{label:02}" / "it.jpg", quality=95)
    return place


def packed(trainer, source, place, parts):
    pack(trainer, source, jobs.packing("recordio", place, parts=parts), Nobody())
    found = RecordSource(str(place))
    found.check(SHAPE, COUNT)
    return found


@pytest.fixture(scope="module")
def records(folder, tmp_path_factory):
    """Three parts, joined."""
    return packed(
        trainer_of(trainers.setup()), FolderSource(str(folder), SHAPE), tmp_path_factory.mktemp("records"), parts=3
    )


def view(source, **changes):
    return View(source, jobs.READ_ONCE._replace(**changes), 1, os.devnull)


def delivered(trainer, batches):
    """(images, labels) of the next batches."""
    found = [trainer.as_numpy(trainer.next_batch()) for _ in range(batches)]
    return np.concatenate([each.images for each in found]), np.concatenate([each.labels for each in found]).tolist()


def canonical(folder):
    source = FolderSource(str(folder), SHAPE)
    return source.photographs, np.stack([source.sample(index)[0] for index in range(COUNT)])


# --- files and memory -------------------------------------------------------


@pytest.mark.parametrize("readers", [0, 2])
def test_files_come_in_the_order_of_positions(trainer, folder, readers):
    ours = trainer(readers=readers, batch=5)
    source = view(FolderSource(str(folder), SHAPE), augment="random")
    ours.open_input(source)
    positions = batches_of_indices(source, ours.setup)
    images, labels = delivered(ours, 7)  # runs into the second epoch
    wanted = [source.sample(position) for _ in range(7) for position in next(positions)]
    np.testing.assert_array_equal(images, np.stack([image for image, _ in wanted]))
    assert labels == [label for _, label in wanted]
    assert "thread" in ours.notes()["reader"] or "process" in ours.notes()["reader"]


def test_an_unreadable_image_is_named(trainer, tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "it.jpg").write_bytes(b"not a picture")
    ours = trainer(readers=1, batch=1)
    ours.open_input(view(FolderSource(str(tmp_path), SHAPE)))
    with raising(OSError, "it.jpg"):
        ours.next_batch()


# --- records ----------------------------------------------------------------


@pytest.mark.parametrize("readers", [1, 2, 3])
def test_every_record_comes_once_an_epoch_in_another_order(trainer, records, readers):
    ours = trainer(readers=readers, batch=4)
    ours.open_input(view(records))
    epochs = [delivered(ours, COUNT // 4)[1] for _ in range(3)]
    assert [sorted(epoch) for epoch in epochs] == [list(range(COUNT))] * 3
    assert len({tuple(epoch) for epoch in epochs}) == 3


def test_a_tail_runs_into_the_next_epoch(trainer, records):
    ours = trainer(batch=9)
    ours.open_input(view(records))
    labels = delivered(ours, 8)[1]  # 72: three epochs
    assert sorted(labels) == sorted(3 * list(range(COUNT)))
    assert len(set(labels[:18])) == 18, "nothing twice before the tail"


@pytest.mark.parametrize("readers", [1, 2])
def test_ranks_read_shares_of_their_own(trainer, records, readers):
    both = [trainer(readers=readers, batch=4) for _ in range(2)]
    for rank, ours in enumerate(both):
        ours.setup = ours.setup._replace(rank=rank, world=2)
        ours.open_input(view(records))
    labels = [delivered(ours, 3)[1] for ours in both]
    assert sorted(labels[0] + labels[1]) == list(range(COUNT))


@pytest.mark.parametrize("readers", [1, 2])
def test_images_that_need_no_scaling_differ_by_the_decoders_rounding(trainer, records, folder, readers):
    ours = trainer(readers=readers, batch=4)
    graph = Graph("flat", SHAPE, COUNT)
    graph.add_head(graph.add("out", "dense", (graph.add("f", "flatten", ("input",)),), out=COUNT))
    ours.build(graph, {p.name: np.zeros(p.shape, np.float32) for p in graph.parameters})
    ours.open_input(view(records))
    photographs, expected = canonical(folder)
    for _ in range(COUNT // 4):
        ((images, labels),) = ours.to_device(ours.next_batch())
        which = labels.asnumpy().astype(int)
        off = np.abs(photographs.levels(images.asnumpy()) - photographs.levels(expected[which]))
        assert off.mean() <= 0.5
        assert off.max() <= 4.0


def test_random_crops_lie_in_range_and_change_with_the_epoch(trainer, records):
    ours = trainer(batch=COUNT)
    ours.open_input(view(records, augment="random"))
    epochs = [delivered(ours, 1) for _ in range(2)]
    one, other = (dict(zip(labels, images, strict=True)) for images, labels in epochs)
    assert sorted(one) == sorted(other) == list(range(COUNT))
    assert all(not np.array_equal(one[label], other[label]) for label in one)


def test_a_records_exif_turns_nothing(trainer, tmp_path):
    turned = Image.Exif()
    turned[0x0112] = 6
    (tmp_path / "images" / "a").mkdir(parents=True)
    path = tmp_path / "images" / "a" / "it.jpg"
    photograph(1).save(path, quality=95, exif=turned)
    assert b"Exif" not in without_exif(path.read_bytes())
    ours = trainer(batch=1)
    source = FolderSource(str(tmp_path / "images"), SHAPE)
    ours.open_input(view(packed(ours, source, tmp_path / "records", parts=1)))
    images, _ = delivered(ours, 1)
    off = source.photographs.levels(images[0]) - source.photographs.levels(source.sample(0)[0])
    assert np.abs(off).max() <= 4.0


@pytest.mark.parametrize("damage", [lambda data: data[: len(data) // 8 * 4], lambda data: b"\0" * len(data)])
def test_a_broken_record_file_is_named(trainer, folder, tmp_path, damage):
    ours = trainer(readers=1, batch=4)
    found = packed(ours, FolderSource(str(folder), SHAPE), tmp_path, parts=1)
    path = Path(files_of(found).records)
    path.write_bytes(damage(path.read_bytes()))
    with raising(OSError, "images.rec"):
        ours.open_input(view(found))


@pytest.mark.parametrize("text", ["0\t0\n1\x07", "0\tx\n", "0\t0\t0\n", "\n"])
def test_an_index_that_is_none_is_named(trainer, folder, tmp_path, text):
    ours = trainer(readers=1, batch=4)
    found = packed(ours, FolderSource(str(folder), SHAPE), tmp_path, parts=1)
    Path(files_of(found).offsets).write_text(text)
    with raising(OSError, "images.idx"):
        ours.open_input(view(found))


def test_a_missing_record_file_is_named(trainer, folder, tmp_path):
    ours = trainer(readers=1, batch=4)
    found = packed(ours, FolderSource(str(folder), SHAPE), tmp_path, parts=1)
    os.remove(files_of(found).records)
    with pytest.raises(OSError, match=r"images\.rec"):
        ours.open_input(view(found))


def test_what_opencv_cannot_decode_is_packed_anew(trainer, tmp_path):
    """A GIF by a JPEG's name, which Pillow reads; ImageRecordIter would end the process."""
    (tmp_path / "images" / "a").mkdir(parents=True)
    photograph(1).save(tmp_path / "images" / "a" / "it.jpg", format="GIF")
    ours = trainer(batch=1)
    source = FolderSource(str(tmp_path / "images"), SHAPE)
    ours.open_input(view(packed(ours, source, tmp_path / "records", parts=1)))
    np.testing.assert_allclose(delivered(ours, 1)[0][0], source.sample(0)[0], atol=1e-5)


def test_too_few_samples_for_a_batch_are_refused(trainer, records):
    with raising(ValueError, 2, 12, 20):
        trainer(batch=40, readers=2).open_input(view(records))


def test_paths_that_mxnet_would_take_apart_are_refused(trainer, records):
    records = RecordSource(records.path)
    records.path += ";b"
    with pytest.raises(ValueError, match="meaning of"):
        trainer(batch=4).open_input(view(records))


def test_other_records_are_refused(trainer, records):
    records = RecordSource(records.path)
    records.form = "tfrecord"
    with raising(Unsupported, "tfrecord"):
        trainer(batch=4).open_input(view(records))


def test_close_ends_the_readers_threads(trainer, records):
    trainer(batch=4)
    mx.nd.ones((1,)).wait_to_read()
    before = len(os.listdir("/proc/self/task"))
    ours = trainer(batch=4, readers=2)
    ours.open_input(view(records))
    ours.next_batch()
    assert len(os.listdir("/proc/self/task")) > before
    ours.close()
    assert len(os.listdir("/proc/self/task")) <= before


@pytest.mark.parametrize(
    ("readers", "batch", "most", "expected"),
    [
        (1, 8, 1, (1, 1)),
        (2, 8, 1, (2, 1)),
        (2, 7, 1, (1, 1)),  # no half of seven
        (4, 8, 4, (1, 4)),
        (4, 8, 2, (2, 2)),
        (3, 8, 2, (1, 2)),
    ],
)
def test_readers_become_iterators_and_threads(readers, batch, most, expected):
    assert shares(readers, batch, most) == expected
