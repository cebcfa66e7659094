"""A record as the figures of a process group, and the marks that speak against them."""

import ipaddress
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any, NamedTuple

import numpy as np

from stagebench.suite.analysis.budget import STAGES, Budget, InputWait, budget_of, input_wait, wall_per_step
from stagebench.suite.analysis.comparability import FAILED_LATER, SHARED_GPUS
from stagebench.suite.analysis.latency import PERCENTILES
from stagebench.suite.analysis.learning import Learnt, Staleness, learnt, mean, staleness_of
from stagebench.suite.analysis.machine import (
    Gpu,
    Noise,
    Peak,
    Reference,
    Where,
    gpus_of,
    joules_of,
    noise_of,
    peak_of,
    references_of,
    where,
)
from stagebench.suite.analysis.stats import Round, Values
from stagebench.suite.analysis.trend import Trend, trend
from stagebench.suite.processes.placement_check import RankReport, busiest
from stagebench.suite.results.rank_report import Rank, models
from stagebench.suite.results.records import Declared, Evidence, Interpreter, Load, Record, environment_of
from stagebench.suite.worker.contract import KernelTimes, LayerTimes
from stagebench.suite.worker.messages import Memory, Pass, ServerUse, Try
from stagebench.suite.worker.noise import disturbance
from stagebench.suite.worker.pass_kinds import BY_NAME, LOSSES, NAMES, SPEEDS, STAGED, TRAIN

NOTES = {"skipped": "samples skipped", "subnormal": "subnormal"}  # notes of a rank, and the marks that they make
LAYER_SECONDS = ("forward_s", "backward_s", "communication_s")
RESIDUAL = 0.15  # of the native time: beyond it `other`, or a negative communication, is marked


@dataclass(frozen=True)
class StageUse:
    """A stage by two clocks of one rank, medians over iterations: the pass `kernels` and the staged pass."""

    stage: str
    busy: float  # seconds in which any kernel ran
    staged: float | None  # seconds of the stage; None: no staged pass in this process

    @property
    def idle_share(self) -> float | None:
        """The share of the stage in which no kernel ran; negative if the profiler itself took time."""
        return 1 - self.busy / self.staged if self.staged else None


@dataclass(frozen=True)
class Profile:
    """The pass `kernels` of the first rank that reported it."""

    profiler: str
    stages: Sequence[StageUse]  # those in which a kernel ran
    rows: Sequence[KernelTimes]  # the longest first
    trace: str  # a file within the run folder; "": not kept

    @property
    def seconds(self) -> float:
        """The sum over all kernels of an iteration."""
        return sum(row.seconds for row in self.rows)


def profile_of(record: Record) -> Profile | None:
    """Return None if no rank ran the pass `kernels`."""
    for rank in record.ranks:
        if kernels := rank.kernels:
            staged = rank.passes.get(STAGED)
            medians = {name: median(steps) for name, steps in ((staged and staged.stage_s) or {}).items() if steps}
            uses = [StageUse(name, busy, medians.get(name)) for name, busy in kernels.stages.items() if busy]
            trace = f"attempts/{record.case_id}-r{record.repeat}/{kernels.trace}" if kernels.trace else ""
            return Profile(kernels.profiler, uses, kernels.rows, trace)
    return None


class Startup(NamedTuple):
    """Seconds from a process's start to the end of its first native step, each part on its slowest rank."""

    loading: float  # the framework is imported, the device set, ranks meet
    building: float  # the network and its optimiser
    compiling: float  # what the first step takes beyond a measured one
    step: float  # as a measured one


def startup_of(ranks: Sequence[Rank], name: str) -> Startup | None:
    """Return None if a rank lacks a part, or was not warmed up for the pass that gives the speed."""
    step, parts = wall_per_step(ranks, name), []
    if step is None:
        return None
    for rank in ranks:
        warmup = rank.passes[name].warmup_s
        if not (rank.joined and rank.joined.load_s is not None and rank.built and warmup):
            return None
        parts.append((rank.joined.load_s, rank.built.seconds, warmup[0]))
    loading, building, first = map(max, zip(*parts, strict=True))
    return Startup(loading, building, max(first - step, 0.0), min(first, step))


