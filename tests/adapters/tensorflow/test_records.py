"""TFRecord: every sample once an epoch, whole, and what is broken is named."""

import os
from pathlib import Path

import pytest
import tensorflow as tf

from adapters.tensorflow import input as tfrecord
from tests.adapters.tensorflow.pictures import CROP, read
from tests.support.errors import raising


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
