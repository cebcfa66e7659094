"""Arrays, image folders, orders, and the threaded reader."""

import itertools
import threading

import numpy as np
import pytest
import toy

from stagebench.suite.worker.job import DataSet
from stagebench.suite.worker.sources import ArraySource, FolderSource, open_source, split
from stagebench.suite.worker.threaded import GatheringReader, Reader, ThreadedReader, batches_of_indices
from stagebench.suite.worker.trainer import Trainer
from stagebench.suite.worker.view import View
from stagebench.workloads.catalogue import PHOTOGRAPHS
from tests.support import data, trainers
from tests.support.errors import raising
from tests.support.jobs import READ_ONCE

RED, GREEN = (200, 30, 60), (10, 220, 90)


@pytest.fixture
def photographs(tmp_path):
    """Three classes of single-coloured JPEGs, 4 + 3 + 2 images, and a file that is no image."""
    image = pytest.importorskip("PIL.Image")
    for name, count in (("b_ant", 3), ("a_bee", 4), ("c_cat", 2)):
        folder = tmp_path / "photographs" / name
        folder.mkdir(parents=True)
        (folder / "README.txt").write_text("not an image")
        for index in range(count):
            image.new("RGB", (60, 40), RED).save(str(folder / ("%d.JPG" % index)), "JPEG", quality=95)
    (tmp_path / "photographs" / "list.txt").write_text("not a class")
    return tmp_path / "photographs"


@pytest.fixture
def arrays(tmp_path):
    """Ten 4 x 4 images whose first pixel is their index."""
    images = np.random.RandomState(0).randint(0, 255, (10, 4, 4)).astype(np.uint8)
    images[:, 0, 0] = np.arange(10)
    path = tmp_path / "ten.npz"
    np.savez(str(path), images=images, labels=np.arange(10) % 3)
    return str(path), images


def test_a_folder_is_read_class_by_class_in_sorted_order(photographs):
    source = FolderSource(str(photographs), (3, 32, 32))
    assert (len(source), source.classes) == (9, 3)
    assert [label for _, label in source.files] == [0] * 4 + [1] * 3 + [2] * 2
    assert source.name == "photographs (9 images, 3 classes)"
    pixels, label = source.sample(8)
    assert (pixels.shape, pixels.dtype, label) == ((3, 32, 32), np.float32, 2)
    wanted = [(RED[c] - PHOTOGRAPHS.mean[c]) / PHOTOGRAPHS.deviation[c] for c in range(3)]
    assert pixels.reshape(3, -1).mean(axis=1) == pytest.approx(wanted, abs=0.05)
    (photographs / ".ipynb_checkpoints").mkdir()
    source = FolderSource(str(photographs), (3, 32, 32))
    assert source.name.endswith("classes; left out 1, neither a class nor an image: .ipynb_checkpoints/)")
    assert source.sample(0)[1] == 0


@pytest.mark.parametrize("size", [(300, 200), (200, 300)])
def test_the_crop_is_the_centre_of_the_shorter_side(tmp_path, size):
    image = pytest.importorskip("PIL.Image")
    picture = image.new("RGB", size, RED)
    side = int(200 * 224 / 256)
    corner = (size[0] - side) // 2, (size[1] - side) // 2
    picture.paste(GREEN, corner + (corner[0] + side, corner[1] + side))
    (tmp_path / "class").mkdir()
    picture.save(str(tmp_path / "class" / "one.png"))
    source = FolderSource(str(tmp_path), (3, 224, 224))
    pixels = source.photographs.levels(source.sample(0)[0])
    assert pixels.shape == (3, 224, 224)
    assert (abs(pixels[:, 4:-4, 4:-4] - np.array(GREEN).reshape(3, 1, 1)) <= 1.01).all()


