"""What the controller is told, without JAX."""

import sys
from pathlib import Path

import pytest

from adapters.jax import plugin
from suite.contracts import knobs as declared
from suite.contracts.case import Case, Placement
from tests.support.refusals import refusal

PYTHON = Path(sys.executable)
ADAPTER = plugin.Jax()
TWO = Case("jax", "pmap", "mnist_small", Placement(devices=2), knobs=declared.values(plugin.KNOBS))


def on_gpu(**asked):
    knobs = declared.values(plugin.KNOBS, asked)
    return TWO.on(strategy="single", tuning="tuned", placement=Placement(device="cuda"), knobs=knobs)


def test_pmap_drives_the_devices_of_one_process():
    pmap = ADAPTER.capabilities.strategy("pmap")
    assert (pmap.distributed, pmap.several_devices, pmap.synchronous) == (False, True, True)


def test_only_tuned_cpu_processes_get_allocator_settings():
    assert ADAPTER.environ(TWO, PYTHON) == {}
    tuned = ADAPTER.environ(TWO.on(tuning="tuned"), PYTHON)
    assert (tuned["MALLOC_TRIM_THRESHOLD_"], tuned["MALLOC_ARENA_MAX"]) == (str(32 << 30), "1")


@pytest.mark.parametrize(("share", "settings"), [(0, ("false", None)), (0.75, ("true", "0.75"))])
def test_how_much_of_a_gpu_xla_takes_is_a_knob(share, settings):
    case = on_gpu(preallocate=share)
    found = ADAPTER.environ(case, PYTHON)
    assert (found["XLA_PYTHON_CLIENT_PREALLOCATE"], found.get("XLA_CLIENT_MEM_FRACTION")) == settings
    assert found["XLA_PYTHON_CLIENT_MEM_FRACTION"] == "", "JAX refuses a shell's old name beside the new one"
    assert refusal(ADAPTER, case) is None
    refused = refusal(ADAPTER, case.on(placement=Placement()))
    assert (refused is None) == (share == 0.75), "a CPU has nothing to preallocate"


@pytest.mark.parametrize(
    ("knobs", "flags"),
    [
        ({}, None),
        ({"cudnn_autotune": "off"}, "--xla_gpu_autotune_level=0"),
        ({"cudnn_autotune": "on"}, "--xla_gpu_autotune_level=4"),
        ({"deterministic": "on"}, "--xla_gpu_deterministic_ops=true"),
        (
            {"cudnn_autotune": "off", "deterministic": "on"},
            "--xla_gpu_autotune_level=0 --xla_gpu_deterministic_ops=true",
        ),
    ],
)
@pytest.mark.parametrize("inherited", ["", "--xla_dump_to=/tmp/x"])
def test_kernels_are_chosen_by_flags_behind_those_that_are_there(monkeypatch, knobs, flags, inherited):
    monkeypatch.setenv("XLA_FLAGS", inherited)
    found = ADAPTER.environ(on_gpu(**knobs), PYTHON).get("XLA_FLAGS")
    assert found == (None if flags is None else f"{inherited} {flags}".strip())
    assert refusal(ADAPTER, on_gpu(**knobs)) is None
    if flags:
        assert "needs device = 'cuda'" in refusal(ADAPTER, on_gpu(**knobs).on(placement=Placement()))


def test_what_is_deterministic_is_not_timed():
    words = refusal(ADAPTER, on_gpu(cudnn_autotune="on", deterministic="on"))
    assert "cudnn_autotune = 'on' needs deterministic = 'off': what is timed anew" in words


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float64", "tf32", "float16"])
def test_tensor_cores_have_precisions_of_their_own(precision):
    case = on_gpu().on(precision=precision)
    assert refusal(ADAPTER, case) is None
    refused = refusal(ADAPTER, case.on(placement=Placement()))
    assert (refused is None) == (precision not in ("tf32", "float16"))
