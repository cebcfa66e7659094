"""The declaration, registered as a third party's would be."""

import sys
from pathlib import Path

import pytest

from adapters.caffempi import plugin
from suite.contracts import knobs
from suite.contracts.case import Case, Placement
from suite.contracts.launcher import starters
from suite.plugins import launchers
from tests.support import refusals

PYTHON = Path(sys.executable)
DISTRIBUTED = ("data_parallel", "two_level", "parameter_server", "parameter_server_async")


def test_data_parallel_needs_an_engine_of_mpi_and_single_does_not() -> None:
    capabilities = plugin.CaffeMPI().capabilities
    assert {s.name: (starters(s, launchers()), s.distributed) for s in capabilities.strategies} == {
        "single": (("local", "ssh", "mpiexec", "slurm", "spark", "ray"), False),
        **dict.fromkeys(DISTRIBUTED, (("mpiexec", "slurm"), True)),
    }


@pytest.mark.parametrize("name", ["overlap", "progress", "memory_format", "staging"])
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


@pytest.mark.parametrize("asked", [{"overlap": "merged"}, {"progress": "layers"}, {"staging": "pinned"}])
def test_how_to_exchange_is_asked_where_somebody_does(asked: dict[str, object]) -> None:
    assert "changes nothing under 'single'" in refusal("single", asked)
    assert [refusal(strategy, asked) for strategy in DISTRIBUTED] == ["None"] * 4


def on(device: str, strategy: str = "data_parallel", precision: str = "float32", **asked: object) -> str | None:
    placement = Placement(ranks_per_node=2 if strategy in DISTRIBUTED else 1, device=device)
    case = Case("caffempi", strategy, "mnist_small", placement, precision=precision)
    return refusals.refusal(plugin.CaffeMPI(), case.on(knobs=knobs.values(plugin.KNOBS, asked)))


def test_every_strategy_takes_gpus() -> None:
    assert [on("cuda", strategy) for strategy in ("single", *DISTRIBUTED)] == [None] * 5
    assert [on("cuda", precision=precision) for precision in ("float32", "float64", "tf32")] == [None] * 3
    assert "does not do precision 'tf32': it wants device = 'cuda'" in str(on("cpu", precision="tf32"))


@pytest.mark.parametrize(
    ("device", "strategy", "asked", "words"),
    [
        ("cpu", "data_parallel", {"staging": "auto"}, None),
        ("cpu", "data_parallel", {"staging": "pinned"}, "staging = 'pinned' needs device = 'cuda': what processors"),
        ("cpu", "single", {"cudnn_autotune": "on"}, "needs device = 'cuda'"),
        ("cpu", "single", {"deterministic": "on"}, "needs device = 'cuda'"),
        ("cuda", "single", {"deterministic": "on"}, None),
        ("cuda", "single", {"cudnn_autotune": "on", "deterministic": "on"}, "what is timed anew in every run"),
        ("cuda", "data_parallel", {"staging": "none"}, None),
        ("cuda", "two_level", {"staging": "none"}, "its sums are formed in host memory"),
        ("cuda", "parameter_server", {"staging": "none"}, "take staging = 'pinned', or 'data_parallel'"),
        ("cuda", "parameter_server_async", {"staging": "none"}, "its server's weights lie in host memory"),
        ("cuda", "parameter_server_async", {"staging": "pinned"}, None),
    ],
)
def test_what_a_gpu_is_needed_for(device: str, strategy: str, asked: dict[str, object], words: str | None) -> None:
    found = on(device, strategy, **asked)
    assert found is None if words is None else words in str(found)


def test_cublas_is_deterministic_where_it_is_asked_for() -> None:
    case = Case("caffempi", "single", "alexnet", Placement(device="cuda"))
    assert "CUBLAS_WORKSPACE_CONFIG" not in plugin.CaffeMPI().environ(case, PYTHON)
    asked = case.on(knobs=knobs.values(plugin.KNOBS, {"deterministic": "on"}))
    assert plugin.CaffeMPI().environ(asked, PYTHON)["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"


def test_layers_that_are_timed_on_the_case_s_batch_want_a_proof_for_each() -> None:
    case, adapter = Case("caffempi", "single", "alexnet", tuning="tuned"), plugin.CaffeMPI()
    assert [adapter.tunes_to_batch(case.on(precision=name)) for name in ("float32", "float64")] == [True, False]


@pytest.mark.parametrize("asked", [{"products": "onednn"}, {"pointwise": "onednn"}, {"pointwise": "product"}])
def test_a_way_to_compute_layers_is_refused_where_it_would_change_nothing(asked: dict[str, object]) -> None:
    case = Case("caffempi", "single", "alexnet", knobs=knobs.values(plugin.KNOBS, asked))
    assert refusals.refusal(plugin.CaffeMPI(), case) is None
    assert "needs precision = 'float32'" in str(refusals.refusal(plugin.CaffeMPI(), case.on(precision="float64")))
