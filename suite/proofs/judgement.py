"""From the ranks' evidence to a verdict: is every error within its bound, are the counts equal?"""

import math
from collections.abc import Sequence
from dataclasses import asdict

from stagebench.suite.processes.attempt import Attempt
from stagebench.suite.proofs.tolerances import Tolerance, tolerance
from stagebench.suite.results.rank_report import models
from stagebench.suite.results.records import Finding, Identity, Verdict, environment_of
from stagebench.suite.worker import messages
from stagebench.suite.worker.messages import of_type
from stagebench.workloads.catalogue import Workload
from stagebench.workloads.graph import Graph

OUTPUTS = {"logits": "the output of forward", "predict": "the output of predict"}  # one tensor each
ROUNDED = "in float64 all is right: look for numbers that are rounded to a shorter precision"
KEPT = "the first update is right: look at what is kept between iterations: the batch, the optimiser's state, gradients"
FIRST_STEP = ("first native movement", "first native statistics")
FIRST_UPDATE, ALIKE = "first staged movement", 0.02  # factors that are so near to each other are one
BUILT = ("built parameter", "rebuilt parameter")  # before the first iterations
SHORT = "these errors are float32's: look first for numbers that are rounded to it"
FORWARD = ("logits", "statistics")  # the results of the forward pass, independent of gradients


def judge(attempt: Attempt, workload: Workload, bounds: Tolerance, device: str = "cpu") -> Verdict:
    """Return the verdict on one run of a proof; a run that failed has not passed, and its `reason` is the failure's."""
    sent = [message for rank in attempt.messages.values() for message in rank]
    proofs, joined = of_type(messages.Proof, sent), of_type(messages.Joined, sent)
    hellos = of_type(messages.Hello, sent)
    if attempt.outcome != "ok" or not proofs:
        reason = f"the proof could not be run: {attempt.outcome}, {attempt.reason}"
        return Verdict(passed=False, outcome=attempt.outcome, reason=reason)
    graph = workload.graph()
    losses = {kind: _mean([getattr(proof.losses, kind) for proof in proofs]) for kind in ("staged", "native", "oracle")}
    errors = _worst_over_ranks([proof.errors for proof in proofs])
    # Tensors before losses: a wrong layer makes every loss wrong.
    findings = [*_tensor_findings(errors, bounds, graph), *_loss_findings(losses, bounds)]
    worst = max(findings, key=lambda found: found.error / found.tolerance)
    wrong = {what: why for proof in proofs for what, why in proof.wrong.items()}
    failed = [found for found in findings if not found.error <= found.tolerance]
    failed.sort(key=lambda found: "shape" not in wrong.get(_name(found), ""))
    factors = {what: factor for proof in proofs for what, factor in proof.factors.items()}
    problems = [_sentence(found, wrong, factors) for found in failed]
    for what, ours in (("parameter_count", graph.parameter_count), ("macs", graph.macs)):
        problems += [
            f"{what} is {theirs}, the workload has {ours}"
            for theirs in sorted({getattr(proof, what) for proof in proofs} - {ours, None})
        ]
    devices = max((message.world * message.devices for message in joined), default=1)
    more = [f"and {len(problems) - 5} more"] if len(problems) > 5 else []
    kept: dict[str, list[float | None]] = {kind: [*values] for kind, values in losses.items()}
    return Verdict(
        passed=not problems,
        reason="; ".join([*problems[:5], *more, *_cause(failed, factors, devices, infers=not losses["oracle"])]),
        worst=worst,
        losses=messages.ProofLosses(**kept),
        errors=errors,
        parameter_count=proofs[0].parameter_count,
        macs=proofs[0].macs,
        graph=graph.digest,
        weights=proofs[0].weights_digest,
        versions=joined[0].versions if joined else {},
        processors=tuple(sorted(models((hello.machine for hello in hellos if hello.machine), device))),
        # Each set once: a login on another host may have other values.
        environments=tuple({each.digest: each for hello in hellos if (each := environment_of(hello))}.values()),
        memory=tuple(of_type(messages.Memory, sent)),
        tolerance=asdict(bounds),
    )


def joined(measured: Verdict, in_float64: Verdict | None) -> tuple[Verdict, Identity | None]:
    """Return the verdict of both precisions together, and float64's in short (None: not run)."""
    reasons, passed = [measured.reason], measured.passed
    if in_float64 is not None and not in_float64.passed:
        short = [SHORT] if measured.passed and _within_float32(in_float64) else []
        reasons += [f"in float64: {in_float64.reason}", *short]
        passed = False
    elif in_float64 is not None and not measured.passed:
        reasons.append(ROUNDED)
    verdict = measured.but(passed=passed, reason="; ".join(filter(None, reasons)))
    return verdict, None if in_float64 is None else Identity.model_validate(in_float64)


def _within_float32(verdict: Verdict) -> bool:
    bounds = tolerance("float32")
    return bool(verdict.errors) and all(
        error is not None and error <= bounds.of(kind)
        for kind, errors in verdict.errors.items()
        for error in errors.values()
    )


def _loss_findings(losses: dict[str, list[float]], bounds: Tolerance) -> list[Finding]:
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


