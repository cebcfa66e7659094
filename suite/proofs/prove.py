"""The gate: every adapter trains exactly the workload it claims to, or its rows say otherwise.

A proof compares one adapter's losses, logits, gradients and updated parameters, by its
staged and by its native way, with those of the float64 oracle (the `reference`
adapter). Oracles and proofs are kept in the cache, keyed by everything that could
change them, and a run keeps a copy of the proofs that its records name.
"""

import contextlib
import hashlib
import json
import os
import tempfile
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from suite.cache import cache_folder
from suite.contracts.adapter import Adapter
from suite.contracts.case import Case, Placement
from suite.contracts.optimisers import for_proof
from suite.environments.find import find
from suite.environments.fingerprint import fingerprint
from suite.errors import StagebenchError
from suite.files import write_whole
from suite.launching import bundle
from suite.launching.launch import Ready
from suite.plugins import adapters, launchers
from suite.proofs.judgement import joined, judge
from suite.proofs.tolerances import tolerance

Proof = dict[str, Any]


class Proofs:
    """Makes proofs, once each, and remembers them."""

    def __init__(self, interpreters: dict[str, str]) -> None:
        """`interpreters` are the explicit settings (adapter: path) that `suite.environments.find.find` honours."""
        self._interpreters = interpreters
        self._folder = cache_folder("proofs")
        self._died: dict[tuple[str, float], Proof] = {}  # by key and silence limit; for as long as this one lives
        self._host = fingerprint()

    def prove(self, ready: Ready, scratch: Path) -> Proof:
        """The proof that a case's records name: remembered, or made now with its evidence in `scratch`.

        What keeps a proof from being made is its reason: the measurement goes on without.
        """
        try:
            return self._prove(ready, scratch)
        except (StagebenchError, OSError) as error:
            return {"key": None, **about(ready.case), "passed": False, "reason": f"no proof could be made: {error}"}

    def _prove(self, ready: Ready, scratch: Path) -> Proof:
        proof_case = case_of_proof(ready)
        key = self._key(ready, proof_case)
        path = self._folder / f"{key}.json"
        once = (key, ready.case.silence_limit)
        found = _remembered(path) or self._died.get(once)
        if found is not None:
            return {**found, **_scope(ready)}
        oracle, precision = self._oracle(ready, proof_case), proof_case.precision
        measured = self._verdict(ready, proof_case, oracle, scratch)
        identity = None
        ran = "errors" in measured  # what dies or hangs would do so again
        if ran and precision != "float64" and "float64" in ready.adapter.capabilities.precisions:
            identity = self._verdict(ready, proof_case.on(precision="float64"), oracle, scratch / "float64")
        proof = {"key": key, **about(proof_case), **_scope(ready), **joined(measured, identity)}
        if ran and (identity is None or identity.get("errors")):
            write_whole(path, json.dumps(proof, indent=1) + "\n")
        if not ran:
            self._died[once] = proof
        return proof

    def _verdict(self, ready: Ready, case: Case, oracle: Path, scratch: Path) -> Proof:
        scratch.mkdir(parents=True, exist_ok=True)
        attempt = replace(ready, case=case).attempt(
            scratch,
            "prove",
            lambda rank, message: None,
            joining=ready.case.silence_limit,
            oracle=str(oracle),
            batch=case.global_batch // networks(ready.adapter, case),
        )
        return judge(attempt, ready.workload, case.precision, case.optimiser)

    def _key(self, ready: Ready, case: Case) -> str:
        """Everything that could change the verdict."""
        parts = {
            "bundle": bundle.written_digest(ready.bundle),
            "graph": ready.workload.graph().digest,
            "case": {**case.to_dict(), "placement": {**case.to_dict()["placement"], "hosts": []}},
            "packages": ready.interpreter.packages,
            "python": ready.interpreter.version,
            "tolerance": asdict(tolerance(case.precision, case.workload, case.optimiser)),
            "host": [self._host["cpu"], self._host["gpus"] if case.placement.device != "cpu" else []],
        }
        return _digest(parts)

    def _oracle(self, proven: Ready, case: Case) -> Path:
        """The folder of the float64 results for a proof, made when needed and kept in the cache."""
        adapter, workload = adapters()["reference"], proven.workload
        graph = workload.graph().without_dropout()
        normalises = any(layer.kind == "batch_norm" for layer in graph.layers)
        oracle_case = case.on(
            adapter="reference",
            strategy="single",
            placement=Placement(threads=len(os.sched_getaffinity(0))),
            batch=case.global_batch,
            precision="float64",
            tuning="default",
            knobs=pieces(proven.adapter, case) if normalises else {},
        )
        samples = case.global_batch
        key = _digest({"bundle": bundle.digest(adapter), "graph": graph.digest, "case": oracle_case.to_dict()})
        folder = cache_folder("oracles") / key
        if (folder / "meta.json").exists():
            return folder
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            results = Path(scratch) / "results"
            results.mkdir()
            ready = Ready(
                oracle_case,
                adapter,
                workload,
                launchers()["local"],
                find(adapter, self._interpreters),
                bundle.write(adapter, Path(scratch) / "bundle"),
            )
            attempt = ready.attempt(
                Path(scratch), "oracle", lambda rank, message: None, oracle=str(results), batch=samples
            )
            if attempt.outcome != "ok":
                raise StagebenchError(
                    f"the float64 oracle of {workload.name} could not be made in {folder.parent} "
                    f"(STAGEBENCH_CACHE names another place): {attempt.reason}"
                )
            # Another run may have made it meanwhile: the same results, so either will do.
            with contextlib.suppress(OSError):
                results.rename(folder)
        return folder


