"""A proof passes only when every error is within its bound and both counts are equal."""

import pytest

from stagebench.suite.contracts.launcher import LOGINS
from stagebench.suite.processes.attempt import Attempt
from stagebench.suite.processes.evidence import Login, lost_logins
from stagebench.suite.proofs.judgement import ROUNDED, SHORT, joined, judge
from stagebench.suite.proofs.tolerances import distances, tolerance
from stagebench.suite.results.records import Verdict
from stagebench.suite.worker.messages import Joined, Proof, ProofLosses, decode, encode
from stagebench.suite.worker.typed_json import from_json, to_json
from stagebench.workloads.networks import by_name

WORKLOAD = by_name()["mnist_small"]
FLOAT32 = tolerance("float32")
GOOD = Proof(
    losses=ProofLosses(staged=[2.3, 2.2, 2.1], native=[2.3, 2.2, 2.1], oracle=[2.3, 2.2, 2.1]),
    errors={
        "logits": {"logits": 1e-7},
        "gradient": {"fc1.weight": 3e-7},
        "staged parameter": {"fc1.weight": 1e-7},
        "staged movement": {"fc1.weight": 1e-6},
        "native parameter": {"fc1.weight": 1e-7},
        "native movement": {"fc1.weight": 1e-6},
    },
    parameter_count=402_442,
    macs=627_840,
    graph_digest="g",
    weights_digest="w",
)


def attempt(*proofs, outcome="ok", reason=""):
    received = {rank: [decode(encode(proof))] for rank, proof in enumerate(proofs)}
    return Attempt(outcome, reason, received, 1.0, {})


def changed(path, value, proof=GOOD):
    content = to_json(proof)
    place = content
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return from_json(Proof, content, "proof")


def test_what_agrees_passes_and_the_global_loss_is_the_mean_over_ranks():
    verdict = judge(attempt(GOOD, GOOD), WORKLOAD, FLOAT32)
    assert verdict.passed
    assert verdict.worst.what == "gradient"
    assert verdict.reason == ""
    low, high = changed(("losses", "native", 0), 2.2), changed(("losses", "native", 0), 2.4)
    assert judge(attempt(low, high), WORKLOAD, FLOAT32).passed
    assert not judge(attempt(low, low), WORKLOAD, FLOAT32).passed


@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        (("losses", "native", 2), 2.1 * (1 + 1.1e-5), "native loss of iteration 3"),
        (("losses", "native", 0), 2.3 * (1 + 6e-6), "native loss of iteration 1"),
        (("losses", "staged", 0), float("nan"), "staged loss of iteration 1"),
        (("errors", "gradient", "fc1.weight"), 2e-5, "gradient of fc1.weight is off by 2e-05 (allowed 1e-05)"),
        (("errors", "gradient", "fc1.weight"), float("inf"), "gradient of fc1.weight"),
        (("errors", "native movement", "fc1.weight"), 0.5, "native movement of fc1.weight"),
        (("errors", "staged parameter", "fc1.weight"), 2e-5, "staged parameter of fc1.weight"),
        (("parameter_count",), 402_443, "parameter_count is 402443, the workload has 402442"),
        (("macs",), 1, "macs is 1, the workload has 627840"),
    ],
)
def test_what_does_not_agree_fails_and_says_where(path, value, reason):
    verdict = judge(attempt(changed(path, value)), WORKLOAD, FLOAT32)
    assert not verdict.passed
    assert reason in verdict.reason


def test_a_shape_comes_first_then_what_the_forward_left_then_gradients():
    errors = {
        "gradient": {"fc1.weight": 1.0, "conv1.weight": float("inf")},
        "statistics": {"fc1.running_mean": 1.0, "conv1.running_mean": 1.0},
        "logits": {"logits": 1.0},
    }
    bad = GOOD._replace(errors=errors, wrong={"gradient of conv1.weight": "has shape (5, 5), not (2, 5)"})
    reasons = judge(attempt(bad), WORKLOAD, FLOAT32).reason.split("; ")
    assert [reason.partition(" is ")[0].partition(" has ")[0] for reason in reasons] == [
        "gradient of conv1.weight",
        "the output of forward",
        "statistics of conv1.running_mean",
        "statistics of fc1.running_mean",
        "gradient of fc1.weight",
    ]


def failing(*kinds, tensors=1):
    named = {f"{number}.weight": 0.5 for number in range(tensors)}
    proof = GOOD._replace(errors={**GOOD.errors, **dict.fromkeys(kinds, named)})
    return judge(attempt(proof), WORKLOAD, FLOAT32).reason


@pytest.mark.parametrize(
    ("kinds", "place"),
    [
        (["gradient", "staged parameter", "native parameter"], "backward pass"),
        (["first staged movement", "staged parameter", "native movement"], "`update`"),
        (["staged parameter", "native movement"], "kept between iterations: the batch"),
        (["first native movement", "native movement"], "look at `step`"),
        (["first native statistics", "native movement"], "look at `step`"),
        (["native movement"], "what `step` keeps"),
        (["predict"], "`predict`"),
        (["built parameter", "gradient", "native movement"], "what `build` does"),
        (["rebuilt parameter", "native movement"], "what `build` does a second time"),
    ],
)
def test_a_failed_proof_says_where_to_look(kinds, place):
    assert place in failing(*kinds).split("; ")[-1]
    assert place not in failing("logits", *kinds) or place.startswith("what `build`")
    losses = GOOD.losses._replace(native=[9.0, *GOOD.losses.native[1:]])  # the first native loss is off
    off = GOOD._replace(errors=dict(GOOD.errors, predict={"logits": 0.5}), losses=losses)
    assert "look at `step`" in judge(attempt(off), WORKLOAD, FLOAT32).reason


