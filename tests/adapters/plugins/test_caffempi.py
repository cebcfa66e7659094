"""The declaration, registered as a third party's would be."""

import sys
from pathlib import Path

import pytest

from adapters.caffempi import plugin
from suite.contracts import knobs
from suite.contracts.case import Case
from suite.contracts.launcher import starters
from suite.plugins import launchers

PYTHON = Path(sys.executable)
DISTRIBUTED = ("data_parallel", "two_level", "parameter_server", "parameter_server_async")


def test_data_parallel_needs_an_engine_of_mpi_and_single_does_not() -> None:
    capabilities = plugin.CaffeMPI().capabilities
    assert {s.name: (starters(s, launchers()), s.distributed) for s in capabilities.strategies} == {
        "single": (("local", "ssh", "mpiexec", "slurm", "spark", "ray"), False),
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
    assert [adapter.synchronous(Case("caffempi", name, "alexnet")) for name in DISTRIBUTED] == [True, True, True, False]
    strategy = adapter.capabilities.strategy("parameter_server_async")
    assert strategy is not None
    assert "update" not in strategy.separable


def refusal(strategy: str, asked: dict[str, object]) -> str:
    return str(knobs.refusal("caffempi", plugin.KNOBS, strategy, asked))


def test_nodes_are_asked_for_where_they_mean_something() -> None:
    for asked in (2, "auto"):
        assert refusal("two_level", {"node_ranks": asked}) == "None"
    assert refusal("data_parallel", {"node_ranks": "auto"}) == "None"
    assert "node_ranks is 0, and the least is 1" in refusal("two_level", {"node_ranks": 0})
    assert "changes nothing under 'data_parallel'" in refusal("data_parallel", {"node_ranks": 2})


@pytest.mark.parametrize("asked", [{"overlap": "merged"}, {"progress": "layers"}])
def test_how_to_exchange_is_asked_where_somebody_does(asked: dict[str, object]) -> None:
    assert "changes nothing under 'single'" in refusal("single", asked)
    assert [refusal(strategy, asked) for strategy in DISTRIBUTED] == ["None"] * 4
