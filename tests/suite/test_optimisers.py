"""What a case's optimiser is set to, and which proof belongs to it."""

from contextlib import closing

import pytest

from stagebench.suite.contracts.case import Case, optimiser_settings, rate_of_proof
from stagebench.suite.errors import RequestError
from stagebench.suite.processes.jobs import optimiser
from stagebench.suite.proofs.every_adapter import TEXT, TOKENS
from stagebench.suite.proofs.wanted import Wanted, cases_to_verify
from stagebench.suite.results.records import CaseEntry
from stagebench.suite.worker import evidence
from stagebench.suite.worker.contract import SGD, Adam
from stagebench.workloads import weights
from stagebench.workloads.networks import by_name
from tests.support import trainers

PLAN = '[[cases]]\nadapter = ["alpha", "gamma"]\nstrategy = "single"\nworkload = "mnist_small"\n'
WORKLOADS = by_name()
TRANSFORMERS = {each.name: each for each in (WORKLOADS["gpt_char"], TOKENS, TEXT)}


def test_settings_are_the_workload_s_or_the_authors_and_become_the_worker_s_rule():
    found = optimiser_settings("sgd", WORKLOADS["resnet50"], 512)
    assert found == {"optimiser": "sgd", "lr": pytest.approx(0.2), "momentum": 0.9, "weight_decay": 1e-4}
    assert optimiser_settings("sgd", WORKLOADS["resnet50"], 512, lr=0.5)["lr"] == 0.5
    found = optimiser_settings("adam", WORKLOADS["mnist_small"], 512)
    assert found == {
        "optimiser": "adam", "lr": 1e-3, "momentum": 0.0,
        "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-7, "weight_decay": 0.0,
    }  # fmt: skip
    assert optimiser_settings("adam", WORKLOADS["alexnet"], 1, lr=0.01)["lr"] == 0.01
    assert optimiser_settings("adam", WORKLOADS["alexnet"], 1)["weight_decay"] == 5e-4

    def rule(name, **more):
        settings = {**optimiser_settings(name, WORKLOADS["alexnet"], 128), **more}
        return optimiser(Case("a", "single", "alexnet", **settings))

    assert rule("sgd") == SGD(0.01, 0.9, 5e-4)
    assert rule("adam") == Adam(1e-3, 0.9, 0.999, 1e-7, 5e-4)
    assert rule("sgd", clip_norm=0.5) == SGD(0.01, 0.9, 5e-4, clip=0.5)
    assert rule("adamw", clip_norm=0.5).clip == 0.5
    assert rule("adamw") == Adam(1e-3, 0.9, 0.999, 1e-8, 0.05, decoupled=True)


@pytest.mark.usefixtures("gamma")
def test_an_optimiser_that_only_some_have_is_unsupported_beside_those_that_have(cases):
    found = cases(PLAN + 'optimiser = ["sgd", "adam"]\n')
    told = {(r.case.adapter, r.case.optimiser): r.reason for r in found}
    assert told == {
        ("alpha", "sgd"): "",
        ("alpha", "adam"): "alpha does not do optimiser 'adam'; it does sgd",
        ("gamma", "sgd"): "",
        ("gamma", "adam"): "",
    }
    assert len({r.case.id for r in found}) == 4
    for case in (each.case for each in found):
        stored = CaseEntry(id=case.id, case=case).model_dump_json()
        assert CaseEntry.model_validate_json(stored, strict=True).case == case
    assert {r.case.lr for r in cases(PLAN + 'optimiser = "adam"\nbatch = [8, 64]\n')} == {1e-3}
    with pytest.raises(RequestError, match=r"plan\.toml:6: .*optimiser = 'adm'.*known: sgd, adam, adamw"):
        cases(PLAN + 'optimiser = "adm"\n')


def test_adam_is_proven_at_its_own_rate(gamma):
    for name, rate in (("alexnet", 1e-3), ("resnet50", 1e-4)):  # more would blow its loss up
        assert rate_of_proof(Case("a", "s", name, optimiser="adam"), WORKLOADS[name]) == rate
    assert rate_of_proof(Case("a", "s", "alexnet"), WORKLOADS["alexnet"]) == 0.01
    ((case, refused),) = cases_to_verify(Wanted(["gamma"], ["mnist_small"], optimiser="adam", tunings=["default"]))
    assert (case.optimiser, case.lr, case.beta2, case.epsilon, refused) == ("adam", 1e-3, 0.999, 1e-7, None)
    ((_, refused), *_) = cases_to_verify(Wanted(["alpha"], ["mnist_small"], optimiser="adam"))
    assert refused == "alpha does not do optimiser 'adam'; it does sgd"
    with pytest.raises(RequestError, match=r"'adm'.*'adam'"):
        cases_to_verify(Wanted(["alpha"], ["mnist_small"], optimiser="adm"))


@pytest.mark.slow
@pytest.mark.parametrize("name", TRANSFORMERS)
@pytest.mark.parametrize("rule", ["sgd", "adamw"])
def test_a_proof_does_not_halve_the_loss_of_a_transformer(name, rule):
    """Of samples that are learnt by heart a loss is small, and its rounding large."""
    workload = TRANSFORMERS[name]
    graph, samples = workload.graph(), workload.proof_batch
    case = Case("reference", "single", name, **optimiser_settings(rule, workload, samples))
    asked = optimiser(case.on(lr=rate_of_proof(case, workload)))
    setup = trainers.setup(precision="float64", batch=samples, optimiser=asked)
    with closing(trainers.by_strategy("reference")(setup)) as trainer:
        trainer.build(graph, weights.for_proof(graph))
        first, *_, last = evidence.staged_iterations(trainer, graph, samples, lambda kind, result: None)
    assert last > first / 2
