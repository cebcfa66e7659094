"""The proofs: every adapter trains exactly the workload that it claims to, or its rows are marked.

A proof compares one adapter's losses, logits, gradients and updated parameters, from its staged and its native step,
with those of the float64 oracle (the `reference` adapter). Proofs are kept in the cache, keyed by everything that could
change them, and a run keeps a copy of the proofs that its records name.
"""

import hashlib
import json
import struct
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from stagebench.suite.contracts.adapter import Adapter
from stagebench.suite.contracts.case import Case, Configuration, rate_of_proof
from stagebench.suite.errors import StagebenchError
from stagebench.suite.files import cache_folder, write_whole
from stagebench.suite.plugin_errors import ask
from stagebench.suite.processes import bundle
from stagebench.suite.processes.attempt import Attempt, Limits, in_one_go
from stagebench.suite.processes.hosts import this_machine
from stagebench.suite.processes.jobs import variables
from stagebench.suite.processes.launch import Launch
from stagebench.suite.processes.query import inherited
from stagebench.suite.proofs.every_adapter import BEHAVIOUR, behaving
from stagebench.suite.proofs.judgement import joined, judge
from stagebench.suite.proofs.oracles import UPDATE, Oracles
from stagebench.suite.proofs.side_by_side import Proving
from stagebench.suite.proofs.tolerances import BITS, MOST, TIMES, Tolerance, tolerance
from stagebench.suite.results.records import Proof, Subject, Verdict
from stagebench.suite.worker.case_parts import Schedule
from stagebench.suite.worker.job import Behave, Prove
from stagebench.suite.worker.messages import Behaviour, of_type
from stagebench.suite.worker.variables import arithmetic
from stagebench.workloads.catalogue import Workload

PATIENCE, LIMIT = 1800.0, 6 * 3600.0  # seconds without a sign of life, and for all of a proof
CLIP = 0.1  # of a proof whose case clips: below the norm of the first gradients of every network
DECAY = 0.01  # of a proof whose case has none: large enough to be seen in three updates
MOST_LAYERS = 44  # gpt_char's: in a larger network the first wrong layer is not looked for, since each cut is built
EACH_IS_RIGHT = "each layer is right in a network that ends with it: look at the heads, and at how layers are joined"
NO_FLOAT64 = "rounding may do this to a large network, and the adapter has no float64 to tell it from a mistake"
LOOSER = (
    "float64 proves the identity; these bounds come from what rounding alone does to this network, the oracle with "
    "every layer's result rounded to {bits} bits"
)


