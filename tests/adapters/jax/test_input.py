"""JAX has no reader of its own: batches are taken out of memory, files are read with threads."""

import numpy as np
import pytest

from suite.worker.sources import FolderSource
from suite.worker.threaded import batches_of_indices
from suite.worker.view import View
from tests.support import data
from tests.support.errors import raising
from tests.support.jobs import READ_ONCE


@pytest.mark.parametrize("augment", ["centre", "random"])
def test_files_are_read_with_threads(trainer, tmp_path, augment):
    source = FolderSource(str(data.photographs(tmp_path / "images", {"class": 5})), (3, 32, 32))
    view = View(source, READ_ONCE._replace(augment=augment), 1, "unused")
    ours = trainer(batch=2, readers=2)
    ours.open_input(view)
    wanted = batches_of_indices(view, ours.setup)
    for _ in range(5):
        positions = next(wanted)
        np.testing.assert_array_equal(ours.next_batch().images, np.stack([view.sample(at)[0] for at in positions]))
    (tmp_path / "images" / "class" / "3.jpg").write_bytes(b"not a picture")
    with raising(OSError, "3.jpg"):
        [ours.next_batch() for _ in range(9)]