@dataclass(frozen=True)
class Worker:
    """A rank among others, by its TCP connections; shared memory and InfiniBand are not among them."""

    rank: int
    host: str
    addresses: tuple[str, ...]  # its own
    peers: tuple[int, ...]  # ranks
    others: tuple[str, ...]  # addresses of processes that are no ranks: servers, the program that started the ranks


def workers_of(ranks: Sequence[Rank]) -> tuple[Worker, ...]:
    """Return a worker per rank, in the ranks' order; () with one rank, or if no rank has a connection."""
    hosts = [rank.hello.host if rank.hello else "" for rank in ranks]
    owners = {
        _ends(host, link.own, link.other): rank.rank
        for host, rank in zip(hosts, ranks, strict=True)
        for link in rank.connections
    }
    if not owners or len(ranks) < 2:
        return ()
    workers = []
    for host, rank in zip(hosts, ranks, strict=True):
        links = [(link, owners.get(_ends(host, link.other, link.own))) for link in rank.connections]
        links = [(link, peer) for link, peer in links if peer != rank.rank]  # a process may be connected to itself
        addresses = sorted({_address(link.own) for link, _ in links})
        peers = sorted({peer for _, peer in links if peer is not None})
        others = sorted({_address(link.other) for link, peer in links if peer is None})
        workers.append(Worker(rank.rank, host, tuple(addresses), tuple(peers), tuple(others)))
    return tuple(workers)


def _ends(host: str, near: str, far: str) -> tuple[str, str, str]:
    """Return the host if both addresses are its loopback's, else ""; one end; the other end."""
    return host if ipaddress.ip_address(_address(near)).is_loopback else "", near, far


def _address(end: str) -> str:
    """Return an end of a connection without its port."""
    return end.rpartition(":")[0].strip("[]")


class Carrier(NamedTuple):
    """The interface of a host that sent most."""

    interface: str
    sent: int  # bytes


def carriers(ranks: Sequence[Rank]) -> dict[str, Carrier] | None:
    """Return each host's busiest interface; None on one host, or if no rank counted."""
    reports = [
        RankReport(rank.rank, rank.hello.host, {name: wire.sent_bytes for name, wire in rank.wire.items()}, 0)
        for rank in ranks
        if rank.hello and rank.wire
    ]
    if len({report.host for report in reports}) < 2:
        return None
    return {host: Carrier(*most) for host, most in busiest(reports).items()}


@dataclass(frozen=True, slots=True)
class Provenance:
    """The origin of a process's figures, as a page shows it next to them."""

    interpreter: Interpreter
    bundle: str
    declared: Declared | None
    proof: str | None
    proof_reason: str
    load: Load
    turns_with: int  # other cases
    evidence: Evidence | None
    transport: str | None
    versions: dict[str, str]
    hosts: list[str]
    processors: frozenset[str]  # models
    environments: dict[str, dict[str, str]]  # variables of ranks that change what is computed, by their digest
    where: Where  # its ranks ran
    wire: dict[str, Carrier] | None  # by host
    workers: tuple[Worker, ...]
    notes: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Process:
    """The figures of one record whose `result` is ok, or the remains of another one."""

    repeat: int
    round: Round
    outcome: str
    reason: str
    step_seconds: Values  # native pass, slowest rank, scaled so that they sum to its wall time
    samples: int  # all ranks', native pass
    wall: float  # slowest rank's, from the common barrier; of ranks at their own pace, samples over their summed rates
    budget: Budget | None
    stage_seconds: dict[str, "array[float]"]  # by stage: every step of the staged pass, of the budget's critical rank
    latencies: dict[str, "array[float]"]  # by load: every query's
    tries: tuple[Try, ...]  # of the load `server`
    model_server: ServerUse | None
    marks: frozenset[str]
    losses: dict[str, float | None]  # by pass: the last iteration's, the mean over ranks
    passes: dict[str, float]  # seconds per step of every pass, on the slowest rank
    layers: list[LayerTimes] | None
    kernels: Profile | None
    learnt: Learnt | None  # of a case that trains
    input_wait: InputWait | None
    startup: Startup | None
    gradient_bytes: int | None  # that each device contributes to the exchange of a step, on average
    memory: Sequence[Memory]  # each rank's peak; () unknown
    gpus: tuple[Gpu, ...]  # that its ranks drove; () unknown
    staleness: Staleness | None  # of asynchronous workers
    trend: Trend | None  # of the native pass's steps
    noise: Noise
    references: tuple[Reference, ...]  # of its ranks
    peak: Peak | None  # measured in a case's first process
    joules: float | None  # of the native pass, on all hosts
    about: Provenance

    @property
    def rate(self) -> float | None:
        """Samples per second of all ranks together."""
        return self.samples / self.wall if self.outcome == "ok" and self.wall > 0 else None


