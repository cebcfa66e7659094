"""The declaration, registered as a third party's would be."""

import sys
from pathlib import Path

import pluggy
import pytest

from adapters.caffempi import plugin
from suite.case import Case
from suite.hooks import PROJECT, Hooks

PYTHON = Path(sys.executable)


def test_it_registers() -> None:
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(Hooks)
    manager.register(plugin)
    manager.check_pending()
    ((adapter,),) = manager.hook.stagebench_adapters()
    assert (adapter.name, adapter.environment, adapter.requires) == (
        "caffempi",
        "caffempi",
        ("torch", "mpi4py", "lmdb"),
    )


def test_data_parallel_needs_an_engine_of_mpi_and_single_does_not() -> None:
    capabilities = plugin.CaffeMPI().capabilities
    assert {s.name: (s.launchers, s.distributed) for s in capabilities.strategies} == {
        "single": (("local", "mpiexec", "slurm"), False),
        "data_parallel": (("mpiexec", "slurm"), True),
    }


@pytest.mark.parametrize("name", ["overlap", "aggregation", "memory_format"])
def test_knobs_name_what_they_take(name: str) -> None:
    knob = plugin.CaffeMPI().capabilities.knobs[name]
    assert knob.problem(knob.default) is None
    assert "is one of" in str(knob.problem("sometimes"))


def test_all_give_way_and_only_tuned_runs_keep_their_memory() -> None:
    case = Case("caffempi", "single", "alexnet")
    default = plugin.CaffeMPI().environ(case, PYTHON)
    assert default == {"OMPI_MCA_mpi_yield_when_idle": "1"}
    tuned = plugin.CaffeMPI().environ(case.on(tuning="tuned"), PYTHON)
    assert tuned["MALLOC_MMAP_MAX_"] == "0"
    assert default.items() <= tuned.items()
