"""`stagebench verify`: what it is asked for, its bounds, and frameworks that refuse, hang or die."""

import json
from types import SimpleNamespace

import pytest

from stagebench.adapters.reference import plugin as reference
from stagebench.suite.cli.verify import _reason
from stagebench.suite.contracts.case import Case, Configuration, Placement
from stagebench.suite.errors import RequestError
from stagebench.suite.proofs.make import Proofs, configuration_of_proof, networks, subject
from stagebench.suite.proofs.oracles import pieces
from stagebench.suite.proofs.tolerances import tolerance
from stagebench.suite.proofs.wanted import Wanted, cases_to_verify
from stagebench.suite.results.records import Proof
from stagebench.suite.session.cases import launch_of_case
from stagebench.suite.worker.case_parts import Sampling
from tests.support.errors import raising


@pytest.mark.parametrize(
    ("wanted", "words", "remedy"),
    [
        ({"adapters": ["alhpa"]}, "there is no adapter 'alhpa'; ", "did you mean 'alpha'?"),
        ({"workloads": ["mnist_smal"]}, "there is no workload 'mnist_smal'; ", "did you mean 'mnist_small'?"),
        ({"tunings": ["nope"]}, "there is no tuning 'nope'; ", "known: default, tuned"),
        ({"knobs": {"overlp": "none"}}, "--knob overlp: no chosen adapter has it; ", "did you mean 'overlap'?"),
        ({"knobs": {"overlap": "all"}}, "the knob overlap is one of 'none', 'merged'", "not 'all'"),
    ],
)
def test_a_slip_is_named_for_what_it_is(toys, wanted, words, remedy):
    with pytest.raises(RequestError) as error:
        cases_to_verify(Wanted(**wanted))
    assert words in str(error.value)
    assert remedy in str(error.value)


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


@pytest.mark.parametrize(("trainer", "verdict"), [("RefusingToy", "3 unsupported"), ("ToyTrainer", "3 FAILED")])
def test_verify_tells_a_framework_s_refusal_from_a_failure(
    stagebench, startable, trainer, verdict, tmp_path, monkeypatch
):
    monkeypatch.setenv(
        "STAGEBENCH_CACHE", str(tmp_path)
    )  # a proof is remembered by its code, and both toys' is one file
    startable.manager.register(reference)  # makes the oracle
    startable.adapters["alpha"].trainer = f"toy:{trainer}"
    asked = ("--adapter", "alpha", "--workload", "mnist_small", "--strategy", "single", "--tuning", "default")
    told = stagebench("verify", *asked)
    assert told.code == 1  # nothing is proven
    assert told.out.rstrip().endswith(verdict), told.out
    assert ("mnist_small cannot be cut so often" in told.out) == (trainer == "RefusingToy")
    rows = json.loads(stagebench("verify", *asked, "--json").stdout)
    assert [row["workload"] for row in rows] == ["mnist_small", "probe", "behaviour"]
    assert {(row["strategy"], row["passed"]) for row in rows} == {
        ("single", None if trainer == "RefusingToy" else False)
    }


def test_verify_looks_for_every_interpreter_that_was_named_before_it_proves(refusal, startable, monkeypatch):
    monkeypatch.setenv("STAGEBENCH_PYTHON_BETA", "/no-such-python")
    monkeypatch.setattr(Proofs, "proving", lambda *_: pytest.fail("something was started"))
    assert "STAGEBENCH_PYTHON_BETA is /no-such-python" in refusal("verify", "--workload", "mnist_small")


def test_a_reason_is_printed_once():
    seen: dict[str, int] = {}
    whys = [_reason(why, number, seen) for number, why in enumerate(["no MPI", "no MPI", "", ""], 1)]
    assert whys == ["no MPI", "see [1]", "", ""]


PROVEN = Proof(key="k", **subject(Case("alpha", "single", "mnist_small")), passed=True)


def test_verify_keeps_what_it_proved_when_it_is_stopped(stagebench, startable, monkeypatch):
    made = iter([PROVEN])

    def proving(*_):
        yield True
        for proof in made:
            return proof
        raise KeyboardInterrupt

    monkeypatch.setattr(Proofs, "proving", proving)
    told = stagebench("verify", "--adapter", "alpha", "--workload", "mnist_small", "--json")
    assert told.code == 130
    assert json.loads(told.stdout) == [PROVEN.model_dump(mode="json")]


def test_verify_tells_of_a_slip_in_one_declaration_and_goes_on(stagebench, startable, monkeypatch):
    startable.adapters["alpha"].package = "nowhere"

    def proving(*_):
        yield True
        return PROVEN

    monkeypatch.setattr(Proofs, "proving", proving)
    monkeypatch.setattr(Proofs, "behaving", proving)
    told = stagebench("verify", "--workload", "mnist_small", "--strategy", "single", "--tuning", "default")
    assert told.code == 1
    assert "names the package 'nowhere'" in told.out
    assert told.out.rstrip().endswith("3 FAILED, 2 proven, 1 unsupported")


def test_a_framework_that_hangs_costs_its_proof_one_silence_limit_and_a_run_one_proof(startable, tmp_path, monkeypatch):
    startable.manager.register(reference)
    monkeypatch.setenv("STAGEBENCH_CACHE", str(tmp_path / "cache"))
    case = Case("alpha", "single", "mnist_small", batch=4, knobs={"sleep": {"start": 1000.0}}, silence_limit=1.0)
    maker, first = Proofs({}), []
    for steps in (3, 4):  # two cases of one proof
        one = case.on(sampling=Sampling(steps=steps))
        launch = launch_of_case(one, {}, tmp_path / "bundle")
        first.append(maker.prove(one, launch, tmp_path / f"proof{steps}"))
    assert first[0] == first[1]
    assert not first[0].passed
    assert "timeout, rank 0 sent no message for 1 s" in first[0].reason
    assert "float64" not in first[0].reason, "what hangs is not asked again"
    assert (tmp_path / "proof3").exists()
    assert not (tmp_path / "proof4").exists(), "it hung once"
