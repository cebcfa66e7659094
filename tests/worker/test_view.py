"""A data set as a case wants it: repeated, augmented, skipped, in memory, in or out of the page cache (files, too)."""

import ctypes
import itertools
import mmap
import os

import numpy as np
import pytest
from toy import Numbers

from stagebench.suite.worker import view
from stagebench.suite.worker.feed import Reading
from stagebench.suite.worker.machine import HostMemory
from stagebench.suite.worker.photographs import random_box
from stagebench.suite.worker.sources import FolderSource
from stagebench.suite.worker.threaded import ThreadedReader
from stagebench.suite.worker.view import InMemory, View, page_cache
from stagebench.workloads.catalogue import PHOTOGRAPHS
from tests.support import trainers
from tests.support.errors import raising
from tests.support.jobs import READ_ONCE


@pytest.fixture
def seen(tmp_path):
    def make(source, **changes):
        return View(source, READ_ONCE._replace(**changes), 1, str(tmp_path / "skipped.txt"))

    return make


@pytest.fixture
def folder(tmp_path):
    """One image whose pixels tell where they were."""
    image = pytest.importorskip("PIL.Image")
    (tmp_path / "photographs" / "class").mkdir(parents=True)
    pixels = np.zeros((96, 128, 3), np.uint8)
    pixels[..., 0], pixels[..., 1] = np.arange(128) * 2, np.arange(96)[:, None] * 2
    image.fromarray(pixels).save(str(tmp_path / "photographs" / "class" / "a.png"))
    return FolderSource(str(tmp_path / "photographs"), (3, 32, 32))


def labels(source, epoch, world=1):
    return [source.sample(index)[1] for rank in range(world) for index in source.order(epoch, 1, rank, world)]


def test_an_epoch_of_a_repeated_set_has_every_sample_that_often_for_all_readers(seen):
    twice = seen(Numbers(classes=10), repeat=2)
    assert (len(twice), twice.name) == (20, "numbers, 2 times")
    assert sorted(labels(twice, 3, world=2)) == sorted([*range(10), *range(10)])
    assert labels(twice, 0) != labels(twice, 1)
    positions = list(itertools.chain(*(seen(Numbers(classes=10)).order(2, 1, rank, 2) for rank in range(2))))
    assert sorted(positions) == list(range(20, 30))


def test_unreadable_samples_fail_or_are_replaced_while_some_can_be_read(seen):
    with pytest.raises(OSError, match="cannot read number 3"):
        labels(seen(Numbers(classes=10, unreadable=(3,))), 0)
    skipping = seen(Numbers(classes=10, unreadable=(3, 4)), on_error="skip")
    assert sorted(labels(skipping, 0)) == [0, 1, 2, 5, 5, 5, 6, 7, 8, 9]
    assert skipping.skipped() == {"cannot read number 3": 1, "cannot read number 4": 2}
    with raising(OSError, 2, "numbers"):
        labels(seen(Numbers(2, 10, unreadable=(0, 1)), on_error="skip"), 0)


@pytest.mark.parametrize("readers", [0, 2])
def test_readers_skip_and_the_notes_name_what(tmp_path, readers):
    reading = Reading(
        Numbers(classes=10, unreadable=(3,)), READ_ONCE._replace(on_error="skip"), trainers.setup(seed=1), str(tmp_path)
    )
    reader = ThreadedReader(reading.view, trainers.setup(batch=5, readers=readers, prefetch=1))
    read = np.concatenate([reader.next_batch().labels for _ in range(4)])
    reader.close()
    assert 3 not in read
    skipped = reading.notes()["skipped"]
    assert skipped["samples"] == 1
    assert skipped["reads"] >= 2  # what is read ahead counts too
    assert skipped["which"][0].startswith("cannot read number 3 (")
    again = Reading(Numbers(classes=10), READ_ONCE, trainers.setup(seed=1), str(tmp_path))
    assert again.notes() == {"data": "numbers"}, "an earlier attempt's are forgotten"