def _tensor_findings(errors: dict[str, dict[str, float]], bounds: Tolerance, graph: Graph) -> list[Finding]:
    """Return a finding for each tensor, sorted so that a likely cause precedes its consequences.

    Results of the forward pass come first, from the first layer on. Gradients and parameters follow, from the last
    layer back: a wrong backward pass of one layer makes all layers before it wrong.
    """
    order = {layer.name: number for number, layer in enumerate(graph.layers)}

    def place(what: str, tensor: str) -> int:
        number = order.get(tensor.rpartition(".")[0], 0)
        return number if what in FORWARD else -number

    return [
        _found(what, tensor, error, bounds.of(what))
        for what, tensors in sorted(errors.items(), key=lambda pair: (*BUILT, *FORWARD, pair[0]).index(pair[0]))
        for tensor, error in sorted(tensors.items(), key=lambda pair: place(what, pair[0]))
    ]


def _found(what: str, tensor: str, error: float, bound: float) -> Finding:
    return Finding(what=what, tensor=tensor, error=error if math.isfinite(error) else 1e300, tolerance=bound)


def _name(found: Finding) -> str:
    """Return the words for a result, as `stagebench.suite.worker.evidence` has them."""
    output = OUTPUTS.get(found.what)
    if output is None:
        return f"{found.what} of {found.tensor}"
    return output if found.tensor == "logits" else f"{output}, {found.tensor}"


def _sentence(found: Finding, wrong: dict[str, str], factors: dict[str, float]) -> str:
    what = _name(found)
    if found.error >= 1e300:
        return f"{what} {wrong.get(what, 'is not finite')}"
    multiple = f": it is {factors[what]:.3g} times the right one" if what in factors else ""
    return f"{what} is off by {found.error:.2g} (allowed {found.tolerance:.2g}){multiple}"


def _cause(failed: list[Finding], factors: dict[str, float], devices: int, infers: bool) -> list[str]:
    """Return where to look, for the results that are off; nothing if that is not clear."""
    tensors = {found.what for found in failed if not found.what.endswith("loss")}
    if infers or not failed:
        return []
    if not tensors.isdisjoint(BUILT):
        kept = "" if BUILT[0] in tensors else " a second time"
        return [f"the network begins otherwise than it should: look at what `build` does{kept}"]
    if not tensors:
        return ["the tensors are right: look at `loss`"]
    if "logits" in tensors and {found.what for found in failed} <= OUTPUTS.keys():
        return ["losses and gradients are right: look at `logits`"]
    if all("native" in what or what == "predict" for what in tensors):
        return [_cause_in_step(tensors, failed)]
    if not tensors.isdisjoint(FORWARD):
        return []
    if "gradient" in tensors:
        return [_cause_in_gradients(_common([found for found in failed if found.what == "gradient"], factors), devices)]
    first = [found for found in failed if found.what == FIRST_UPDATE]
    return [_cause_in_update(_common(first, factors)) if first else KEPT]


def _cause_in_step(tensors: set[str], failed: list[Finding]) -> str:
    first_step = any(found.what == "native loss" and found.tensor == "iteration 1" for found in failed)
    if tensors == {"predict"} and not first_step:
        return "training is right: look at `predict`"
    if tensors.isdisjoint(FIRST_STEP) and not first_step:
        return "the staged iterations and the first native step are right: look at what `step` keeps between steps"
    return "the staged iterations are right: look at `step`, then at what `build` keeps of an earlier network"


def _cause_in_gradients(factor: float | None, devices: int) -> str:
    exchange = "`communicate` if one device alone is proven, else at " if devices > 1 else ""
    if factor == 0:
        return f"every gradient is 0: look at {exchange}`backward`, and at what `gradients` returns"
    if factor is not None:
        return f"every gradient is {factor:.3g} times the right one: look at {exchange}the mean over the batch"
    return f"the forward pass is right: look at {exchange}the backward pass, nearest to the loss first"


def _cause_in_update(factor: float | None) -> str:
    if factor == 0:
        return "the first update moves nothing: look at `update`, and at whether `parameters` returns those of now"
    if factor is not None:
        return f"every first movement is {factor:.3g} times the right one: look at the rate and momentum in `update`"
    return "the first gradients are right: look at the optimiser's rule in `update`"


def _common(failed: list[Finding], factors: dict[str, float]) -> float | None:
    """Return the factor by which all these results are off; None if there is no such."""
    found = [factors[name] for name in map(_name, failed) if name in factors]
    alike = len(found) == len(failed) and max(found) - min(found) <= ALIKE * abs(found[0])
    return found[0] if alike else None


def _mean(rows: Sequence[Sequence[float | None]]) -> list[float]:
    """Return each iteration's mean over ranks, the global loss: NaN if any rank's loss is not a number."""
    return [
        sum(math.nan if loss is None else loss for loss in column) / len(column) for column in zip(*rows, strict=True)
    ]


def _worst_over_ranks(ranks: list[dict[str, dict[str, float]]]) -> dict[str, dict[str, float]]:
    worst: dict[str, dict[str, float]] = {}
    for errors in ranks:
        for what, tensors in errors.items():
            into = worst.setdefault(what, {})
            for tensor, error in tensors.items():
                # JSON has no infinity: an infinite error arrives as NaN.
                into[tensor] = max(into.get(tensor, 0.0), math.inf if math.isnan(error) else error)
    return worst