@pytest.mark.parametrize("damage", [b"", b"this is no image", data.BOMB, None])
def test_an_unreadable_image_is_named(photographs, damage):
    victim = photographs / "b_ant" / "1.JPG"
    victim.write_bytes(victim.read_bytes()[:400] if damage is None else damage)
    source = FolderSource(str(photographs), (3, 32, 32))
    with raising(OSError, "b_ant/1.JPG"):
        source.sample(5)


def test_a_part_of_a_folder_tells_how_its_files_are_cut(photographs):
    source = FolderSource(str(photographs), (3, 32, 32))
    learning, testing = split(source, 0.5)
    for part in (learning, testing):
        assert part.photographs is source.photographs
        for index, (path, label) in enumerate(part.files):
            image, found = part.sample(index)
            np.testing.assert_array_equal(image, part.photographs.centre(path, path))
            assert found == label


def test_arrays_are_scaled_keep_their_labels_and_have_the_network_s_size(arrays):
    path, images = arrays
    source = ArraySource(path, (1, 4, 4))
    assert (len(source), source.name) == (10, "ten.npz (10 samples)")
    whole = np.stack([source.sample(i)[0] for i in range(10)])
    assert (whole.shape, whole.dtype) == ((10, 1, 4, 4), np.float32)
    assert whole.mean() == pytest.approx(0.0, abs=1e-5)
    assert whole.std() == pytest.approx(1.0, abs=1e-5)
    assert [source.sample(i)[1] for i in range(4)] == [0, 1, 2, 0]
    assert np.corrcoef(whole.reshape(-1), images.reshape(-1))[0, 1] == pytest.approx(1.0)
    with raising(ValueError, "ten.npz", "4, 4", "1, 28, 28"):
        ArraySource(arrays[0], (1, 28, 28))
    view = View(ArraySource(arrays[0], (1, 4, 4)), READ_ONCE._replace(augment="random"), 1, "unused")
    assert view.arrays is None
    with pytest.raises(ValueError, match="image folders"):
        view.sample(0)


def test_a_job_names_its_kind_of_data(arrays, photographs):
    assert isinstance(open_source(DataSet("arrays", arrays[0]), (1, 4, 4), 10), ArraySource)
    assert isinstance(open_source(DataSet("folder", str(photographs)), (3, 32, 32), 3), FolderSource)
    with raising(ValueError, "lmdb"):
        open_source(DataSet("lmdb", "x"), (3, 32, 32), 3)
    with raising(ValueError, 3, 2):
        open_source(DataSet("folder", str(photographs)), (3, 32, 32), 2)


def numbers(count, **unreadable):
    """Sample i is the number i, of a class of its own."""
    return toy.Numbers(count, classes=count, **unreadable)


