"""TFRecord: every sample once an epoch, whole, and what is broken is named."""

import itertools
import os
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from adapters.tensorflow import input as tfrecord
from tests.adapters.tensorflow.pictures import CROP, levels_apart, of, read
from tests.support.errors import raising


def numbers(batches, source):
    """Which of the source's samples these are; the labels must be theirs."""
    plain = [source.sample(index) for index in range(len(source))]
    found = []
    for batch in batches:
        for image, label in zip(batch.images, batch.labels, strict=True):
            apart = [levels_apart(image, each).mean() for each, _ in plain]
            found.append(int(np.argmin(apart)))
            assert apart[found[-1]] < 0.3
            assert label == plain[found[-1]][1]
    return found


@pytest.mark.parametrize("readers", [0, 3])
def test_records_come_once_an_epoch_in_another_order_every_time(opened, packed, photographs, readers):
    ours, _ = opened(packed, (3, CROP, CROP), readers=readers, batch=3)
    assert ours.notes()["reader"].startswith("tf.data on TFRecord: 2 parts in turns")
    found = numbers(read(ours, 12), of(photographs))
    epochs = [found[begin : begin + 9] for begin in range(0, 36, 9)]
    assert [sorted(epoch) for epoch in epochs] == [list(range(9))] * 4
    assert len(set(map(tuple, epochs))) > 1


def test_ranks_share_the_records(opened, packed, photographs):
    whole, world = [], 2
    for rank in range(world):
        ours, _ = opened(packed, (3, CROP, CROP), rank=rank, world=world, readers=1, batch=1)
        share = len(range(rank, 9, world))
        found = numbers(read(ours, 2 * share), of(photographs))
        assert sorted(found[:share]) == sorted(found[share:]), "the same share in every epoch"
        whole += found[:share]
    assert sorted(whole) == list(range(9))


def test_random_crops_of_records_change(opened, packed):
    ours, _ = opened(packed, (3, CROP, CROP), {"augment": "random"}, readers=1, batch=9)
    first, second = (batch.images for batch in read(ours, 2))
    assert min(np.abs(a - b).max() for a, b in itertools.product(first, second)) > 0.0


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
