"""`stagebench verify` and the proofs behind it, with frameworks that refuse, hang or die."""

import json

import pytest

from adapters.reference import plugin as reference
from suite.cli.verify import _reason
from suite.contracts.case import Case
from suite.errors import RequestError
from suite.proofs.make import Proofs, subject
from suite.results.records import Proof
from suite.session.cases import launch_of_case
from suite.worker.case_parts import Sampling


@pytest.mark.parametrize(("trainer", "verdict"), [("RefusingToy", "3 unsupported"), ("ToyTrainer", "3 FAILED")])
def test_verify_tells_a_framework_s_refusal_from_a_failure(
    stagebench,
    startable,
    trainer,
    verdict,
    tmp_path,
    monkeypatch,
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


def test_verify_looks_for_every_interpreter_that_was_named_before_it_proves(stagebench, startable, monkeypatch):
    monkeypatch.setenv("STAGEBENCH_PYTHON_BETA", "/no-such-python")
    monkeypatch.setattr(Proofs, "proving", lambda *_: pytest.fail("something was started"))
    error = stagebench("verify", "--workload", "mnist_small").error
    assert isinstance(error, RequestError)
    assert "STAGEBENCH_PYTHON_BETA is /no-such-python" in str(error)


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


def test_a_proof_that_died_is_not_made_again_by_the_same_run(startable, tmp_path, monkeypatch):
    startable.manager.register(reference)
    monkeypatch.setenv("STAGEBENCH_CACHE", str(tmp_path / "cache"))
    case = Case("alpha", "single", "mnist_small", batch=4, knobs={"sleep": {"start": 1000.0}}, silence_limit=1.0)
    maker, first = Proofs({}), []
    for steps in (3, 4):  # two cases of one proof
        one = case.on(sampling=Sampling(steps=steps))
        launch = launch_of_case(one, {}, tmp_path / "bundle")
        first.append(maker.prove(one, launch, tmp_path / f"proof{steps}"))
    assert first[0] == first[1]
    assert (tmp_path / "proof3").exists()
    assert not (tmp_path / "proof4").exists(), "it hung once"


def test_a_framework_that_hangs_costs_its_proof_one_silence_limit(startable, tmp_path):
    startable.manager.register(reference)
    case = Case("alpha", "single", "mnist_small", batch=4, knobs={"sleep": {"start": 1000.0}}, silence_limit=1.0)
    launch = launch_of_case(case, {}, tmp_path / "bundle")
    proof = Proofs({}).prove(case, launch, tmp_path / "proof")
    assert not proof.passed
    assert "timeout, rank 0 sent no message for 1 s" in proof.reason
    assert "float64" not in proof.reason, "what hangs is not asked again"
