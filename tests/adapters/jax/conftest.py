import pytest

pytest.importorskip("jax")

import jax

from tests.support import trainers
from tests.support.trainers import by_strategy, quick_to_compile

quick_to_compile()
DEVICES = 2  # of this process: XLA's client is made once, by the first trainer


@pytest.fixture(autouse=True, scope="session")
def _devices():
    jax.config.update("jax_num_cpu_devices", DEVICES)
    jax.config.update("jax_platforms", "cpu")
    assert len(jax.devices()) == DEVICES


@pytest.fixture(autouse=True, scope="session")
def _compiled_once(tmp_path_factory):
    """Every build of a network is another function: what XLA makes of equal ones is kept."""
    jax.config.update("jax_compilation_cache_dir", str(tmp_path_factory.mktemp("compiled")))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


@pytest.fixture
def trainer():
    """A function that makes a started trainer; all are closed at the end."""

    def of_devices(setup):
        return by_strategy("jax")(
            setup._replace(devices=max(setup.devices, DEVICES if setup.strategy == "pmap" else 1))
        )

    with trainers.started(of_devices, tuning="tuned", batch=2) as make:
        yield make
    jax.config.update("jax_enable_x64", False)
