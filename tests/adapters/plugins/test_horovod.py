"""What the plugin declares, without Horovod."""

import sys
from pathlib import Path

import pytest

from adapters.horovod import plugin
from adapters.pytorch.plugin import PyTorch
from suite.contracts import knobs as declared
from suite.contracts.case import Case, Placement
from suite.processes import bundle
from tests.support.refusals import refusal

PYTHON = Path(sys.executable)
ADAPTERS = {adapter.name: adapter for adapter in plugin.stagebench_adapters()}
MXNET, PYTORCH = ADAPTERS["horovod-mxnet"], ADAPTERS["horovod-pytorch"]
CASE = Case(
    MXNET.name, "allreduce", "mnist_small", Placement(ranks_per_node=2), knobs=declared.values(MXNET.capabilities.knobs)
)
ON_GPUS = CASE.on(adapter=PYTORCH.name, placement=Placement(ranks_per_node=2, device="cuda"))


@pytest.mark.parametrize("adapter", ADAPTERS.values(), ids=ADAPTERS)
def test_an_engine_s_own_code_travels_with_it(adapter):
    engine = adapter.name.partition("-")[2]
    names = {name for name in bundle.sources(adapter) if name.startswith("adapters/")}
    ours = {
        f"adapters/horovod/over_{engine}.py",
        "adapters/horovod/ranks.py",
        f"adapters/{engine}/lower.py",
    }
    assert ours <= names
    others = ("adapters/__init__.py", "adapters/horovod/__init__.py", "adapters/horovod/ranks.py")
    assert all(
        name.startswith((*others, f"adapters/horovod/over_{engine}.py", f"adapters/{engine}/")) for name in names
    )
    assert not any(name.endswith("plugin.py") for name in names)
    assert adapter.remedy.startswith(f"tox run -e {adapter.name}  #")


def test_only_tuned_cpu_processes_get_allocator_settings():
    assert MXNET.environ(CASE, PYTHON) == {}
    assert "MALLOC_TRIM_THRESHOLD_" in MXNET.environ(CASE.on(tuning="tuned"), PYTHON)


@pytest.mark.parametrize("adapter", ADAPTERS.values(), ids=ADAPTERS)
def test_its_controller_decides_whether_ranks_meet_by_mpi(adapter):
    found = {
        name: adapter.mpi(CASE.on(knobs=declared.values(plugin.KNOBS, {"controller": name})))
        for name in ("auto", "gloo", "mpi")
    }
    assert found == {"auto": "", "gloo": "", "mpi": "Open MPI"}


@pytest.mark.parametrize(
    ("knobs", "words"),
    [
        ({"controller": "gloo", "cycle_time_ms": 0.1, "fusion_threshold_mb": 0}, None),
        ({"fusion_threshold_mb": -1}, "fusion_threshold_mb is -1, and the least is 0"),
        ({"cycle_time_ms": 0}, "cycle_time_ms is 0, and the least is 0.001"),
    ],
)
def test_what_cannot_be_is_refused(knobs, words):
    found = declared.refusal(MXNET.name, MXNET.capabilities.knobs, CASE.strategy, knobs)
    assert found is None if words is None else words in found


@pytest.mark.parametrize("adapter", ADAPTERS.values(), ids=ADAPTERS)
def test_it_trains_on_gpus_over_pytorch_alone(adapter):
    refused = refusal(adapter, ON_GPUS.on(adapter=adapter.name))
    if adapter is PYTORCH:
        assert refused is None
    else:
        assert "its CPU wheel is what Horovod is built for here, over gloo and MPI, without NCCL" in refused
    assert refusal(adapter, CASE.on(adapter=adapter.name)) is None


def test_on_gpus_it_has_the_precisions_of_its_engine():
    engine = PyTorch().capabilities
    assert set(PYTORCH.capabilities.precisions_on("cuda")) == set(engine.precisions_on("cuda"))
    assert PYTORCH.capabilities.precisions_on("cpu") == ("float32", "float64")
    for precision in engine.precisions_on("cuda"):
        assert refusal(PYTORCH, ON_GPUS.on(precision=precision)) is None


def test_ranks_that_share_a_gpu_are_refused():
    shared = Placement(ranks_per_node=2, device="cuda", share_devices=True)
    assert "NCCL refuses ranks that share a GPU" in refusal(PYTORCH, ON_GPUS.on(placement=shared))


@pytest.mark.parametrize("adapter", ADAPTERS.values(), ids=ADAPTERS)
def test_its_engine_is_asked_with_knobs_of_its_own(adapter):
    """A case of Horovod's has none of them."""
    case = CASE.on(adapter=adapter.name)
    assert adapter.unsupported(case) is None
    assert isinstance(adapter.environ(case, PYTHON), dict)


def test_pytorch_s_layers_are_timed_on_the_case_s_batch() -> None:
    assert [adapter.tunes_to_batch(CASE.on(tuning="tuned")) for adapter in (MXNET, PYTORCH)] == [False, True]
