"""tf.data delivers the right samples, in the order that every adapter follows; TFRecord, whole or broken."""

import itertools
import os
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from stagebench.adapters.tensorflow import input as tfrecord
from stagebench.adapters.tensorflow import pixels
from stagebench.suite.worker.photographs import random_box
from stagebench.suite.worker.sources import ArraySource
from stagebench.suite.worker.threaded import batches_of_indices
from stagebench.suite.worker.view import InMemory, View
from stagebench.workloads.catalogue import PHOTOGRAPHS
from tests.adapters.alike_reading import Reading
from tests.adapters.tensorflow.pictures import CROP, levels_apart, of, read
from tests.support import data, processes
from tests.support.errors import raising
from tests.support.jobs import READ_ONCE


@pytest.fixture
def folder(photographs, tmp_path):
    """A copy that a test may damage."""
    return Path(shutil.copytree(photographs, tmp_path / "images"))


@pytest.fixture
def arrays(tmp_path):
    return ArraySource(data.noise(tmp_path / "digits.npz", 10, side=8), (1, 8, 8))


@pytest.mark.parametrize(("mode", "readers"), [("disk", 0), ("disk", 2), ("memory", 1)])
def test_arrays_come_in_order_bit_for_bit(opened, arrays, photographs, readers, mode):
    source, shape = (arrays, (1, 8, 8)) if mode == "disk" else (InMemory(of(photographs)), (3, CROP, CROP))
    ours, view = opened(source, shape, {"repeat": 2}, readers=readers, batch=4)
    assert ours.notes()["reader"].startswith("tf.data: gathered from memory")
    assert "nothing is copied" in ours.notes()["h2d"]
    for batch, indices in zip(read(ours, 9), batches_of_indices(view, ours.setup), strict=False):
        np.testing.assert_array_equal(batch.inputs, np.stack([view.sample(index)[0] for index in indices]))
        assert batch.labels.tolist() == [view.sample(index)[1] for index in indices]


def test_many_positions_follow_on_one_another(opened, arrays, monkeypatch):
    monkeypatch.setattr("stagebench.adapters.tensorflow.input.POSITIONS", 8)
    ours, view = opened(arrays, (1, 8, 8), readers=1, batch=4)
    wanted = list(itertools.islice(batches_of_indices(view, ours.setup), 60))
    assert [batch.labels.tolist() for batch in read(ours, 60)] == [[view.index(p) for p in each] for each in wanted]


@pytest.mark.parametrize("options", [{}, {"layout": "NCHW", "xla": "step"}, {"precision": "float64"}])
def test_images_reach_the_device_as_they_are(opened, photographs, options):
    ours, _ = opened(of(photographs), (3, CROP, CROP), readers=1, batch=3, **options)
    batch = ours.next_batch()
    host, placed = ours.as_numpy(batch), ours.to_device(batch)
    by_hand = ours.to_device(host)
    for each in (placed, by_hand):
        assert each.inputs[0].dtype == options.get("precision", "float32")
        found = each.inputs[0].numpy()
        found = found if "layout" in options else found.transpose(0, 3, 1, 2)
        np.testing.assert_array_equal(found, host.inputs)
        assert each.labels[0].numpy().tolist() == host.labels.tolist()


# --- random crops -----------------------------------------------------------------------------------


def boxed(width, height):
    sides = [tf.constant(each, tf.float64) for each in (width, height)]
    box = partial(pixels.random_box, PHOTOGRAPHS, width=sides[0], height=sides[1])
    return tf.function(lambda draws: tf.map_fn(box, draws), autograph=False)


def test_boxes_have_the_areas_and_sides_of_the_paper():
    stream = np.random.RandomState(1)
    for width, height in ((500, 375), (120, 600)):  # the second hardly fits a sideways box
        draws = stream.random_sample((2000, pixels.TRIES, 4))
        ours = boxed(width, height)(tf.constant(draws)).numpy()
        theirs = np.array([random_box(PHOTOGRAPHS, stream, width, height) for _ in range(2000)])
        sides = ours[:, 2:] - ours[:, :2]
        assert (ours >= -1e-9).all()
        assert (ours[:, 2:] <= np.array([width, height]) + 1e-9).all()
        ratios, shares = sides[:, 0] / sides[:, 1], sides.prod(1) / (width * height)
        assert ratios.min() > 3 / 4 - 1e-9
        assert ratios.max() < 4 / 3 + 1e-9
        assert shares.min() > 0.08 - 1e-9
        np.testing.assert_allclose(ours.mean(0), theirs.mean(0), atol=0.03 * max(width, height))
        np.testing.assert_allclose(ours.std(0), theirs.std(0), atol=0.03 * max(width, height))
    [nothing] = boxed(10, 900)(tf.fill([1, pixels.TRIES, 4], tf.constant(0.99, tf.float64)))
    np.testing.assert_allclose(nothing, [0, 445, 10, 455], err_msg="no try fits: the centre square")