class Proofs:
    """Makes each proof once, and keeps it in the cache."""

    def __init__(self, interpreters: dict[str, str]) -> None:
        """Take the explicit interpreters ({adapter: path}), for `stagebench.suite.processes.interpreters.find`."""
        self._folder, self._oracles = cache_folder("proofs"), Oracles(interpreters)
        self._died: dict[tuple[str, float], Proof] = {}  # failed proofs by (key, silence limit), not kept in the cache
        self._under_way: set[str] = set()  # keys
        self._host = this_machine()

    def prove(self, case: Case, launch: Launch, scratch: Path) -> Proof:
        """Run `proving` to its end, without concurrent proofs."""
        return in_one_go(self.proving(case, launch, scratch))

    def proving(self, case: Case, launch: Launch, scratch: Path) -> Proving[Proof]:
        """Return the proof that a case's records name: from the cache, or made now with its evidence in `scratch`.

        An error that prevents the proof becomes its reason: the case is measured in any case.
        """
        try:
            proven = configuration_of_proof(case, launch.adapter, launch.workload)
            # A compiler may be silent for minutes. The case's own limit holds until the ranks have joined.
            limits = Limits(LIMIT, PATIENCE, joining_s=case.silence_limit)
            launch = replace(launch, configuration=proven, limits=limits, tuned_batch=tuned_batch(case, launch.adapter))
            key, scope = self._key(launch), _scope(case, launch.adapter)
            made = yield from self._once(key, case.silence_limit, self._made(launch, key, scope, scratch))
            return made.but(scope=scope)
        except (StagebenchError, OSError) as error:
            return Proof(key=None, **subject(case), passed=False, reason=f"no proof could be made: {error}")

    def forget(self, proof: Proof) -> None:
        """Remove a proof from the cache, to have it made again: its ranks saw variables that its key does not cover."""
        (self._folder / f"{proof.key}.json").unlink(missing_ok=True)

    def behaving(self, case: Case, launch: Launch, scratch: Path) -> Proving[Proof]:
        """Return the verdict on a case's behaviour, which no oracle can show, in place of a proof; kept as one is.

        Each device has one thread, and the precision is the adapter's usual one: neither changes the behaviour.
        """
        adapter, placement = launch.adapter, replace(case.placement, threads=1)
        # A rank's first question waits for the others, too, whose times differ on a busy machine; so do its threads.
        strategy = adapter.strategy(case)
        lone = not strategy.distributed and not strategy.several_devices and placement.device == "cpu"
        left_out = [*["laziness"] * strategy.distributed, *["threads"] * (not lone)]
        looks = [name for name in Behave(1, 1).looks if name not in left_out]
        precision = adapter.capabilities.usual_precision(placement.device)
        case = case.on(workload=BEHAVIOUR.name, placement=placement, precision=precision)
        proven, task = behaving(configuration_of_proof(case, adapter, BEHAVIOUR), adapter, looks)
        limits = Limits(PATIENCE, PATIENCE, joining_s=case.silence_limit)
        launch = replace(launch, configuration=proven, workload=BEHAVIOUR, limits=limits)

        key = self._key(launch)

        def made() -> Proving[tuple[Proof, bool]]:
            scratch.mkdir(parents=True, exist_ok=True)
            attempt = yield from launch.running(scratch, task)
            sent = of_type(Behaviour, [each for rank in attempt.messages.values() for each in rank])
            problems = sorted({problem for each in sent for problem in each.problems})
            outcome = None if attempt.outcome == "ok" else attempt.outcome
            reason = "; ".join(problems)
            if outcome:
                reason = f"its behaviour could not be checked: {outcome}, {attempt.reason}"
            proof = Proof(key=key, **subject(proven), passed=not reason, reason=reason, outcome=outcome)
            return proof, outcome is None

        return (yield from self._once(key, case.silence_limit, made()))

    def _once(self, key: str, silence_limit: float, made: Proving[tuple[Proof, bool]]) -> Proving[Proof]:
        """Return the proof of a key, remembered or `made` now; that says, too, whether every run gave figures."""
        path, once = self._folder / f"{key}.json", (key, silence_limit)
        while key in self._under_way:  # another case is waiting for it
            yield True
        found = _remembered(path) or self._died.get(once)
        if found is not None:
            return found
        self._under_way.add(key)
        try:
            proof, ran = yield from made
            if ran:
                write_whole(path, proof.text)
            elif not proof.errors:  # a run that died or hung would do so again
                self._died[once] = proof
            return proof
        finally:
            self._under_way.remove(key)

    def _made(self, launch: Launch, key: str, scope: str, scratch: Path) -> Proving[tuple[Proof, bool]]:
        """Make a proof, with a run in float64 if the adapter has it; return it, and whether every run gave figures."""
        proven = launch.configuration
        results, precision, workload = self._oracles.of(launch), proven.precision, launch.workload
        bounds, device = tolerance(precision), proven.placement.device
        attempt = yield from _ran(launch, results, scratch)
        measured, identity = judge(attempt, workload, bounds, device), None
        if measured.errors and precision != "float64":
            if "float64" in launch.adapter.capabilities.precisions:
                in_float64 = replace(launch, configuration=proven.on(precision="float64"))
                exact = yield from _ran(in_float64, results, scratch / "float64")
                identity = judge(exact, workload, tolerance("float64"), device)
            if not measured.passed and identity is None:
                measured = measured.but(reason=f"{measured.reason}; {NO_FLOAT64}")
            elif not measured.passed and identity is not None and identity.passed:
                measured = self._judged_by_rounding(launch, results, attempt, measured)
        failed = identity if identity is not None and not identity.passed else measured
        trains = not launch.adapter.strategy(proven).infers
        small = trains and proven.placement.device_count == 1 and len(workload.graph().layers) <= MOST_LAYERS
        if small and not failed.passed and _in_a_layer(failed, tolerance("float64") if failed is identity else bounds):
            own = launch if failed is measured else replace(launch, configuration=proven.on(precision="float64"))
            layer = yield from self._first_wrong_layer(own, failed, scratch / "layers")
            measured = measured.but(reason="; ".join(filter(None, (measured.reason, layer))))
        verdict, in_short = joined(measured, identity)
        proof = Proof(key=key, **subject(proven), **dict(verdict), scope=scope, identity=in_short)
        return proof, bool(measured.errors) and (identity is None or bool(identity.errors))

    def _first_wrong_layer(self, launch: Launch, failed: Verdict, scratch: Path) -> Proving[str]:
        """Return a sentence on the layer that makes a proof fail; "" if that cannot be found out."""
        try:
            attempt = yield from _ran(launch, self._oracles.of(launch, layers=True), scratch, layers=True)
        except (StagebenchError, OSError):
            return ""
        sent = of_type(Behaviour, [each for rank in attempt.messages.values() for each in rank])
        if attempt.outcome != "ok" or not sent:
            return ""
        return "; ".join(sent[0].problems) or ("" if failed.outcome else EACH_IS_RIGHT)

    def _judged_by_rounding(self, launch: Launch, results: Path, attempt: Attempt, fixed: Verdict) -> Verdict:
        """Judge an attempt by what rounding alone does to the network; `fixed` is the verdict by the fixed bounds."""
        proven = launch.configuration
        bits = BITS[proven.precision]
        try:
            rounded = self._oracles.rounding(launch, results, bits)
        except (StagebenchError, OSError) as error:
            return fixed.but(reason=f"{fixed.reason}; what rounding does to the network is not known: {error}")
        verdict = judge(attempt, launch.workload, tolerance(proven.precision).widened(rounded), proven.placement.device)
        return verdict.but(looser_because=LOOSER.format(bits=bits))

    def _key(self, launch: Launch) -> str:
        """Return the proof's key, a hash of everything that could change the verdict."""
        proven, workload = launch.configuration, launch.workload
        values = proven.to_dict()
        environ = {**inherited(), **ask(launch.adapter, "environ", proven, launch.interpreter.path)}
        batch = {"tuned batch": launch.tuned_batch} if launch.tuned_batch else {}
        if launch.here:  # the verdict is its processors'
            host = [self._host.cpu, self._host.gpus if proven.placement.device != "cpu" else []]
        else:
            host = [launch.launcher.name, *proven.placement.hosts]
        parts = {
            **batch,
            "bundle": bundle.written_digest(launch.bundle),
            "graph": workload.graph().digest,
            "configuration": {**values, "placement": {**values["placement"], "hosts": []}},
            "packages": launch.interpreter.packages,
            "python": launch.interpreter.version,
            "tolerance": [asdict(tolerance(proven.precision)), BITS.get(proven.precision), TIMES, MOST],
            "host": host,
            "variables": arithmetic(environ, variables(launch.adapter)),
        }
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def _in_a_layer(verdict: Verdict, bounds: Tolerance) -> bool:
    """Return whether a verdict is a failure of a layer's forward or backward, or a crash, which may be one."""
    if verdict.outcome:
        return verdict.outcome == "crash"
    kinds = {kind: verdict.errors.get(kind, {}).values() for kind in ("logits", "statistics", "gradient")}
    return any(error is None or not error <= bounds.of(kind) for kind, errors in kinds.items() for error in errors)