def rate(record: Record) -> float | None:
    """Return samples/s of the pass that gives the speed, so far: all ranks' samples over their common wall time."""
    native = [rank.passes[name] for rank in record.ranks if (name := record.case.speed_pass) in rank.passes]
    wall = wall_of(native)
    return sum(timed.samples for timed in native) / wall if len(native) == len(record.ranks) and wall > 0 else None


def wall_of(native: Sequence[Pass]) -> float:
    """Return the seconds in which all ranks together train their samples: the slowest rank's.

    Ranks that wait for no other one each have a rate of their own; the sum of these is the group's.
    """
    if not any(timed.own_pace for timed in native):
        return max((timed.wall_s for timed in native), default=0.0)
    together = sum(timed.samples / timed.wall_s for timed in native if timed.wall_s > 0)
    return sum(timed.samples for timed in native) / together if together else 0.0


def round_of(record: Record) -> Round:
    """Return what a record shares with those that were measured in one go with it.

    A person may run, install another framework and run again: repeats then have equal numbers, days apart. The session
    tells them apart; without one, the day does (UTC).
    """
    return record.session or record.started[:10], record.repeat


def process_of(record: Record, method: int) -> Process:
    """Return the figures of a record; `method` is the run's: another method's figures mean something else."""
    case, ranks = record.case, record.ranks
    native = [rank.passes[name] for rank in ranks if (name := case.speed_pass) in rank.passes]
    trainings = [rank.training for rank in ranks if rank.training]
    trains = case.passes == (TRAIN,)
    complete = len(trainings if trains else native) == case.placement.ranks
    answered = complete and record.result == "ok"
    slowest = max(native, key=lambda timed: timed.wall_s) if complete and native else None
    steps = np.array(slowest.step_s if slowest else [], dtype=np.float64)
    wall = wall_of(native) if slowest else 0.0
    samples = sum(timed.samples for timed in native)

    own = ranks[0].passes if answered else {}
    budget, stage_seconds = None, {}
    declared = record.declared
    separable = declared.separable if declared else STAGES
    if answered:
        in_parts = declared is not None and declared.model_parallel_size > 1
        budget = budget_of(ranks, case.placement.device_count, case.data != "synthetic", separable, in_parts)
    if budget:
        inside_others = {*STAGES} - {*separable, "bubble"}
        critical = next(rank for rank in ranks if rank.rank == budget.critical_rank)
        stages = critical.passes[STAGED].stage_s or {}
        stage_seconds = {name: array("f", each) for name, each in stages.items() if name not in inside_others}

    def spent(epoch: int) -> float | None:
        return joules_of(record, lambda rank: rank.training.epochs[epoch].host_use if rank.training else None)

    layers = [rank.layers for rank in ranks if rank.layers]
    return Process(
        repeat=record.repeat,
        round=round_of(record),
        outcome=record.result,
        reason=record.reason,
        # The mean step takes a global batch's share of the time: of ranks with paces of their own, none's does.
        step_seconds=steps * (case.global_batch * wall / (samples * steps.mean())) if samples and steps.size else steps,
        samples=samples,
        wall=wall,
        budget=budget,
        stage_seconds=stage_seconds,
        latencies={name: array("f", own[name].step_s) for name in PERCENTILES if name in own},
        tries=ranks[0].tries if answered else (),
        model_server=ranks[0].model_server if answered else None,
        marks=frozenset(_marks(record, complete, method)),
        losses={name: mean_loss(ranks, name) for name in LOSSES},
        passes={name: seconds for name in NAMES if (seconds := wall_per_step(ranks, name)) is not None},
        learnt=learnt(trainings, case.training.target, spent) if complete and trains and trainings[0].epochs else None,
        input_wait=input_wait(ranks) if answered else None,
        startup=startup_of(ranks, case.speed_pass) if answered else None,
        gradient_bytes=max((timed.gradient_bytes for timed in native if timed.gradient_bytes), default=None),
        memory=[rank.memory for rank in ranks if rank.memory],
        gpus=gpus_of(record),
        staleness=staleness_of(ranks),
        trend=trend(steps),
        layers=merge_layers(layers, fmean) if layers else None,
        kernels=profile_of(record),
        noise=noise_of(record),
        references=references_of(record),
        peak=peak_of(record),
        joules=joules_of(record),
        about=_about(record),
    )


