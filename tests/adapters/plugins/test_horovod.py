"""What the plugin declares, without Horovod."""

import sys
from pathlib import Path

import pytest

from adapters.horovod import plugin
from suite.contracts import knobs as declared
from suite.contracts.case import Case, Placement
from suite.launching import bundle

PYTHON = Path(sys.executable)
ADAPTERS = {adapter.name: adapter for adapter in plugin.stagebench_adapters()}
MXNET = ADAPTERS["horovod-mxnet"]
CASE = Case(MXNET.name, "allreduce", "mnist_small", Placement(ranks_per_node=2))


@pytest.mark.parametrize("adapter", ADAPTERS.values(), ids=ADAPTERS)
def test_an_engine_s_own_code_travels_with_it(adapter):
    engine = adapter.name.partition("-")[2]
    names = {name for name in bundle.sources(adapter) if name.startswith("adapters/")}
    ours = {
        f"adapters/horovod/over_{engine}/worker.py",
        "adapters/horovod/ring/ranks.py",
        f"adapters/{engine}/lower.py",
    }
    assert ours <= names
    others = ("adapters/__init__.py", "adapters/horovod/__init__.py", "adapters/horovod/ring/")
    assert all(name.startswith((*others, f"adapters/horovod/over_{engine}/", f"adapters/{engine}/")) for name in names)
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
