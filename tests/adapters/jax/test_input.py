"""JAX has no reader of its own: batches are taken out of memory, files are read with threads."""

import numpy as np
import pytest
from PIL import Image

from suite.worker.sources import ArraySource, FolderSource
from suite.worker.threaded import batches_of_indices
from suite.worker.view import View
from tests.support.jobs import READ_ONCE
from workloads import weights
from workloads.networks.mnist import mnist_small

ASKED = READ_ONCE


def test_arrays_are_taken_out_of_memory_in_order(trainer, tmp_path):
    pixels = np.random.RandomState(0).randint(0, 255, (10, 28, 28)).astype(np.uint8)
    np.savez(tmp_path / "digits.npz", images=pixels, labels=np.arange(10))
    view = View(ArraySource(str(tmp_path / "digits.npz"), (1, 28, 28)), ASKED, 1, "unused")
    ours = trainer(batch=4)
    ours.build(mnist_small(), dict(weights.initial(mnist_small())))
    ours.open_input(view)
    wanted = batches_of_indices(view, ours.setup)
    for _ in range(6):  # runs into the third epoch
        batch, positions = ours.next_batch(), next(wanted)
        np.testing.assert_array_equal(batch.images, np.stack([view.sample(at)[0] for at in positions]))
        assert batch.labels.tolist() == [view.sample(at)[1] for at in positions]
    placed = ours.to_device(batch)
    np.testing.assert_array_equal(np.asarray(placed.images).transpose(0, 3, 1, 2), batch.images)
    assert ours.notes()["reader"] == "batches taken out of memory (JAX has no reader of its own)"


@pytest.mark.parametrize("augment", ["centre", "random"])
def test_files_are_read_with_threads(trainer, tmp_path, augment):
    (tmp_path / "images" / "class").mkdir(parents=True)
    for number in range(5):
        pixels = np.random.RandomState(number).randint(0, 255, (40, 50, 3)).astype(np.uint8)
        Image.fromarray(pixels).save(tmp_path / "images" / "class" / f"{number}.jpg")
    source = FolderSource(str(tmp_path / "images"), (3, 32, 32))
    view = View(source, ASKED._replace(augment=augment), 1, "unused")
    ours = trainer(batch=2, readers=2)
    ours.open_input(view)
    wanted = batches_of_indices(view, ours.setup)
    for _ in range(5):
        positions = next(wanted)
        np.testing.assert_array_equal(ours.next_batch().images, np.stack([view.sample(at)[0] for at in positions]))
    (tmp_path / "images" / "class" / "3.jpg").write_bytes(b"not a picture")
    with pytest.raises(OSError, match=r"cannot read the image .*3\.jpg"):
        [ours.next_batch() for _ in range(9)]
