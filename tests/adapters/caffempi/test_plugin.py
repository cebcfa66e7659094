"""The declaration, registered as a third party's would be."""

import sys
from pathlib import Path

import pluggy
import pytest

from adapters.caffempi import plugin
from suite.contracts.case import Case
from suite.contracts.hooks import PROJECT, Hooks

PYTHON = Path(sys.executable)
DISTRIBUTED = ("data_parallel", "two_level", "parameter_server", "parameter_server_async")


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
        **dict.fromkeys(DISTRIBUTED, (("mpiexec", "slurm"), True)),
    }


@pytest.mark.parametrize("name", ["overlap", "progress", "memory_format"])
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


def test_what_does_not_wait_for_others_is_not_exact_and_has_no_update_of_its_own() -> None:
    adapter = plugin.CaffeMPI()
    assert [adapter.exact(Case("caffempi", name, "alexnet")) for name in DISTRIBUTED] == [True, True, True, False]
    strategy = adapter.capabilities.strategy("parameter_server_async")
    assert strategy is not None
    assert "update" not in strategy.separable


@pytest.mark.parametrize(
    ("strategy", "node_ranks", "words"),
    [
        ("two_level", 2, None),
        ("two_level", "auto", None),
        ("data_parallel", "auto", None),
        ("two_level", 0, "node_ranks is 0; a node has at least 1"),
        ("data_parallel", 2, "the knob 'node_ranks' belongs to two_level and changes nothing under 'data_parallel'"),
    ],
)
def test_nodes_are_asked_for_where_they_mean_something(strategy: str, node_ranks: object, words: str | None) -> None:
    case = Case("caffempi", strategy, "alexnet", knobs={"node_ranks": node_ranks})
    assert plugin.CaffeMPI().unsupported(case) == words


@pytest.mark.parametrize(
    ("strategy", "knobs", "refused"),
    [
        ("single", {"overlap": "auto", "progress": "auto"}, False),
        ("single", {"overlap": "merged"}, True),
        ("single", {"progress": "layers"}, True),
        *((strategy, {"overlap": "none", "progress": "thread"}, False) for strategy in DISTRIBUTED),
    ],
)
def test_how_to_exchange_is_asked_where_somebody_does(strategy: str, knobs: dict[str, object], refused: bool) -> None:
    found = plugin.CaffeMPI().unsupported(Case("caffempi", strategy, "alexnet", knobs=knobs))
    words = f"the knob {next(iter(knobs))!r} belongs to the strategies that exchange and changes nothing under 'single'"
    assert found == (words if refused else None)