@pytest.mark.parametrize(
    ("kind", "factors", "devices", "place"),
    [
        ("gradient", (8.0, 8.1), 1, "every gradient is 8 times the right one: look at the mean over the batch"),
        ("gradient", (2.0, 2.0), 2, "every gradient is 2 times the right one: look at `communicate` if"),
        ("gradient", (0.0, 0.0), 1, "every gradient is 0: look at `backward`"),
        ("gradient", (8.0, 2.0), 1, "the forward pass is right: look at the backward pass"),
        ("gradient", (2.0,), 2, "the forward pass is right: look at `communicate` if"),
        ("first staged movement", (0.0, 0.0), 1, "the first update moves nothing: "),
        ("first staged movement", (0.5, 0.5), 1, "every first movement is 0.5 times the right one: look at"),
        ("first staged movement", (0.5, 0.0), 1, "the first gradients are right: look at the optimiser's rule"),
    ],
)
def test_a_factor_of_all_tensors_says_where_to_look(kind, factors, devices, place):
    named = {f"{number}.weight": 0.5 for number in range(2)}
    multiples = {f"{kind} of {number}.weight": factor for number, factor in enumerate(factors)}
    proof = GOOD._replace(errors={**GOOD.errors, kind: named}, factors=multiples)
    ranks = attempt(*[proof] * devices)
    for rank, messages in ranks.messages.items():
        messages.append(Joined(rank, devices, "none", {}, 1, {}))
    assert judge(ranks, WORKLOAD, FLOAT32).reason.split("; ")[-1].startswith(place)


def test_only_the_logits_are_off():
    reason = judge(attempt(changed(("errors", "logits", "logits"), 0.5)), WORKLOAD, FLOAT32).reason
    assert reason.endswith("look at `logits`")


def test_what_is_not_listed_is_counted_and_a_multiple_is_named():
    reason = failing("logits", tensors=14).split("; ")
    assert len(reason) == 7
    assert reason[5] == "and 9 more"
    multiple = changed(("errors", "gradient", "fc1.weight"), 7.0)._replace(factors={"gradient of fc1.weight": 8.0})
    assert "(allowed 1e-05): it is 8 times the right one; " in judge(attempt(multiple), WORKLOAD, FLOAT32).reason


def test_the_worst_rank_decides_and_counts_are_every_rank_s():
    verdict = judge(attempt(GOOD, changed(("errors", "gradient", "fc1.weight"), 1.0)), WORKLOAD, FLOAT32)
    assert not verdict.passed
    verdict = judge(attempt(GOOD, changed(("macs",), 1)), WORKLOAD, FLOAT32)
    assert not verdict.passed
    assert verdict.reason == "macs is 1, the workload has 627840"


def test_what_did_not_run_or_fails_in_float64_has_not_passed():
    verdict = judge(attempt(outcome="crash", reason="rank 1 died"), WORKLOAD, FLOAT32)
    reason = "the proof could not be run: crash, rank 1 died"
    assert verdict == Verdict(passed=False, outcome="crash", reason=reason)
    measured = judge(attempt(GOOD), WORKLOAD, FLOAT32)
    exact = judge(attempt(changed(("errors", "gradient", "fc1.weight"), 3e-6)), WORKLOAD, tolerance("float64"))
    refuted, identity = joined(measured, exact)
    assert not refuted.passed
    assert refuted.reason.startswith("in float64: gradient of fc1.weight")
    assert refuted.reason.endswith(SHORT), "float32's bounds hold"
    assert not identity.passed
    assert joined(measured, None) == (measured, None)
    wrong = judge(attempt(GOOD._replace(errors=dict(GOOD.errors, gradient={"fc1.weight": 0.5}))), WORKLOAD, FLOAT32)
    assert joined(wrong, measured)[0].reason.endswith(ROUNDED), "in a short precision alone"
    assert ROUNDED not in joined(wrong, wrong)[0].reason


def test_every_kind_of_finding_has_a_bound_which_rounding_widens():
    far = changed(("errors", "gradient", "fc1.weight"), 3e-2)
    rounded = changed(("errors", "gradient", "conv1.weight"), 2e-2)
    assert not judge(attempt(far), WORKLOAD, FLOAT32).passed
    widened = FLOAT32.widened(distances(rounded))
    assert judge(attempt(far), WORKLOAD, widened).passed
    assert (widened.gradient, widened.parameter, widened.logits) == (4e-2, FLOAT32.parameter, FLOAT32.logits)
    lost = changed(("errors", "gradient", "conv1.weight"), 1.4)
    assert FLOAT32.widened(distances(lost)).gradient == 0.8  # a tensor that has lost its direction is never allowed
    losses = ProofLosses(staged=[2.0, 2.0, 2.0], native=[2.0, 2.0, 2.0], oracle=[2.0, 2.1, 2.2])
    errors = {
        "logits": {"logits": 0.01},
        "statistics": {"a.running_mean": 0.02},
        "staged parameter": {"a.weight": 0.03},
        "native movement": {"a.weight": 0.04},
        "predict": {"logits": 0.05},
    }
    far = distances(GOOD._replace(losses=losses, errors=errors))
    assert [far.of(kind) for kind in errors] == [0.02, 0.02, 0.03, 0.04, 0.05]
    assert (far.loss, far.later_loss) == (0.0, pytest.approx(0.2 / 2.2))


def test_a_line_that_is_no_login_is_passed_over(tmp_path):
    lines = ['{"host": "far", "code": 255, "time_s": 1.5}', '{"host": "near", "code": "255", "time_s": 2.0}', "{", ""]
    (tmp_path / LOGINS).write_text("\n".join(lines))
    assert lost_logins(tmp_path) == [Login("far", 255, 1.5)]