def test_random_crops_are_other_ones_in_every_epoch_and_the_same_again(seen, folder):
    one, again = seen(folder, augment="random"), seen(folder, augment="random")
    first, second = one.sample(0)[0], one.sample(1)[0]  # the only image, in its first and second epoch
    assert np.abs(first - second).max() > 0.1
    np.testing.assert_array_equal(first, again.sample(0)[0])
    other = View(folder, READ_ONCE._replace(augment="random"), 2, "unused").sample(0)[0]
    assert np.abs(first - other).max() > 0.1
    np.testing.assert_array_equal(seen(folder).sample(5)[0], folder.sample(0)[0])


def test_crops_have_the_sides_and_areas_of_the_paper_and_half_of_them_are_flipped(folder):
    stream = np.random.RandomState(0)
    boxes = [random_box(PHOTOGRAPHS, stream, 500, 375) for _ in range(500)]
    for left, top, right, bottom in boxes:
        assert 0 <= left < right <= 500
        assert 0 <= top < bottom <= 375
        assert 0.74 < (right - left) / (bottom - top) < 1.34
        assert 0.07 < (right - left) * (bottom - top) / (500 * 375) <= 1.0
    assert len({tuple(box) for box in boxes}) == 500
    rising = [folder.augmented(0, np.random.RandomState(seed))[0][0, 16] for seed in range(200)]
    assert 60 < sum(row[-1] > row[0] for row in rising) < 140


def test_in_memory_everything_is_read_once_and_what_would_not_fit_is_refused_with_the_sizes(tmp_path, monkeypatch):
    source = Numbers(classes=10)
    reading = Reading(source, READ_ONCE._replace(mode="memory", repeat=3), trainers.setup(seed=1), str(tmp_path))
    read = source.reads
    assert len(reading.view) == 30
    for epoch in range(3):
        assert sorted(set(labels(reading.view, epoch))) == list(range(10))
    assert source.reads == read == 11  # the first once more, for its size
    assert reading.view.name == "numbers, in memory, 3 times"
    monkeypatch.setattr(view, "memory", lambda: HostMemory(80.0, 40.0))
    with raising(MemoryError, "numbers", "0.0"):
        InMemory(source)


SIZE = 1 << 22


def test_files_leave_the_page_cache_and_come_back(tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.write_bytes(os.urandom(1 << 20))
    advice = []
    monkeypatch.setattr(os, "posix_fadvise", lambda *what: advice.append(what[1:]))
    page_cache([str(path)], "as is")
    page_cache([str(path)], "warm")
    assert advice == []
    page_cache([str(path)], "cold")
    assert advice == [(0, 0, os.POSIX_FADV_DONTNEED)]
    with pytest.raises(OSError, match="nowhere"):
        page_cache([str(tmp_path / "nowhere")], "cold")


def test_a_mapped_file_leaves_it_too(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(os.urandom(SIZE))
    os.sync()  # what is not written yet cannot be dropped
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        page_cache([str(path)], "cold")
        if there(path) > SIZE // 2:
            pytest.skip("this file system keeps its files in memory")
        content = bytes(mapped)
        assert there(path) == SIZE
        page_cache([str(path)], "cold")
        assert there(path) < SIZE // 2
        assert bytes(mapped) == content == path.read_bytes()


def there(path):
    """Bytes of a file that are in the page cache, as mincore(2) tells."""
    with path.open("r+b") as stream, mmap.mmap(stream.fileno(), 0) as mapped:
        pages = (ctypes.c_ubyte * (SIZE // mmap.PAGESIZE))()
        held = ctypes.c_char.from_buffer(mapped)
        failed = ctypes.CDLL(None).mincore(ctypes.c_void_p(ctypes.addressof(held)), ctypes.c_size_t(SIZE), pages)
        del held
        assert not failed
        return sum(page & 1 for page in pages) * mmap.PAGESIZE
