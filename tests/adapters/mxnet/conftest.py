import warnings

import pytest

with warnings.catch_warnings():
    # MXNet uses NumPy's old names (np.bool) and warns of it at every import.
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    pytest.importorskip("mxnet")

from adapters.mxnet.worker import MXNetTrainer
from suite.worker.trainer import SGD, Setup


def make_trainer(
    strategy="single",
    tuning="tuned",
    precision="float32",
    device="cpu",
    batch=2,
    devices=1,
    readers=0,
    prefetch=2,
    optimiser=SGD(0.01, 0.9, 1e-3),  # noqa: B008 - a tuple
    **knobs,
):
    setup = Setup(
        0, 1, 0, strategy, device, 1, batch, precision, tuning, knobs, optimiser, 1, readers, prefetch, devices
    )
    return MXNetTrainer(setup)


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
