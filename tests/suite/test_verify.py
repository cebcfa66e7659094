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
from suite.proof.verify import cases_to_verify

UNASKED: tuple[list[str], list[str], list[str], list[str]] = ([], [], [], [])


@pytest.mark.parametrize(
    ("place", "kind", "word", "help"),
    [
        (0, "adapter", "alhpa", "did you mean 'alpha'?"),
        (1, "workload", "mnist_smal", "did you mean 'mnist_small'?"),
        (3, "tuning", "nope", "known: default, tuned"),
    ],
)
def test_a_slip_is_named_for_what_it_is(toys: SimpleNamespace, place: int, kind: str, word: str, help: str) -> None:
    asked = [list(each) for each in UNASKED]
    asked[place] = [word]
    with pytest.raises(RequestError) as error:
        cases_to_verify(*asked, 2)
    assert str(error.value).startswith(f"there is no {kind} {word!r}; ")
    assert help in str(error.value)


def test_a_tuning_that_only_some_have_leaves_the_others_out(toys: SimpleNamespace) -> None:
    assert {case.adapter for case in cases_to_verify([], ["mnist_small"], [], ["tuned"], 2)} == {"alpha"}
    assert {case.adapter for case in cases_to_verify([], ["mnist_small"], [], ["default"], 2)} == {"alpha", "beta"}


@pytest.mark.parametrize("workload", ["alexnet", "mnist_small"])
def test_a_precision_without_bounds_is_refused_with_those_that_have(workload: str) -> None:
    with pytest.raises(RequestError, match=r"no proof of precision 'float16': .*bfloat16, float32, float64 have"):
        tolerance("float16", workload)
    assert tolerance("float64", workload) == BY_PRECISION["float64"]


def test_every_strategy_is_proven_as_it_can_be(toys: SimpleNamespace) -> None:
    """Ranks where it is distributed, devices where one process drives them, one where nothing is to be joined."""
    found = cases_to_verify(["alpha"], ["mnist_small"], [], ["default"], 2)
    places = {case.strategy: (case.placement.ranks, case.placement.devices) for case in found}
    assert places == {"single": (1, 1), "ddp": (2, 1), "mirror": (1, 2), "free": (1, 1)}


def test_an_asynchronous_case_is_proven_on_one_device(toys: SimpleNamespace, tmp_path: Path) -> None:
    case = Case("alpha", "free", "mnist_small", Placement(nodes=2, ranks_per_node=3, hosts=("a", "b")))
    adapter, workload = toys.adapters["alpha"], toys.workloads["mnist_small"]
    python = Interpreter(Path(sys.executable), "here", "3")
    proof = case_of_proof(Ready(case, adapter, workload, toys.launchers["local"], python, tmp_path))
    assert (proof.placement.device_count, proof.placement.hosts) == (1, ("a",))
    assert proof.batch == 2 * workload.proof_batch