@pytest.mark.parametrize(("count", "world"), [(10, 1), (10, 2), (11, 3), (3, 3)])
def test_ranks_share_an_epoch_without_overlap(count, world):
    source = numbers(count)
    shares = [list(source.order(4, 1, rank, world)) for rank in range(world)]
    assert {len(part) for part in shares} == {count // world}
    joined = [index for part in shares for index in part]
    assert len(set(joined)) == len(joined) == count // world * world
    # ... and together they are what one rank would have seen, in turns
    alone = list(source.order(4, 1, 0, 1))
    assert [shares[i % world][i // world] for i in range(len(joined))] == alone[: len(joined)]


def test_epochs_and_seeds_are_shuffled_differently_and_repeatably():
    source = numbers(50)
    orders = [tuple(source.order(epoch, seed, 0, 1)) for epoch in (0, 1) for seed in (1, 2)]
    assert len(set(orders)) == 4
    assert all(sorted(order) == list(range(50)) for order in orders)
    assert tuple(source.order(0, 1, 0, 1)) == orders[0]


def test_batches_run_into_the_next_epoch_and_want_a_sample_for_each_rank():
    source, setup = numbers(10), trainers.setup(batch=4)
    batches = list(itertools.islice(batches_of_indices(source, setup), 5))
    assert [len(batch) for batch in batches] == [4] * 5
    together = [index for batch in batches for index in batch]
    assert together == list(source.order(0, 1, 0, 1)) + list(source.order(1, 1, 0, 1))
    (batch,) = itertools.islice(batches_of_indices(numbers(3), trainers.setup(batch=8)), 1)
    assert len(batch) == 8
    with raising(ValueError, "numbers", 3):
        next(batches_of_indices(numbers(2), trainers.setup(world=3)))


@pytest.mark.parametrize("readers", [0, 1, 3])
def test_batches_come_in_order_whatever_the_readers_whose_error_reaches_the_training(readers):
    source, setup = numbers(10), trainers.setup(readers=readers)
    reader = ThreadedReader(source, setup)
    for wanted in itertools.islice(batches_of_indices(source, setup), 6):
        batch = reader.next_batch()
        assert batch.labels.tolist() == wanted
        assert batch.inputs[:, 0, 0, 0].tolist() == wanted
        assert (batch.inputs.dtype, batch.labels.dtype) == (np.float32, np.int64)
    reader.close()
    reader = ThreadedReader(numbers(4, unreadable=(2,)), setup)
    with pytest.raises(OSError, match="cannot read number 2"):
        reader.next_batch()
    reader.close()


@pytest.mark.parametrize("repeat", [1, 3])
def test_what_lies_in_memory_is_taken_out_in_the_same_order(arrays, repeat):
    asked = READ_ONCE._replace(repeat=repeat)
    view = View(ArraySource(arrays[0], (1, 4, 4)), asked, 1, "unused")
    setup = trainers.setup(readers=2, batch=3)
    taken, threads = GatheringReader(view, setup), ThreadedReader(view, setup)
    for _ in range(20):
        ours, theirs = taken.next_batch(), threads.next_batch()
        np.testing.assert_array_equal(ours.inputs, theirs.inputs)
        np.testing.assert_array_equal(ours.labels, theirs.labels)
        assert (ours.inputs.dtype, ours.labels.dtype) == (np.float32, np.int64)
    threads.close()


def test_a_trainer_reads_arrays_from_memory_by_default_and_the_rest_with_threads_until_it_is_closed(arrays):
    class Plain(toy.ToyTrainer):
        next_batch, close = Trainer.next_batch, Trainer.close

    before, trainer = threading.active_count(), Plain(trainers.setup(readers=3))
    trainer.open_input(ArraySource(arrays[0], (1, 4, 4)))
    assert trainer.next_batch().inputs.shape == (4, 1, 4, 4)
    assert isinstance(trainer._reader, GatheringReader)
    trainer.open_input(numbers(40))
    assert isinstance(trainer._reader, ThreadedReader)
    assert trainer.next_batch().labels.shape == (4,)
    assert threading.active_count() > before
    trainer.close()
    assert threading.active_count() == before


class Opened(Reader):
    """Notes whether it is open."""

    words = "a reader of its own"

    def __init__(self, source):
        if source == "broken":
            raise OSError("cannot read it")
        self.source, self.open = source, True

    def next_batch(self):
        return self.source

    def close(self):
        assert self.open
        self.open = False


class Reading(toy.ToyTrainer):
    """Takes a reader of its own, and leaves the rest to the base."""

    next_batch, close = Trainer.next_batch, Trainer.close

    def make_reader(self, source):
        return Opened(source)


def test_a_trainer_closes_what_it_has_opened_even_where_the_next_cannot_be_made():
    trainer = Reading(trainers.setup())
    assert trainer.notes() == {}
    trainer.open_input("one")
    one = trainer._reader
    assert (trainer.next_batch(), trainer.notes()) == ("one", {"reader": "a reader of its own"})
    trainer.open_input("two")
    two = trainer._reader
    assert (one.open, two.open, trainer.next_batch()) == (False, True, "two")
    with pytest.raises(OSError, match="cannot read it"):
        trainer.open_input("broken")
    for _ in range(2):
        trainer.close()
        assert not two.open
