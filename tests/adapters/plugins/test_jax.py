"""What the controller is told, without JAX."""

import sys
from pathlib import Path

import pytest

from adapters.jax import plugin
from suite.contracts.case import Case, Placement
from tests.support.refusals import refusal

PYTHON = Path(sys.executable)
ADAPTER = plugin.Jax()
TWO = Case("jax", "pmap", "mnist_small", Placement(devices=2), knobs={"preallocate": 0.75})


def test_pmap_drives_the_devices_of_one_process():
    pmap = ADAPTER.capabilities.strategy("pmap")
    assert (pmap.distributed, pmap.several_devices, pmap.synchronous) == (False, True, True)


def test_only_tuned_cpu_processes_get_allocator_settings():
    assert ADAPTER.environ(TWO, PYTHON) == {}
    tuned = ADAPTER.environ(TWO.on(tuning="tuned"), PYTHON)
    assert (tuned["MALLOC_TRIM_THRESHOLD_"], tuned["MALLOC_ARENA_MAX"]) == (str(32 << 30), "1")


@pytest.mark.parametrize(("share", "settings"), [(0, ("false", None)), (0.75, ("true", "0.75"))])
def test_how_much_of_a_gpu_xla_takes_is_a_knob(share, settings):
    case = TWO.on(tuning="tuned", placement=Placement(device="cuda"), knobs={"preallocate": share})
    found = ADAPTER.environ(case, PYTHON)
    assert (found["XLA_PYTHON_CLIENT_PREALLOCATE"], found.get("XLA_CLIENT_MEM_FRACTION")) == settings
    assert refusal(ADAPTER, case) is None
    refused = refusal(ADAPTER, case.on(placement=Placement()))
    assert (refused is None) == (share == 0.75), "a CPU has nothing to preallocate"
