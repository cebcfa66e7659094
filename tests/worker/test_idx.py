"""MNIST's own files: read as they are, and refused when they are not what they say."""

import gzip
import struct

import numpy as np
import pytest

from stagebench.suite.worker import array_files
from stagebench.suite.worker.job import DataSet
from stagebench.suite.worker.sources import ArraySource, open_source
from tests.support.errors import raising
from tests.support.memory import little_memory

IMAGES = (np.arange(5 * 28 * 28) % 251).astype(np.uint8).reshape(5, 28, 28)
LABELS = np.arange(5, dtype=np.uint8)


def content(values):
    return struct.pack(">4B%dI" % values.ndim, 0, 0, 8, values.ndim, *values.shape) + values.tobytes()


@pytest.fixture(params=["", ".gz"])
def mnist(tmp_path, request):
    for name, values in zip(array_files.PARTS["train"], (IMAGES, LABELS)):
        data = gzip.compress(content(values)) if request.param else content(values)
        (tmp_path / (name + request.param)).write_bytes(data)
    return tmp_path


def test_the_files_are_read_plain_and_gzipped_and_are_a_source(mnist):
    images, labels = (array_files.read_idx(path) for path in array_files.idx_files(str(mnist)))
    np.testing.assert_array_equal(images, IMAGES)
    np.testing.assert_array_equal(labels, LABELS)
    assert array_files.idx_shape(array_files.idx_files(str(mnist))[0]) == (5, 28, 28)
    assert array_files.idx_files(str(mnist), "test") is None
    source = open_source(DataSet("arrays", str(mnist)), (1, 28, 28), 10)
    assert (len(source), source.classes, source.sample(3)[1]) == (5, 5, 3)
    assert source.sample(0)[0].shape == (1, 28, 28)


def filled(folder, images=IMAGES, labels=LABELS, dash="-"):
    for name, values in zip(array_files.PARTS["train"], (images, labels)):
        (folder / name.replace("-idx", dash + "idx")).write_bytes(content(values))
    return str(folder)


def test_a_dot_for_the_dash_is_known_too_and_labels_that_do_not_match_are_counted(tmp_path):
    assert array_files.idx_files(filled(tmp_path, dash=".")) is not None
    with raising(ValueError, 5, 4):
        ArraySource(filled(tmp_path, labels=LABELS[:4]), (1, 28, 28))


PACKED = gzip.compress(content(IMAGES))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"PK\3\4", "is no idx file of bytes: it begins with b'PK"),
        (content(IMAGES)[:9], "ends within its header"),
        (content(IMAGES)[:-1], "holds 3919 values, its header says 5x28x28"),
        (struct.pack(">4B", 0, 0, 13, 1), "is no idx file of bytes"),
        (PACKED[:-20], "cut short"),
        (gzip.compress(content(IMAGES) + bytes(1 << 20)), "holds 3921 values, its header says 5x28x28"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",  # a gzip's bytes hold the time
)
def test_what_is_damaged_is_named_and_no_more_is_unpacked_than_the_header_says(tmp_path, data, words):
    path = tmp_path / ("train-images-idx3-ubyte" + ".gz" * data.startswith(PACKED[:2]))
    path.write_bytes(data)
    with pytest.raises(ValueError, match="train-images") as error:
        array_files.read_idx(str(path))
    assert words in str(error.value)


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("extents", [(2**31 - 1, 1, 1), (2**31, 2**31, 2**31)])
def test_nothing_is_allocated_that_only_the_header_says(tmp_path, suffix, extents):
    path = tmp_path / ("train-images-idx3-ubyte" + suffix)
    promise = struct.pack(">4B3I", 0, 0, 8, 3, *extents) + b"1234"
    path.write_bytes(gzip.compress(promise) if suffix else promise)
    with little_memory(), pytest.raises(ValueError, match=r"train-images.*; (fetch|write) it again"):
        array_files.read_idx(str(path))