def test_a_random_crop_shows_what_lies_in_its_box_and_half_of_them_are_flipped(tmp_path):
    """An image whose colours tell where they were, cut many times."""
    values = np.zeros((375, 500, 3), np.uint8)
    values[..., 0], values[..., 1] = np.arange(500) // 2, (np.arange(375) // 2)[:, None]
    Image.fromarray(values).save(tmp_path / "a.png")
    Image.fromarray(values).save(tmp_path / "a.jpg", quality=100, subsampling=0)
    encoded = [tf.io.read_file(str(tmp_path / name)) for name in ("a.png", "a.jpg")]
    cut = pixels.Pixels(PHOTOGRAPHS, CROP, True, 1)
    run = tf.function(cut)
    scale, mean = np.array(PHOTOGRAPHS.deviation), np.array(PHOTOGRAPHS.mean)
    flips, boxes = 0, set()
    for position in range(100):
        png, jpeg = (run(each, tf.constant(position, tf.int64)).numpy() * scale + mean for each in encoded)
        assert np.abs(png - jpeg).mean() < 1.5, "the same box, whatever the kind of file"
        left, right, top, bottom = png[16, 0, 0], png[16, -1, 0], png[0, 16, 1], png[-1, 16, 1]
        flips += left > right
        width, height = 2 * abs(right - left) * CROP / (CROP - 1), 2 * (bottom - top) * CROP / (CROP - 1)
        assert 0.06 < width * height / (500 * 375) < 1.02
        assert 0.7 < width / height < 1.43
        boxes.add((round(min(left, right)), round(top), round(width)))
    assert 30 < flips < 70
    assert len(boxes) > 90


# --- errors -----------------------------------------------------------------------------------------


DAMAGES = {
    "no picture": lambda path: path.write_bytes(b"not a picture"),
    "a bomb": lambda path: path.write_bytes(data.BOMB),
    "empty": lambda path: path.write_bytes(b""),
    "cut off": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
}


@pytest.mark.parametrize(("damage", "readers"), [*zip(DAMAGES, (0, 1, 2, 3), strict=True)])
def test_an_unreadable_image_is_named_when_its_batch_is_due(opened, folder, readers, damage):
    source = of(folder)
    order = list(View(source, READ_ONCE, 1, "").order(0, 1, 0, 1))
    path = Path(source.files[order[5]][0])
    DAMAGES[damage](path)
    ours, _ = opened(source, (3, CROP, CROP), readers=readers, batch=2)
    assert [len(batch.labels) for batch in read(ours, 2)] == [2, 2]
    with raising(OSError, path):
        ours.next_batch()


def test_a_file_that_went_away_is_named(opened, folder):
    source = of(folder)
    for path, _ in source.files:
        os.remove(path)
    ours, _ = opened(source, (3, CROP, CROP), readers=1)
    with pytest.raises(OSError, match=r"class\d/\w\.\w+"):
        ours.next_batch()


def test_what_only_pillow_reads_has_its_pixels(opened, folder):
    """A file of each kind, by another kind's name."""
    source = of(folder)
    kinds = [("TIFF", "RGB"), ("WEBP", "RGB"), ("GIF", "P"), ("BMP", "RGB"), ("JPEG", "CMYK"), ("PNG", "1")]
    for number, (path, _) in enumerate(source.files):
        image = Image.open(path).convert("RGB")
        if number < len(kinds):
            form, mode = kinds[number]
            image.convert(mode).save(path, form)
        else:
            Image.fromarray(np.asarray(image.convert("L")).astype(np.uint16) * 257).save(path, "PNG")
    ours, view = opened(source, (3, CROP, CROP), readers=1, batch=9)
    [batch], positions = read(ours, 1), next(batches_of_indices(view, ours.setup))
    apart = levels_apart(batch.inputs, np.stack([view.sample(position)[0] for position in positions]))
    assert apart.max() < 2.01


