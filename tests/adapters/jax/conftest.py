import pytest

pytest.importorskip("jax")

import jax

from adapters.jax.worker import JaxTrainer
from suite.worker.contract import SGD, Setup

DEVICES = 2  # of this process: XLA's client is made once, by the first trainer


def make_trainer(strategy="single", tuning="tuned", precision="float32", batch=2, device="cpu", **changes):
    devices = DEVICES if strategy == "pmap" else 1
    setup = Setup(
        0, 1, 0, strategy, device, 1, batch, precision, tuning, {}, SGD(0.01, 0.9, 1e-3), 1, 0, devices=devices
    )
    return JaxTrainer(setup._replace(**changes))


@pytest.fixture(autouse=True, scope="session")
def _devices():
    jax.config.update("jax_num_cpu_devices", DEVICES)
    jax.config.update("jax_platforms", "cpu")
    assert len(jax.devices()) == DEVICES


@pytest.fixture
def trainer():
    """A function that makes a started trainer; all are closed at the end."""
    made = []

    def make(**options):
        made.append(make_trainer(**options))
        made[-1].start()
        return made[-1]

    yield make
    for one in made:
        one.close()
    jax.config.update("jax_enable_x64", False)
