"""The pass `kernels` beside the staged pass: how much of each stage the framework's kernels were at work.

Both are one rank's, in one process, and medians over iterations.

Who is connected to whom: each rank's address, and what sits at the other ends of its connections.

One record as numbers of one process group, and what speaks against them.
"""

import ipaddress
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

import numpy as np

from suite.analysis.budget import STAGES, Budget, InputWait, budget_of, input_wait
from suite.analysis.comparability import SHARED_GPUS
from suite.analysis.learning import Learnt, Staleness, learnt, staleness_of
from suite.analysis.machine import (
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
from suite.analysis.stats import Round, Values
from suite.analysis.trend import Trend, trend
from suite.contracts.case import TRAIN
from suite.processes.placement_check import RankReport, busiest
from suite.results.rank_report import LOSSES, Connection, Kernel, Layer, Memory, Rank, models
from suite.results.records import Declared, Evidence, Interpreter, Load, Record


@dataclass(frozen=True)
class StageUse:
    """One stage by both clocks."""

    stage: str
    busy: float  # seconds in which any kernel ran
    staged: float | None  # what the stage took; None: no staged pass in this process

    @property
    def idle_share(self) -> float | None:
        """The share of the stage in which no kernel ran; below 0 where the profiler itself took time."""
        return 1 - self.busy / self.staged if self.staged else None


@dataclass(frozen=True)
class Profile:
    """What one process's first rank reported."""

    profiler: str
    stages: tuple[StageUse, ...]  # those in which a kernel ran
    rows: tuple[Kernel, ...]  # the longest first
    trace: str  # its file within the run folder; "": not kept

    @property
    def seconds(self) -> float:
        """Of all kernels of an iteration, one after the other."""
        return sum(row.seconds for row in self.rows)


def profile_of(record: Record) -> Profile | None:
    """None where no rank has any."""
    for rank in record.ranks:
        found = rank.kernels
        if found is None:
            continue
        staged = rank.passes.get("staged")
        times = {name: median(seconds) for name, seconds in ((staged and staged.stage_s) or {}).items() if seconds}
        uses = tuple(StageUse(stage, busy, times.get(stage)) for stage, busy in found.stages.items() if busy)
        trace = f"attempts/{record.case_id}-r{record.repeat}/{found.trace}" if found.trace else ""
        return Profile(found.profiler, uses, found.rows, trace)
    return None


Ends = tuple[str, str, str]  # the host whose own the addresses are, "" where all hosts share them; one end; the other


@dataclass(frozen=True)
class Worker:
    """One rank among others, by its TCP connections; what goes by shared memory or InfiniBand is not among them."""

    rank: int
    host: str
    addresses: tuple[str, ...]  # its own
    peers: tuple[int, ...]  # ranks
    others: tuple[str, ...]  # the addresses of what is no rank's process: servers, what started the ranks


def workers_of(ranks: Sequence[Rank]) -> tuple[Worker, ...]:
    """In the ranks' order; nobody where there is one rank, or where no rank has a connection."""
    owners = {_ends(rank, one.own, one.other): rank.rank for rank in ranks for one in rank.connections}
    return tuple(_worker(rank, owners) for rank in ranks) if owners and len(ranks) > 1 else ()


def _worker(rank: Rank, owners: dict[Ends, int]) -> Worker:
    found = [(one, owners.get(_ends(rank, one.other, one.own))) for one in rank.connections]
    outward: list[tuple[Connection, int | None]] = [(one, peer) for one, peer in found if peer != rank.rank]
    return Worker(
        rank.rank,
        rank.hello.host if rank.hello else "",
        tuple(sorted({_address(one.own) for one, _ in outward})),
        tuple(sorted({peer for _, peer in outward if peer is not None})),
        tuple(sorted({_address(one.other) for one, peer in outward if peer is None})),
    )


def _ends(rank: Rank, one: str, other: str) -> Ends:
    host = rank.hello.host if rank.hello else ""
    return host if ipaddress.ip_address(_address(one)).is_loopback else "", one, other


def _address(end: str) -> str:
    """Without the port."""
    return end.rpartition(":")[0].strip("[]")


NOTES = {"skipped": "samples skipped", "subnormal": "subnormal"}  # of a rank, and the marks that they make
RESIDUAL = 0.15  # of the native time: beyond it `other`, or a negative communication, is marked


@dataclass(frozen=True)
class Carrier:
    """The interface of a host that sent most."""

    interface: str
    sent: int  # bytes


@dataclass(frozen=True)
class Provenance:
    """What a page says of a process beside its numbers."""

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
    environments: dict[str, dict[str, str]]  # the variables that change what is computed, of ranks, by their digest
    where: Where  # its ranks ran
    wire: dict[str, Carrier] | None  # by host
    workers: tuple[Worker, ...]  # by their connections
    notes: dict[str, Any]


@dataclass(frozen=True)
class Process:
    """What one record of outcome `ok`, or what is left of another, says."""

    repeat: int
    round: Round
    outcome: str
    reason: str
    step_seconds: Values  # native pass, slowest rank, scaled so that they sum to its wall time
    samples: int  # all ranks', native pass
    wall: float  # slowest rank's, from the common barrier
    budget: Budget | None
    stage_seconds: dict[str, "array[float]"]  # by stage: every step of the staged pass, of the budget's critical rank
    marks: frozenset[str]
    losses: dict[str, float | None]  # by pass: the last iteration's, the mean over ranks
    layers: list[Layer] | None
    kernels: Profile | None
    learnt: Learnt | None  # of a case that trains
    input_wait: InputWait | None
    gradient_bytes: int | None  # that each device contributes to the exchange of a step, in the mean
    memory: tuple[Memory, ...]  # of each rank at most; () unknown
    gpus: tuple[Gpu, ...]  # that its ranks drove; () unknown
    staleness: Staleness | None  # of asynchronous workers
    trend: Trend | None  # of the native pass's steps; method 1 looked at the warm-up instead
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
    """Samples/s of the native pass, as far as it was run: what all ranks consumed over the slowest rank's wall time."""
    native = [rank.passes["native"] for rank in record.ranks if "native" in rank.passes]
    wall = max((one.wall_s for one in native), default=0.0)
    return sum(one.samples for one in native) / wall if len(native) == len(record.ranks) and wall > 0 else None


def round_of(record: Record) -> Round:
    """What it shares with those that it was measured in one go with.

    A person may run, install another framework and run again: the repeats have the same numbers then, days apart. Where
    the session was not kept yet, the day (UTC) tells them apart.
    """
    return record.session or record.started[:10], record.repeat


def process_of(record: Record, method: int) -> Process:
    """`method` is the run's: another one's figures mean something else."""
    case, ranks = record.case, record.ranks
    native = [rank.passes["native"] for rank in ranks if "native" in rank.passes]
    lessons = [rank.training for rank in ranks if rank.training]
    learning = case.passes == (TRAIN,)
    whole = len(lessons if learning else native) == case.placement.ranks
    slowest = max(native, key=lambda one: one.wall_s) if whole and native else None
    steps = np.array(slowest.step_s if slowest else [], dtype=np.float64)
    wall = slowest.wall_s if slowest else 0.0
    reads = case.data != "synthetic"
    answered = record.outcome == "ok" and whole
    devices, separable = case.placement.device_count, _separable(record)
    shared = record.declared is not None and record.declared.model_parallel_size > 1
    budget = budget_of(ranks, devices, reads, record.method, separable, shared) if answered else None
    return Process(
        repeat=record.repeat,
        round=round_of(record),
        outcome=record.outcome,
        reason=record.reason,
        step_seconds=steps * (wall / steps.sum()) if steps.size else steps,
        samples=sum(one.samples for one in native),
        wall=wall,
        budget=budget,
        stage_seconds=_stage_seconds(ranks, budget, {*STAGES} - {*separable, "bubble"}),
        marks=frozenset(_marks(record, whole, method)),
        losses={name: mean_loss(ranks, name) for name in LOSSES},
        learnt=learnt(lessons, case.training.target) if whole and learning and lessons[0].epochs else None,
        input_wait=input_wait(ranks, record.method) if answered else None,
        gradient_bytes=max((one.gradient_bytes for one in native if one.gradient_bytes), default=None),
        memory=tuple(rank.memory for rank in ranks if rank.memory),
        gpus=gpus_of(record),
        staleness=staleness_of(ranks),
        trend=trend(steps) if record.method > 1 else None,
        layers=_mean_layers([rank.layers for rank in ranks if rank.layers]),
        kernels=profile_of(record),
        noise=noise_of(record),
        references=references_of(record),
        peak=peak_of(record),
        joules=joules_of(record),
        about=_about(record),
    )


def _stage_seconds(ranks: Sequence[Rank], budget: Budget | None, inside: set[str]) -> dict[str, "array[float]"]:
    """Without those that happen `inside` others."""
    critical = next((rank for rank in ranks if budget and rank.rank == budget.critical_rank), None)
    stages = critical.passes["staged"].stage_s if critical else None
    return {name: array("f", seconds) for name, seconds in (stages or {}).items() if name not in inside}


def _separable(record: Record) -> tuple[str, ...]:
    """The stages that have figures of their own; before method 8 all had."""
    if record.declared is None or record.method < 8:
        return STAGES
    return record.declared.separable


def _marks(record: Record, whole: bool, method: int) -> Iterable[str]:
    if record.outcome not in ("ok", "diverged"):
        return
    ranks, asked = record.ranks, record.case.placement.ranks
    if record.method != method:
        yield "other method"
    if not whole or any(rank.joined is None or rank.joined.world != asked for rank in ranks):
        yield "missing rank"
    driven = [device for rank in ranks if rank.joined for device in rank.joined.device_ids]
    if len(set(driven)) < len(driven):
        yield SHARED_GPUS
    # compute_only's ranks train without each other: its loss is not the case's.
    trained = [
        one for rank in ranks for one in rank.passes.values() if one.name in LOSSES and one.name != "compute_only"
    ]
    if record.outcome == "diverged" or any(one.loss is None for one in trained):
        yield "non-finite loss"
    yield from _short_of_cores(record)
    noted = {name for rank in ranks for name in rank.notes}
    yield from (mark for name, mark in NOTES.items() if name in noted)
    unsteady = {one.name for rank in ranks for one in rank.passes.values() if not one.steady}
    if "native" in unsteady and record.method == 1:
        yield "unsteady"
    if unsteady - {"native"}:
        yield "unsteady breakdown"


def _short_of_cores(record: Record) -> Iterable[str]:
    """Marks of hosts that have fewer physical cores than their ranks' threads, or allow them less than their time."""
    place, cores, threads = record.case.placement, defaultdict[str, set[int]](set), Counter[str]()
    hellos = [rank.hello for rank in record.ranks if rank.hello and rank.hello.cores]
    for hello in hellos:
        cores[hello.host].update(hello.core_of or hello.cores)
        threads[hello.host] += place.threads * place.devices
    if any(threads[host] > len(there) for host, there in cores.items()):
        yield "more threads than cores"
    quotas = [(hello.machine.cpu_quota, len(hello.cores)) for hello in hellos if hello.machine]
    if any(quota is not None and quota < there for quota, there in quotas):
        yield "CPU quota"


def mean_loss(ranks: Sequence[Rank], name: str) -> float | None:
    """The last loss of a pass, the mean over ranks; None where a rank has none."""
    passes = [rank.passes.get(name) for rank in ranks]
    losses = [one.loss for one in passes if one and one.loss is not None]
    return fmean(losses) if losses and len(losses) == len(passes) else None


def _mean_layers(tables: Sequence[Sequence[Layer]]) -> list[Layer] | None:
    return merge_layers(tables, fmean) if tables else None


def merge_layers(tables: Sequence[Sequence[Layer]], merge: Callable[[list[float]], float]) -> list[Layer]:
    """Tables of the same layers as one; `merge` makes one number of several."""
    if len(tables) == 1:
        return list(tables[0])
    return [
        rows[0].model_copy(
            update={
                "forward_s": merge([row.forward_s for row in rows]),
                "backward_s": merge([row.backward_s for row in rows]),
                "communication_s": merge([row.communication_s for row in rows]),
            }
        )
        for rows in zip(*tables, strict=False)
    ]


def _about(record: Record) -> Provenance:
    ranks = record.ranks
    joined = ranks[0].joined if ranks else None
    machines = [rank.hello.machine for rank in ranks if rank.hello and rank.hello.machine]
    device = record.case.placement.device
    notes: dict[str, Any] = {}
    for rank in reversed(ranks):
        notes.update(rank.notes)
    return Provenance(
        interpreter=record.interpreter,
        bundle=record.bundle,
        declared=record.declared,
        proof=record.proof,
        proof_reason=record.proof_reason,
        load=record.load,
        turns_with=len(record.turns_with),
        evidence=record.evidence,
        transport=joined.transport if joined else None,
        versions=joined.versions if joined else {},
        hosts=sorted({rank.hello.host for rank in ranks if rank.hello}),
        processors=frozenset().union(*(models(machine.cpu, machine.gpus, device) for machine in machines)),
        environments=_environments(ranks),
        where=where(ranks, device),
        wire=carriers(ranks),
        workers=workers_of(ranks),
        notes=notes,
    )


def _environments(ranks: Sequence[Rank]) -> dict[str, dict[str, str]]:
    """Empty where no rank reported which they are."""
    reported = [(own, rank.hello.settings or {}) for rank in ranks if rank.hello and (own := rank.hello.arithmetic)]
    return {own.digest: {name: settings.get(name, "") for name in own.names} for own, settings in reported}


def carriers(ranks: Sequence[Rank]) -> dict[str, Carrier] | None:
    """By host its busiest interface; None on one host, or where nobody could tell."""
    reporting = [
        RankReport(rank.rank, rank.hello.host, {name: each.sent_bytes for name, each in rank.wire.items()}, 0)
        for rank in ranks
        if rank.hello and rank.wire
    ]
    if len({each.host for each in reporting}) < 2:
        return None
    return {host: Carrier(name, sent) for host, (name, sent) in busiest(reporting).items()}