def _marks(record: Record, complete: bool, method: int) -> Iterable[str]:
    if record.result not in ("ok", "diverged"):
        return
    ranks, place = record.ranks, record.case.placement
    driven = [device for rank in ranks if rank.joined for device in rank.joined.device_ids]
    passes = [timed for rank in ranks for timed in rank.passes.values()]
    # compute_only's ranks train without each other: its loss is not the case's.
    trained = [timed for timed in passes if timed.name in LOSSES and BY_NAME[timed.name].exchanges]
    breakdown = [timed for timed in passes if timed.name not in SPEEDS]
    hellos = [rank.hello for rank in ranks if rank.hello and rank.hello.cores]
    cores = defaultdict[str, set[int]](set)  # physical ones, by host
    for hello in hellos:
        cores[hello.host].update(hello.core_of or hello.cores)
    threads = Counter(hello.host for hello in hellos)  # times those of a rank
    quotas = [(hello.machine.cpu_quota, len(hello.cores)) for hello in hellos if hello.machine]
    noted = {name for rank in ranks for name in rank.notes}
    conditions = {
        FAILED_LATER: record.outcome != record.result,
        "other method": record.method != method,
        "missing rank": not complete or any(not rank.joined or rank.joined.world != place.ranks for rank in ranks),
        SHARED_GPUS: len(set(driven)) < len(driven),
        "non-finite loss": record.outcome == "diverged" or any(timed.loss is None for timed in trained),
        "more threads than cores": any(
            threads[host] * place.threads * place.devices > len(physical) for host, physical in cores.items()
        ),
        "CPU quota": any(quota is not None and quota < count for quota, count in quotas),
        **{mark: name in noted for name, mark in NOTES.items()},
        "unsteady breakdown": not all(timed.steady for timed in breakdown),
        "disturbed breakdown": any(disturbance(timed.host_use) >= 1.0 for timed in breakdown),
    }
    yield from (mark for mark, holds in conditions.items() if holds)


def mean_loss(ranks: Sequence[Rank], name: str) -> float | None:
    """Return the last loss of a pass, the mean over ranks; None if a rank has none."""
    return mean([rank.passes[name].loss if name in rank.passes else None for rank in ranks])


def merge_layers(tables: Sequence[Sequence[LayerTimes]], merge: Callable[[list[float]], float]) -> list[LayerTimes]:
    """Return several tables of the same layers as one; `merge` makes one number of several."""
    if len(tables) == 1:
        return list(tables[0])
    return [
        rows[0]._replace(**{name: merge([getattr(row, name) for row in rows]) for name in LAYER_SECONDS})
        for rows in zip(*tables, strict=False)
    ]


# The first value of each: the records of a run have few different ones, and many processes.
_SHARED: dict[Hashable, Any] = {}


def _about(record: Record) -> Provenance:
    ranks = record.ranks
    joined = ranks[0].joined if ranks else None
    device = record.case.placement.device
    place = where(ranks, device)
    hellos = [rank.hello for rank in ranks if rank.hello]
    processors = models((hello.machine for hello in hellos if hello.machine), device)
    notes: dict[str, Any] = {}
    for rank in reversed(ranks):
        notes.update(rank.notes)
    return Provenance(
        interpreter=_SHARED.setdefault(record.interpreter.model_dump_json(), record.interpreter),
        bundle=record.bundle,
        declared=record.declared,
        proof=record.proof,
        proof_reason=record.proof_reason,
        load=record.load,
        turns_with=len(record.turns_with),
        evidence=record.evidence,
        transport=joined.transport if joined else None,
        versions=joined.versions if joined else {},
        hosts=sorted({hello.host for hello in hellos}),
        processors=_SHARED.setdefault(processors, processors),
        environments={each.digest: each.values for hello in hellos if (each := environment_of(hello))},
        where=_SHARED.setdefault(place, place),
        wire=carriers(ranks),
        workers=workers_of(ranks),
        notes=notes,
    )