def _ran(launch: Launch, results: Path, scratch: Path, layers: bool = False) -> Proving[Attempt]:
    scratch.mkdir(parents=True, exist_ok=True)
    samples = launch.configuration.global_batch // networks(launch.adapter, launch.configuration)
    return (yield from launch.running(scratch, Prove(launch.workload.graph(), str(results), samples, layers)))


def _remembered(path: Path) -> Proof | None:
    """Return a proof from the cache; None if it cannot be read, is not the file's, or was changed."""
    try:
        text = path.read_bytes()
        found = Proof.model_validate_json(text, strict=True)
    except (OSError, ValidationError):
        return None
    return None if found.misfit(path, text) else found


def configuration_of_proof(case: Case, adapter: Adapter, workload: Workload) -> Configuration:
    """Return the configuration that proves a case: equal in strategy, threads and cores, with its own batch and rate.

    An asynchronous strategy is proven on one device.
    """
    placement = case.placement
    if not ask(adapter, "synchronous", case):
        # Several devices differ from the joined batch by design; one device does not.
        placement = replace(placement, nodes=1, ranks_per_node=1, devices=1, hosts=placement.hosts[:1])
    microbatches = ask(adapter, "microbatches", case)
    samples = max(workload.proof_batch, 2 * workload.proof_batch // placement.device_count)
    samples += -samples % microbatches
    # Fields that cannot change the verdict keep their defaults, so that plans share proofs. Threads and cores can: by
    # their number a library chooses its kernels, and the pieces into which it cuts a matrix or a sum.
    # A rank that is bound to cores has more of them for its readers: the proof needs equally many, and reads nothing.
    reads = case.data != "synthetic" and case.input.mode != "memory"
    changing = Schedule(warmup_epochs=1.0) if case.schedule.changing else Schedule()  # one schedule proves all
    return Configuration(
        case.adapter,
        case.strategy,
        case.workload,
        placement,
        batch=samples,
        precision=case.precision,
        tuning=case.tuning,
        **{**_update(case), "lr": _single(rate_of_proof(case, workload)), "schedule": changing},
        readers=case.readers if reads and placement.binding == "cores" else 0,
        knobs=case.knobs,
    )


def _update(case: Configuration) -> dict[str, Any]:
    """Return the fields that decide an update, each number as its nearest float32; weight decay is always proven.

    A case that clips is proven with a norm that every network's gradients exceed: it must show.

    MXNet's optimisers hold them in float32 whatever the precision: another rate by 1e-8 makes float64, too, flip a sign
    of a large network's ReLU now and then, worth 1e-3 of a later gradient.
    """
    values = {name: getattr(case, name) for name in UPDATE}
    values["weight_decay"] = values["weight_decay"] or DECAY
    values["clip_norm"] = CLIP if values["clip_norm"] else 0.0
    return {name: _single(value) if isinstance(value, float) else value for name, value in values.items()}


def _single(value: float) -> float:
    rounded: float = struct.unpack("f", struct.pack("f", value))[0]
    return rounded


def tuned_batch(case: Case, adapter: Adapter) -> int:
    """Return the samples per device for which a proof chooses kernels by timing; 0: it times none."""
    return case.batch if ask(adapter, "tunes_to_batch", case) else 0


def networks(adapter: Adapter, case: Configuration) -> int:
    """Return the number of networks that are trained in parallel, each with its own batch."""
    held: int = max(ask(adapter, "model_parallel_size", case), case.placement.devices)
    return case.placement.device_count // held


def _scope(case: Case, adapter: Adapter) -> str:
    """Return the part of a case that its proof does not cover, in words; "" if it covers all."""
    strategy = adapter.capabilities.strategy(case.strategy)
    several = strategy is not None and (strategy.distributed or strategy.several_devices)
    if ask(adapter, "synchronous", case) or not several:
        return ""
    exchanged = "what its devices exchange (asynchronous, quantised or by blocks)"
    return f"proven on one device: {exchanged} is not the joined batch's by design"


def subject(case: Configuration) -> dict[str, Any]:
    """Return the fields of a case that its proof names."""
    own = {name: getattr(case, name) for name in Subject.model_fields if hasattr(case, name)}
    place = case.placement
    return own | {"ranks": place.ranks, "devices": place.devices, "device": place.device}
