"""What a GPU asks for, as far as it can be seen without one."""

import numpy as np
import pytest
import torch

from stagebench.adapters.caffempi import memory
from stagebench.adapters.caffempi.input import ReadingThreads
from stagebench.adapters.caffempi.lower import attempt, lower
from stagebench.adapters.caffempi.net import Span
from stagebench.adapters.caffempi.optimisers import solver_of
from stagebench.suite.worker.contract import Adam, Unavailable
from stagebench.suite.worker.sources import ArraySource
from stagebench.suite.worker.view import View
from stagebench.workloads.networks import by_name
from tests.support import data, networks, trainers
from tests.support.jobs import READ_ONCE


@pytest.mark.skipif(memory.cuda_aware(), reason="this MPI library is CUDA-aware")
def test_an_mpi_library_that_takes_no_device_memory_is_named():
    memory.check("pinned")
    with pytest.raises(Unavailable, match=r"v?\d.*CUDA-aware"):
        memory.check("none")


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("name", ["googlenet", "resnet50"])
def test_nothing_of_a_net_lies_elsewhere_than_its_parameters(name, channels_last):
    """On torch's device without memory: an operation that meets a tensor of the host's fails."""
    graph = by_name()[name].graph()
    net = lower(graph, channels_last, 1, torch.float32, "meta")
    images = torch.empty((2, *graph.input_shape), device="meta")
    net.forward(images, torch.zeros(2, dtype=torch.int64, device="meta"))
    net.backward()
    assert {tensor.device.type for tensor in net.buffers().values()} <= {"meta"}
    solver = solver_of(net.arena, Adam(1e-3, 0.9, 0.999, 1e-7, 0.0))
    solver.begin()
    solver.update(Span(0, len(net.arena.parameters)))


def test_the_threads_read_the_same_into_pinned_memory(tmp_path):
    source = ArraySource(data.noise(tmp_path / "digits.npz", 12), (1, 28, 28))
    view = View(source, READ_ONCE, 1, str(tmp_path / "skipped.txt"))
    plain, ours = (ReadingThreads(view, trainers.setup(readers=2, device=device)) for device in ("cpu", "cuda"))
    for _ in range(5):
        expected, found = plain.next_batch(), ours.next_batch()
        for one, other in zip(expected, found, strict=True):
            assert isinstance(other, torch.Tensor)
            assert other.is_pinned() == torch.cuda.is_available()
            np.testing.assert_array_equal(one, other.numpy())
            assert one.dtype == other.numpy().dtype
    assert ours.words == plain.words
    plain.close()
    ours.close()


@pytest.mark.parametrize("channels_last", [False, True], ids=["contiguous", "channels_last"])
@pytest.mark.parametrize("way", ["onednn", "product"])
@pytest.mark.parametrize("name", ["wide", "narrow", "hidden", "fc"])
def test_every_way_to_compute_a_layer_gives_the_same(name, way, channels_last):
    (node,) = (layer for layer in networks.pointwise().layers if layer.name == name)
    usual, ours = (attempt(channels_last, node, each, 3)() for each in ("torch", way))
    assert len(ours) == len(usual)
    for a, b in zip(ours, usual, strict=True):
        assert (a - b).norm() < 1e-6 * b.norm()


def test_rectifiers_work_in_place_only_where_nobody_else_reads():
    net = lower(networks.branches(), False, 1)
    inplace = {s.layer.name: s.layer.inplace for s in net.slots if s.layer.kind == "relu"}
    assert inplace == {"left": False, "sum_relu": True, "one_relu": True, "two_relu": True, "flat_relu": False}
