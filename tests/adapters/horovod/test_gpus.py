"""Over PyTorch on GPUs: NCCL or nothing. No GPU is touched."""

import pytest
from engine import engine, trainer

from stagebench.suite.worker.contract import Joined, Unavailable
from tests.support import trainers

if engine() != "pytorch":
    pytest.skip("it has GPUs over PyTorch alone", allow_module_level=True)

from stagebench.adapters.horovod import over_pytorch as allreduce


@pytest.fixture
def on_a_gpu(monkeypatch):
    """A trainer whose device is there, as it says."""
    alone = Joined(0, 1, "none", {"torch": "2"})
    monkeypatch.setattr(allreduce.ReplicaTrainer, "start", lambda self: alone)
    return trainer(trainers.setup(strategy="allreduce", device="cuda"))


def test_a_build_without_nccl_is_unavailable_there(on_a_gpu, monkeypatch):
    monkeypatch.setattr(allreduce.hvd, "nccl_built", lambda: 0)
    with pytest.raises(Unavailable, match=r"without NCCL.*horovod-pytorch.*'cpu'"):
        on_a_gpu.start()


def test_nccl_is_what_carries_the_gradients(on_a_gpu, monkeypatch):
    monkeypatch.setattr(allreduce.hvd, "nccl_built", lambda: 22703)
    joined = on_a_gpu.start()
    assert (joined.rank, joined.world, joined.transport) == (0, 1, "nccl")
    on_a_gpu.close()
