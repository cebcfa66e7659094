"""From the ranks' evidence to a verdict: is every error within its bound, are the counts equal?"""

import math
from dataclasses import asdict
from typing import Any

from suite.proofs.tolerances import Tolerance, tolerance
from suite.supervision import Attempt
from suite.worker import messages
from suite.worker.messages import of_type
from workloads.catalogue import Workload


def judge(attempt: Attempt, workload: Workload, precision: str, optimiser: str = "sgd") -> dict[str, Any]:
    """The verdict on one run; a proof that could not be run has not passed, and says why."""
    sent = [message for rank in attempt.messages.values() for message in rank]
    proofs, joined = of_type(messages.Proof, sent), of_type(messages.Joined, sent)
    if attempt.outcome != "ok" or not proofs:
        reason = f"the proof could not be run: {attempt.outcome}, {attempt.reason}"
        return {"passed": False, "outcome": attempt.outcome, "reason": reason}
    bounds, graph = tolerance(precision, workload.name, optimiser), workload.graph()
    losses = {kind: _mean([getattr(proof.losses, kind) for proof in proofs]) for kind in ("staged", "native", "oracle")}
    errors = _worst_over_ranks([proof.errors for proof in proofs])
    findings = [*_loss_findings(losses, bounds), *_tensor_findings(errors, bounds)]
    worst = max(findings, key=lambda found: found["error"] / found["tolerance"])
    problems = [_sentence(found) for found in findings if not found["error"] <= found["tolerance"]]
    for what, ours in (("parameter_count", graph.parameter_count), ("macs", graph.macs)):
        problems += [
            f"{what} is {theirs}, the workload has {ours}"
            for theirs in sorted({getattr(proof, what) for proof in proofs} - {ours})
        ]
    return {
        "passed": not problems,
        "reason": "; ".join(problems[:5]),
        "worst": worst,
        "losses": losses,
        "errors": errors,
        "parameter_count": proofs[0].parameter_count,
        "macs": proofs[0].macs,
        "graph": graph.digest,
        "weights": proofs[0].weights_digest,
        "versions": joined[0].versions if joined else {},
        "tolerance": {key: value for key, value in asdict(bounds).items() if key != "reason"},
        "looser_because": bounds.reason,
    }


def joined(measured: dict[str, Any], identity: dict[str, Any] | None) -> dict[str, Any]:
    """The whole proof: the measured precision's verdict, with float64's identity beside it.

    Looser bounds hold only where float64 proved the network to be the same one.
    """
    if identity is None:
        if measured.get("looser_because"):
            reason = "its float32 bounds are loose and the adapter has no float64 to prove identity in"
            return {**measured, "passed": False, "reason": "; ".join(filter(None, (measured["reason"], reason)))}
        return measured
    beside = {key: identity.get(key) for key in ("passed", "reason", "worst", "losses")}
    reasons = [measured["reason"], f"in float64: {identity['reason']}" if not identity["passed"] else ""]
    return {
        **measured,
        "passed": measured["passed"] and identity["passed"],
        "reason": "; ".join(filter(None, reasons)),
        "identity": beside,
    }


def _loss_findings(losses: dict[str, list[float]], bounds: Tolerance) -> list[dict[str, Any]]:
    return [
        _found(
            f"{kind} loss",
            f"iteration {index + 1}",
            abs(ours - theirs) / abs(theirs),
            bounds.later_loss if index else bounds.loss,
        )
        for kind in ("staged", "native")
        for index, (ours, theirs) in enumerate(zip(losses[kind], losses["oracle"], strict=True))
    ]


def _tensor_findings(errors: dict[str, dict[str, float]], bounds: Tolerance) -> list[dict[str, Any]]:
    return [
        _found(what, tensor, error, bounds.of(what))
        for what, tensors in errors.items()
        for tensor, error in tensors.items()
    ]


def _found(what: str, tensor: str, error: float, bound: float) -> dict[str, Any]:
    return {"what": what, "tensor": tensor, "error": error if math.isfinite(error) else 1e300, "tolerance": bound}


def _sentence(found: dict[str, Any]) -> str:
    return f"{found['what']} of {found['tensor']} is off by {found['error']:.2g} (allowed {found['tolerance']:.2g})"


def _mean(rows: list[list[float]]) -> list[float]:
    """Each iteration's mean over ranks: the global loss; a loss that was no number stays none."""
    return [sum(column) / len(column) for column in zip(*rows, strict=True)]


def _worst_over_ranks(ranks: list[dict[str, dict[str, float]]]) -> dict[str, dict[str, float]]:
    worst: dict[str, dict[str, float]] = {}
    for errors in ranks:
        for what, tensors in errors.items():
            into = worst.setdefault(what, {})
            for tensor, error in tensors.items():
                # Infinitely far travels as no number.
                into[tensor] = max(into.get(tensor, 0.0), math.inf if math.isnan(error) else error)
    return worst
