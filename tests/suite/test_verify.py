"""What `verify` is asked for, and the bounds that it needs."""

from types import SimpleNamespace

import pytest

from suite.contracts.case import Case, Configuration, Placement
from suite.errors import RequestError
from suite.proofs.make import configuration_of_proof, networks
from suite.proofs.oracles import pieces
from suite.proofs.tolerances import tolerance
from suite.proofs.wanted import Wanted, cases_to_verify
from tests.support.errors import raising


@pytest.mark.parametrize(
    ("place", "kind", "word", "help"),
    [
        ("adapters", "adapter", "alhpa", "did you mean 'alpha'?"),
        ("workloads", "workload", "mnist_smal", "did you mean 'mnist_small'?"),
        ("tunings", "tuning", "nope", "known: default, tuned"),
    ],
)
def test_a_slip_is_named_for_what_it_is(toys, place, kind, word, help):
    with pytest.raises(RequestError) as error:
        cases_to_verify(Wanted(**{place: [word]}))  # type: ignore[arg-type]
    assert str(error.value).startswith(f"there is no {kind} {word!r}; ")
    assert help in str(error.value)


@pytest.mark.parametrize(
    ("knobs", "words"),
    [
        ({"overlp": "none"}, "--knob overlp: no chosen adapter has it; did you mean 'overlap'?"),
        ({"overlap": "all"}, "the knob overlap is one of 'none', 'merged', not 'all'"),
    ],
)
def test_a_knob_that_nobody_takes_is_named(toys, knobs, words):
    with pytest.raises(RequestError) as error:
        cases_to_verify(Wanted(knobs=knobs))
    assert words in str(error.value)


def test_strategies_knobs_and_tunings_go_to_those_that_have_them(toys):
    """Ranks where it is distributed, devices where one process drives them, one where nothing is to be joined."""
    found = cases_to_verify(Wanted(["alpha"], ["mnist_small"], tunings=["default"]))
    places = {case.strategy: (case.placement.ranks, case.placement.devices) for case, _ in found}
    assert places == {"single": (1, 1), "ddp": (2, 1), "mirror": (1, 2), "free": (1, 1), "pipe": (2, 1)}
    found = cases_to_verify(Wanted(workloads=["mnist_small"], knobs={"overlap": "none"}))
    assert {case.adapter: case.knobs.get("overlap") for case, _ in found} == {"alpha": None, "beta": "none"}
    for tuning, having in (("tuned", {"alpha"}), ("default", {"alpha", "beta"})):
        found = cases_to_verify(Wanted(workloads=["mnist_small"], tunings=[tuning]))
        assert {case.adapter for case, _ in found} == having
    with pytest.raises(RequestError, match=r"'float8': .*float64, float32, tf32, .*"):
        tolerance("float8")


def test_a_large_network_is_proven_where_it_is_named(toys):
    usual = {case.workload for case, _ in cases_to_verify(Wanted(["alpha"], strategies=["single"]))}
    assert set(toys.workloads) - usual == {"gpt2"}
    ((case, _), *_) = cases_to_verify(Wanted(["alpha"], ["gpt2@32"], ["single"]))
    assert (case.workload, case.batch) == ("gpt2@32", 1)
    assert case.graph_digest == toys.workloads["gpt2@32"].graph().digest
    with raising(RequestError, "gpt2@2048", 1024):
        cases_to_verify(Wanted(["alpha"], ["gpt2@2048"]))


def test_a_proof_s_batch_divides_into_microbatches(toys, monkeypatch):
    samples = toys.workloads["mnist_small"].proof_batch
    monkeypatch.setattr(toys.adapters["alpha"], "microbatches", lambda case: samples - 1)
    found = cases_to_verify(Wanted(["alpha"], ["mnist_small"], strategies=["single"]))
    assert {case.batch for case, _ in found} == {2 * (samples - 1)}


def test_what_is_inexact_is_proven_on_one_device(toys):
    case = Case("alpha", "free", "mnist_small", Placement(nodes=2, ranks_per_node=3, hosts=("a", "b")))
    workload = toys.workloads["mnist_small"]
    proof = proof_of(toys, case)
    assert (proof.placement.device_count, proof.placement.hosts) == (1, ("a",))
    assert proof.batch == 2 * workload.proof_batch
    case = Case("alpha", "ddp", "mnist_small", Placement(ranks_per_node=2))
    assert proof_of(toys, case).placement.ranks == 2
    assert proof_of(toys, case.on(knobs={"bucket": 1})).placement.ranks == 1


def proof_of(toys: SimpleNamespace, case: Case) -> Configuration:
    return configuration_of_proof(case, toys.adapters["alpha"], toys.workloads[case.workload])


def test_a_network_in_parts_is_proven_with_its_joined_batch(toys):
    alpha = toys.adapters["alpha"]
    case = proof_of(toys, Case("alpha", "pipe", "mnist_small", Placement(ranks_per_node=4)))
    assert case.batch % 3 == 0, "it divides into microbatches"
    assert networks(alpha, case) == 2
    assert pieces(alpha, case) == {"shards": 6, "observed": 3}
    ranks = case.on(strategy="ddp")
    assert (networks(alpha, ranks), pieces(alpha, ranks)) == (4, {"shards": 4, "observed": 1})
    mirror = case.on(strategy="mirror", placement=Placement(devices=2))
    assert (networks(alpha, mirror), pieces(alpha, mirror)) == (1, {"shards": 2, "observed": 1})


def test_what_cannot_be_proven_says_why(toys):
    ((case, refused),) = cases_to_verify(Wanted(["beta"], ["alexnet"], ["single"]))
    assert case.workload == "alexnet"
    assert refused == "beta has no layers of kind dropout, lrn"
    found = cases_to_verify(Wanted(["alpha", "beta"], ["mnist_small"], ["single"], device="cuda"))
    refusals = {case.adapter: refused for case, refused in found}
    assert refusals == {"alpha": None, "beta": "beta does not do device 'cuda'; it does cpu"}
    ((_, refused), _) = cases_to_verify(Wanted(["alpha"], ["mnist_small"], ["pipe"], devices=3))
    assert refused == ("alpha/pipe holds one network on 2 devices, and 3 do not divide by that; ask for 2 or 4 of them")
