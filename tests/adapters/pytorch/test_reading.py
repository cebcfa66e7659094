"""DataLoader delivers the right samples, in the order every adapter follows."""

import os
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import psutil
import pytest
from PIL import Image

from suite.worker.sources import ArraySource, FolderSource
from suite.worker.threaded import batches_of_indices
from workloads.graph import Graph


@pytest.fixture
def arrays(tmp_path):
    stream = np.random.RandomState(0)
    path = tmp_path / "digits.npz"
    np.savez(path, images=stream.randint(0, 255, (10, 8, 8)).astype(np.uint8), labels=np.arange(10))
    return ArraySource(str(path), (1, 8, 8))


@pytest.fixture
def folder(tmp_path):
    for label in ("ants", "bees"):
        (tmp_path / "images" / label).mkdir(parents=True)
        for number in range(3):
            pixels = np.random.RandomState(number).randint(0, 255, (40, 50, 3)).astype(np.uint8)
            Image.fromarray(pixels).save(tmp_path / "images" / label / f"{number}.jpg")
    return tmp_path / "images"


@pytest.mark.parametrize("readers", [0, 2])
def test_samples_and_order(trainer, arrays, readers):
    ours = trainer(readers=readers, batch=4)
    ours.open_input(arrays)
    wanted = batches_of_indices(arrays, ours.setup)
    for _ in range(7):  # runs into the third epoch
        batch, indices = ours.next_batch(), next(wanted)
        np.testing.assert_array_equal(batch.images.numpy(), np.stack([arrays.sample(i)[0] for i in indices]))
        assert batch.labels.tolist() == [arrays.sample(i)[1] for i in indices]


def test_images_reach_the_device_as_the_source_has_them(trainer, folder):
    source = FolderSource(str(folder), (3, 32, 32))
    ours = trainer(readers=1, batch=3, memory_format="channels_last")
    graph = Graph("flat", (3, 32, 32), 2)
    graph.add_head(graph.add("out", "dense", (graph.add("f", "flatten", ("input",)),), out=2))
    ours.build(graph, {"out.weight": np.zeros((2, 3072), np.float32), "out.bias": np.zeros(2, np.float32)})
    ours.open_input(source)
    indices = next(batches_of_indices(source, ours.setup))
    batch = ours.to_device(ours.next_batch())
    assert batch.images.stride(1) == 1, "channels_last"
    np.testing.assert_array_equal(batch.images.numpy(), np.stack([source.sample(i)[0] for i in indices]))
    assert batch.labels.tolist() == [source.sample(i)[1] for i in indices]


def bomb():
    """The beginning of a PNG that claims 30,000 x 30,000 pixels."""
    header = b"IHDR" + struct.pack(">IIBBBBB", 30000, 30000, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + header + struct.pack(">I", zlib.crc32(header))


@pytest.mark.parametrize("readers", [0, 1])
@pytest.mark.parametrize("damage", [b"not a picture", bomb()])
def test_an_unreadable_image_is_named(trainer, folder, readers, damage):
    for path in folder.glob("*/*.jpg"):
        path.write_bytes(damage)
    ours = trainer(readers=readers)
    ours.open_input(FolderSource(str(folder), (3, 32, 32)))
    with pytest.raises(OSError, match=r"^cannot read the image .*\.jpg: .*remove or replace it$"):
        ours.next_batch()


DYING = """
import os, sys, psutil
sys.path.insert(0, {tests!r})
from conftest import make_trainer
from suite.worker.sources import ArraySource
trainer = make_trainer(readers=2)
trainer.start()
trainer.open_input(ArraySource({path!r}, (1, 8, 8)))
trainer.next_batch()
print(*[child.pid for child in psutil.Process().children(recursive=True)], flush=True)
os._exit(1)
"""


def test_no_reader_outlives_a_rank_that_dies(arrays, tmp_path):
    root = Path(__file__).parents[3]
    script = DYING.format(tests=str(Path(__file__).parent), path=str(tmp_path / "digits.npz"))
    environ = dict(os.environ, PYTHONPATH=str(root))
    died = subprocess.run([sys.executable, "-c", script], env=environ, stdout=subprocess.PIPE, text=True, timeout=60)
    readers = [int(pid) for pid in died.stdout.split()]
    assert died.returncode == 1
    assert len(readers) >= 3, "two readers and the resource tracker"
    _, alive = psutil.wait_procs([psutil.Process(pid) for pid in readers if psutil.pid_exists(pid)], timeout=20)
    assert not alive