def test_what_is_to_be_skipped_is_read_with_threads(opened, folder):
    source = of(folder)
    DAMAGES["no picture"](Path(source.files[0][0]))
    ours, view = opened(source, (3, CROP, CROP), {"on_error": "skip"}, readers=2, batch=9)
    assert read(ours, 1)[0].inputs.shape == (9, 3, CROP, CROP)
    assert sum(view.skipped().values()) >= 1
    assert ours.notes()["reader"].endswith("not tf.data: unreadable samples are to be skipped")


def test_fewer_samples_than_ranks_are_refused(opened, arrays, packed):
    for source, shape in ((arrays, (1, 8, 8)), (packed, (3, CROP, CROP))):
        with pytest.raises(ValueError, match="fewer samples"):
            opened(source, shape, rank=0, world=11)


# --- threads ----------------------------------------------------------------------------------------


ENDING = """
import sys
from tests.support.trainers import by_strategy
from stagebench.suite.worker.sources import ArraySource
from stagebench.suite.worker.view import InMemory, View
from tests.support import jobs, trainers
from stagebench.workloads import weights
from stagebench.workloads.build import Builder
import stagebench.adapters.tensorflow.input
stagebench.adapters.tensorflow.input.POSITIONS = 1
trainer = by_strategy("tensorflow")(trainers.setup(readers=2))
trainer.start()
b = Builder("flat", (1, 8, 8), 10)
b.head(b.dense("out", b.flatten("f", "input"), 10))
trainer.build(b.graph, dict(weights.initial(b.graph)))
trainer.open_input(View(ArraySource({path!r}, (1, 8, 8)), jobs.READ_ONCE, 1, ""))
trainer.next_batch()
sys.exit(3)
"""


def test_a_process_ends_in_the_midst_of_reading(arrays, tmp_path):
    script = ENDING.format(path=str(tmp_path / "digits.npz"))
    environ = processes.variables()
    done = subprocess.run([sys.executable, "-c", script], env=environ, timeout=300, check=False)
    assert done.returncode == 3


class TestReading(Reading):
    formats, most = ("tfrecord",), 2.01  # a level for the rounding of each of Pillow's two passes
    words = (("files", "tf.data: decode_and_crop_jpeg"), ("tfrecord", "tf.data on TFRecord: 2 parts in turns"))

    def records(self, folder):
        return folder / "part-00001" / tfrecord.FILE


@pytest.mark.parametrize(("damage", "readers"), [("cut off", 0), ("a wrong byte", 2)])
def test_a_broken_record_file_is_named(opened, packed, readers, damage):
    path = Path(packed.parts[1]) / tfrecord.FILE
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content[: len(content) // 2] if damage == "cut off" else content)
    ours, _ = opened(packed, (3, CROP, CROP), readers=readers, batch=1)
    with raising(OSError, path):
        read(ours, 12)


def test_an_image_that_tensorflow_cannot_read_is_named_in_its_record_file(opened, packed):
    path = os.path.join(packed.parts[1], tfrecord.FILE)
    parsed = [tf.train.Example.FromString(record.numpy()) for record in tfrecord.opened(path)]
    parsed[2].features.feature["image/encoded"].bytes_list.value[0] = b"not a picture"
    name = parsed[2].features.feature["image/filename"].bytes_list.value[0].decode()
    with tf.io.TFRecordWriter(path) as writer:
        for each in parsed:
            writer.write(each.SerializeToString())
    ours, _ = opened(packed, (3, CROP, CROP), readers=1, batch=1)
    with raising(OSError, name, path):
        read(ours, 12)


def test_records_hold_the_files_byte_for_byte(packed, photographs):
    found = {}
    for part in packed.parts:
        for record in tfrecord.opened(os.path.join(part, tfrecord.FILE)):
            features = tf.train.Example.FromString(record.numpy()).features.feature
            name = features["image/filename"].bytes_list.value[0].decode()
            found[name] = features["image/encoded"].bytes_list.value[0]
    assert found == {f"{path.parent.name}/{path.name}": path.read_bytes() for path in photographs.glob("*/*")}
