import pytest

pytest.importorskip("torch")

from adapters.pytorch.worker import PyTorchTrainer
from suite.worker.trainer import SGD, Setup

RULE = SGD(0.01, 0.9, 1e-3)


def make_trainer(
    strategy="single",
    tuning="tuned",
    precision="float32",
    device="cpu",
    readers=0,
    batch=2,
    optimiser=RULE,
    **knobs,
):
    return PyTorchTrainer(Setup(0, 1, 0, strategy, device, 1, batch, precision, tuning, knobs, optimiser, 1, readers))


@pytest.fixture
def trainer():
    """A function that makes a started, single-rank trainer; all are closed at the end."""
    made = []

    def make(**options):
        made.append(make_trainer(**options))
        made[-1].start()
        return made[-1]

    yield make
    for one in made:
        one.close()
