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
@pytest.mark.parametrize(
    ("launcher", "knobs", "pmi"),
    [
        ("slurm", {"controller": "mpi"}, "pmix"),
        ("slurm", {"controller": "gloo"}, None),
        ("slurm", {}, None),  # auto: gloo
        ("mpiexec", {"controller": "mpi"}, None),
    ],
)
def test_slurm_connects_the_ranks_of_mpi(adapter, launcher, knobs, pmi):
    case = CASE.on(placement=Placement(ranks_per_node=2, launcher=launcher), knobs=knobs)
    assert adapter.environ(case, PYTHON).get("SLURM_MPI_TYPE") == pmi


@pytest.mark.parametrize(
    ("launcher", "knobs", "words"),
    [
        ("local", {}, None),
        ("local", {"controller": "gloo", "cycle_time_ms": 0.1, "fusion_threshold_mb": 0}, None),
        ("local", {"controller": "mpi"}, "ranks that 'local' starts know of no MPI; take the launcher mpiexec"),
        ("ssh", {"controller": "mpi"}, "ranks that 'ssh' starts"),
        ("mpiexec", {"controller": "mpi"}, None),
        ("slurm", {"controller": "mpi"}, None),
        ("local", {"fusion_threshold_mb": -1}, "fusion_threshold_mb is -1, and the least is 0"),
        ("local", {"cycle_time_ms": 0}, "cycle_time_ms is 0, and the least is 0.001"),
    ],
)
def test_what_cannot_be_is_refused(launcher, knobs, words):
    case = CASE.on(placement=Placement(ranks_per_node=2, launcher=launcher), knobs=knobs)
    refused = declared.refusal(MXNET.name, MXNET.capabilities.knobs, case.strategy, knobs)
    found = refused or MXNET.unsupported(case)
    assert found is None if words is None else words in found
