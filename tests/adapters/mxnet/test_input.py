"""Every reader delivers the right samples: files and arrays in the order of all adapters, records once an epoch."""

import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from stagebench.adapters.mxnet.input import shares
from stagebench.adapters.mxnet.record_files import files_of
from stagebench.suite.worker.contract import Unsupported
from stagebench.suite.worker.packed_set import RecordSource, pack
from stagebench.suite.worker.sources import FolderSource
from stagebench.suite.worker.view import View
from tests.adapters.alike_reading import Reading
from tests.support import jobs, trainers
from tests.support.errors import raising
from tests.support.sent import Nobody
from tests.support.trainers import by_strategy

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
    return np.concatenate([each.inputs for each in found]), np.concatenate([each.labels for each in found]).tolist()


def test_a_tail_runs_into_the_next_epoch(trainer, records):
    ours = trainer(batch=9)
    ours.open_input(view(records))
    labels = delivered(ours, 8)[1]  # 72: three epochs
    assert sorted(labels) == sorted(3 * list(range(COUNT)))
    assert len(set(labels[:18])) == 18, "nothing twice before the tail"


def test_broken_records_and_what_is_no_index_are_named(trainer, folder, tmp_path):
    ours = trainer(readers=1, batch=4)
    found = packed(ours, FolderSource(str(folder), SHAPE), tmp_path, parts=1)
    records, offsets = (Path(each) for each in (files_of(found).records, files_of(found).offsets))
    index = offsets.read_text()
    for text in ("0\t0\n1\x07", "0\tx\n", "0\t0\t0\n", "\n"):
        offsets.write_text(text)
        with raising(OSError, "images.idx"):
            ours.open_input(view(found))
    offsets.write_text(index)
    records.write_bytes(records.read_bytes()[: records.stat().st_size // 8 * 4])
    with raising(OSError, "images.rec"):
        ours.open_input(view(found))
    records.unlink()
    with raising(OSError, "images.rec"):
        ours.open_input(view(found))


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


class TestReading(Reading):
    formats = ("recordio",)

    def records(self, folder):
        return Path(files_of(RecordSource(str(folder))).records)
