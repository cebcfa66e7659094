"""The readers deliver the right samples, in the order every adapter follows."""

import subprocess
import sys
import time
from functools import partial

import numpy as np
import psutil
import pytest
import torch

from stagebench.adapters.pytorch.decoding import centre
from stagebench.suite.worker.photographs import Photographs
from stagebench.suite.worker.sources import FolderSource
from stagebench.suite.worker.threaded import batches_of_indices
from stagebench.workloads.catalogue import PHOTOGRAPHS
from stagebench.workloads.graph import Graph
from tests.adapters.alike_reading import Reading
from tests.support import processes
from tests.support.pictures import ODD


def levels(source, normalised):
    return source.photographs.levels(normalised)


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
    assert read.inputs.dtype == torch.uint8, "bytes until then"
    batch = ours.to_device(read)
    assert batch.inputs.dtype == getattr(torch, precision)
    assert batch.inputs.is_contiguous(memory_format=getattr(torch, layout + "_format" * (layout == "contiguous")))
    off = levels(source, batch.inputs.numpy()) - levels(source, np.stack([source.sample(i)[0] for i in indices]))
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


DYING = """
import os, psutil
from tests.support.trainers import by_strategy
from stagebench.suite.worker.sources import FolderSource
from stagebench.suite.worker.view import View
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
    died = subprocess.run(tokens, env=processes.variables(), stdout=subprocess.PIPE, text=True, timeout=300)
    readers = [int(pid) for pid in died.stdout.split()]
    assert died.returncode == 1
    assert len(readers) >= 3, "two readers and the resource tracker"
    deadline = time.monotonic() + 120
    while alive := [pid for pid in readers if runs(pid)]:
        assert time.monotonic() < deadline, alive
        time.sleep(0.05)


def runs(pid):
    """Whether a process is there, and more than unreaped: in a container there may be nobody who reaps."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


class TestReading(Reading):
    most = 1.01  # Pillow rounds between its two passes, torch too, each in its own way


class TestDefaultReading(Reading):
    """The same loader; only how a photograph is decoded and scaled differs."""

    most = 0.01
    test_ranks_share_an_epoch = test_closing_ends_the_threads = test_more_ranks_than_photographs_are_refused = None
    test_a_broken_record_file_is_named = None

    @pytest.fixture
    def trainer(self, trainer):
        return partial(trainer, tuning="default")
