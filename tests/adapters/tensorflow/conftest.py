import pytest

pytest.importorskip("tensorflow")

from adapters.tensorflow import machine, worker
from tests.support import forked, networks, proofs, trainers

forked.preload("tensorflow")

# Once for all tests of a process: TensorFlow's pools cannot change when they run.
for pool in ("intra_op", "inter_op"):
    machine.threads(pool, 1)


@pytest.fixture
def trainer():
    """A function that makes a started, single-rank trainer; all are closed at the end."""
    with trainers.started(worker.trainer, tuning="tuned", batch=2) as make:
        yield make


@pytest.fixture(scope="session")
def small():
    """A graph with every layer kind that a trainer treats in its own way, two heads."""
    return networks.two_heads(grouped=True)


@pytest.fixture(scope="session")
def oracle(small, tmp_path_factory):
    """Folder of the float64 results of 8 samples of `small`."""
    return proofs.write_oracle(small, 8, tmp_path_factory.mktemp("oracle"))
