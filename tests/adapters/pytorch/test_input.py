"""The readers deliver the right samples, in the order every adapter follows."""

import subprocess
import sys
from functools import partial

import numpy as np
import psutil
import pytest
import torch

from adapters.pytorch.decoding import centre
from suite.worker.photographs import Photographs
from suite.worker.sources import FolderSource
from suite.worker.threaded import batches_of_indices
from tests.support import data, processes
from tests.support.errors import raising
from tests.support.pictures import ODD
from workloads.catalogue import PHOTOGRAPHS
from workloads.graph import Graph


def levels(source, normalised):
    return source.photographs.levels(normalised)


@pytest.mark.parametrize(
    ("tuning", "readers", "augment"),
    [("default", 0, "centre"), ("default", 2, "random"), ("tuned", 2, "centre"), ("tuned", 0, "random")],
)
def test_files_come_in_order_with_the_views_pixels(trainer, folder, seen, tuning, readers, augment):
    source = FolderSource(str(folder), (3, 32, 32))
    view = seen(source, augment=augment)
    ours = trainer(readers=readers, batch=4, tuning=tuning)
    ours.open_input(view)
    wanted, images = batches_of_indices(view, ours.setup), []
    for _ in range(5):  # two epochs
        batch, indices = ours.as_numpy(ours.next_batch()), next(wanted)
        assert batch.labels.tolist() == [view.sample(i)[1] for i in indices]
        assert (batch.images.dtype, batch.images.flags.c_contiguous) == (np.float32, True)
        off = np.abs(levels(source, batch.images) - levels(source, np.stack([view.sample(i)[0] for i in indices])))
        # Pillow rounds between its two passes, torch too, each in its own way.
        assert off.max() < (1.01 if (tuning, augment) == ("tuned", "centre") else 1e-3)
        assert off.mean() < 0.1
        images += list(zip(indices, batch.images, strict=True))
    epochs = [{view.index(at): image for at, image in images[i : i + 10]} for i in (0, 10)]
    assert [sorted(epoch) for epoch in epochs] == [list(range(10))] * 2
    same = [np.array_equal(epochs[0][i], epochs[1][i]) for i in range(10)]
    assert all(same) if augment == "centre" else not any(same)


def test_two_ranks_share_an_epoch(trainer, folder, seen):
    source, found = FolderSource(str(folder), (3, 32, 32)), []
    for rank in (0, 1):
        ours = trainer(readers=0, batch=5)
        ours.setup = ours.setup._replace(rank=rank, world=2)
        ours.open_input(seen(source))
        found += list(ours.as_numpy(ours.next_batch()).images)
    plain = np.stack([source.sample(i)[0] for i in range(10)])
    nearest = [int(((plain - image) ** 2).sum((1, 2, 3)).argmin()) for image in found]
    assert sorted(nearest) == list(range(10))


@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize("layout", ["channels_last", "contiguous"])
def test_images_reach_the_device_as_the_source_has_them(trainer, folder, seen, precision, layout):
    source = FolderSource(str(folder), (3, 32, 32))
    ours = trainer(readers=0, batch=3, memory_format=layout, precision=precision)
    graph = Graph("flat", (3, 32, 32), 2)
    graph.add_head(graph.add("out", "dense", (graph.add("f", "flatten", ("input",)),), out=2))
    ours.build(graph, {"out.weight": np.zeros((2, 3072), np.float32), "out.bias": np.zeros(2, np.float32)})
    ours.open_input(seen(source))
    indices, read = next(batches_of_indices(source, ours.setup)), ours.next_batch()
    assert read.images.dtype == torch.uint8, "bytes until then"
    batch = ours.to_device(read)
    assert batch.images.dtype == getattr(torch, precision)
    assert batch.images.is_contiguous(memory_format=getattr(torch, layout + "_format" * (layout == "contiguous")))
    off = levels(source, batch.images.numpy()) - levels(source, np.stack([source.sample(i)[0] for i in indices]))
    assert np.abs(off).max() < 1.01
    assert batch.labels.tolist() == [source.sample(i)[1] for i in indices]


@pytest.mark.parametrize("name", ODD)
def test_torchs_scaling_is_pillows(tmp_path, name):
    path = str(tmp_path / name)
    ODD[name].save(path)
    photographs = Photographs(PHOTOGRAPHS, 224)
    wanted = photographs.decoded(path, path, partial(PHOTOGRAPHS.centre, crop=224)).astype(int)
    off = np.abs(centre(photographs, path).numpy() - wanted)
    assert off.max() <= 1
    assert off.mean() < 0.1


@pytest.mark.parametrize("readers", [0, 2])
def test_what_cannot_be_read_is_skipped_and_told(trainer, folder, seen, readers):
    (folder / "ants" / "3.jpg").write_bytes(b"not a picture")
    view = seen(FolderSource(str(folder), (3, 32, 32)), on_error="skip")
    ours = trainer(readers=readers, batch=5)
    ours.open_input(view)
    for _ in range(4):
        assert ours.next_batch().images.shape == (5, 32, 32, 3)
    (told,) = view.skipped()
    assert "ants/3.jpg" in told


@pytest.mark.parametrize(("readers", "tuning"), [(0, "tuned"), (0, "default"), (1, "tuned")])
@pytest.mark.parametrize("damage", [b"not a picture", data.BOMB])
def test_an_unreadable_image_is_named(trainer, folder, seen, readers, tuning, damage):
    for path in folder.glob("*/*.jpg"):
        path.write_bytes(damage)
    ours = trainer(readers=readers, tuning=tuning)
    ours.open_input(seen(FolderSource(str(folder), (3, 32, 32))))
    with raising(OSError, ".jpg"):
        ours.next_batch()


DYING = """
import os, psutil
from tests.support.trainers import by_strategy
from suite.worker.sources import FolderSource
from suite.worker.view import View
from tests.support import jobs, trainers
trainer = by_strategy("pytorch")(trainers.setup(readers=2))
trainer.start()
trainer.open_input(View(FolderSource({path!r}, (3, 32, 32)), jobs.READ_ONCE, 1, "unused"))
trainer.next_batch()
print(*[child.pid for child in psutil.Process().children(recursive=True)], flush=True)
os._exit(1)
"""


def test_no_reader_outlives_a_rank_that_dies(folder):
    tokens = [sys.executable, "-c", DYING.format(path=str(folder))]
    died = subprocess.run(tokens, env=processes.variables(), stdout=subprocess.PIPE, text=True, timeout=60)
    readers = [int(pid) for pid in died.stdout.split()]
    assert died.returncode == 1
    assert len(readers) >= 3, "two readers and the resource tracker"
    _, alive = psutil.wait_procs([psutil.Process(pid) for pid in readers if psutil.pid_exists(pid)], timeout=20)
    assert not alive
