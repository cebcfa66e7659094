"""What `verify` is asked for, and the bounds that it needs."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from suite.case import Case, Placement
from suite.environments import Interpreter
from suite.errors import RequestError
from suite.launch import Ready
from suite.proof.proofs import case_of_proof
from suite.proof.tolerances import BY_PRECISION, tolerance
from suite.proof.verify import Wanted, cases_to_verify


@pytest.mark.parametrize(
    ("place", "kind", "word", "help"),
    [
        ("adapters", "adapter", "alhpa", "did you mean 'alpha'?"),
        ("workloads", "workload", "mnist_smal", "did you mean 'mnist_small'?"),
        ("tunings", "tuning", "nope", "known: default, tuned"),
    ],
)
def test_a_slip_is_named_for_what_it_is(toys: SimpleNamespace, place: str, kind: str, word: str, help: str) -> None:
    with pytest.raises(RequestError) as error:
        cases_to_verify(Wanted(**{place: [word]}))  # type: ignore[arg-type]
    assert str(error.value).startswith(f"there is no {kind} {word!r}; ")
    assert help in str(error.value)


def test_a_tuning_that_only_some_have_leaves_the_others_out(toys: SimpleNamespace) -> None:
    for tuning, having in (("tuned", {"alpha"}), ("default", {"alpha", "beta"})):
        found = cases_to_verify(Wanted(workloads=["mnist_small"], tunings=[tuning]))
        assert {case.adapter for case, _ in found} == having


@pytest.mark.parametrize("workload", ["alexnet", "mnist_small"])
def test_a_precision_without_bounds_is_refused_with_those_that_have(workload: str) -> None:
    with pytest.raises(RequestError, match=r"no proof of precision 'float16': .*bfloat16, float32, float64 have"):
        tolerance("float16", workload)
    assert tolerance("float64", workload) == BY_PRECISION["float64"]


def test_every_strategy_is_proven_as_it_can_be(toys: SimpleNamespace) -> None:
    """Ranks where it is distributed, devices where one process drives them, one where nothing is to be joined."""
    found = cases_to_verify(Wanted(["alpha"], ["mnist_small"], tunings=["default"]))
    places = {case.strategy: (case.placement.ranks, case.placement.devices) for case, _ in found}
    assert places == {"single": (1, 1), "ddp": (2, 1), "mirror": (1, 2), "free": (1, 1)}


def test_an_asynchronous_case_is_proven_on_one_device(toys: SimpleNamespace, tmp_path: Path) -> None:
    case = Case("alpha", "free", "mnist_small", Placement(nodes=2, ranks_per_node=3, hosts=("a", "b")))
    adapter, workload = toys.adapters["alpha"], toys.workloads["mnist_small"]
    python = Interpreter(Path(sys.executable), "here", "3")
    proof = case_of_proof(Ready(case, adapter, workload, toys.launchers["local"], python, tmp_path))
    assert (proof.placement.device_count, proof.placement.hosts) == (1, ("a",))
    assert proof.batch == 2 * workload.proof_batch


def test_what_an_adapter_refuses_is_not_proven_and_says_why(toys: SimpleNamespace) -> None:
    ((case, refused),) = cases_to_verify(Wanted(["beta"], ["alexnet"], ["single"]))
    assert case.workload == "alexnet"
    assert refused == "beta has no layers of kind dropout, lrn"
    found = cases_to_verify(Wanted(["alpha", "beta"], ["mnist_small"], ["single"], device="cuda"))
    assert {case.adapter: refused for case, refused in found} == {
        "alpha": None,
        "beta": "beta does not do device 'cuda'; it does cpu",
    }