def _remembered(path: Path) -> Proof | None:
    """A proof from the cache; one that cannot be read is made again."""
    try:
        found: Proof = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return found


def case_of_proof(ready: Ready) -> Case:
    """The case that proves another one: the same way of training, a small batch, a learning rate of the proof's own."""
    case, workload = ready.case, ready.workload
    placement = case.placement
    if not ready.adapter.exact(case):
        # What it does between devices is another thing by design; what one of them computes is not.
        placement = replace(placement, nodes=1, ranks_per_node=1, devices=1, hosts=placement.hosts[:1])
    microbatches = ready.adapter.microbatches(case)
    samples = max(workload.proof_batch, 2 * workload.proof_batch // placement.device_count)
    samples += -samples % microbatches
    cores = len(os.sched_getaffinity(0))
    plain = Case(case.adapter, case.strategy, case.workload)
    # Back to the defaults goes what cannot change the verdict, so that plans share their proofs.
    return case.on(
        batch=samples,
        data="synthetic",
        lr=for_proof(case, workload),
        passes=(),
        readers=0,
        input=plain.input,
        training=plain.training,
        seed=1,
        placement=replace(placement, threads=max(1, cores // (placement.ranks_per_node * placement.devices))),
        sampling=plain.sampling,
        time_limit=plain.time_limit,
        silence_limit=plain.time_limit,  # a compiler says nothing for minutes
    )


def networks(adapter: Adapter, case: Case) -> int:
    """How many networks are trained side by side, each with a batch of its own."""
    held = max(adapter.parts(case), case.placement.devices)
    return case.placement.device_count // held


def pieces(adapter: Adapter, case: Case) -> dict[str, int]:
    """The oracle's knobs: batch statistics are every device's own, or every microbatch's of a network in parts."""
    microbatches = adapter.microbatches(case)
    alone = case.placement.device_count // adapter.parts(case)
    return {"shards": alone * microbatches, "observed": microbatches}


def _scope(ready: Ready) -> dict[str, Any]:
    """What the proof leaves open."""
    strategy = ready.adapter.capabilities.strategy(ready.case.strategy)
    several = strategy is not None and (strategy.distributed or strategy.several_devices)
    if ready.adapter.exact(ready.case) or not several:
        return {}
    open_question = (
        "what its devices exchange (asynchronous, quantised or by blocks) is not the joined batch's by design"
    )
    return {"scope": f"proven on one device: {open_question}"}


def about(case: Case) -> dict[str, Any]:
    """What of a case a proof names."""
    return {
        "adapter": case.adapter,
        "strategy": case.strategy,
        "workload": case.workload,
        "ranks": case.placement.ranks,
        "devices": case.placement.devices,
        "device": case.placement.device,
        "precision": case.precision,
        "tuning": case.tuning,
        "optimiser": case.optimiser,
        "knobs": case.knobs,
    }


def _digest(parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]
