"""How noisy the machine was while a record was measured.

The fixed computation shows what shares of time cannot: a clock that was halved, a neighbour on the other thread of a
core. Where that lasts as long as a process, only the other processes of the run show it.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import chain
from statistics import median
from typing import NamedTuple

from suite.results.rank_report import AnyRank, HostUse, Pass, Rank
from suite.results.records import AnyRecord

# Beyond these a process counts as disturbed: shares of all cores' time, and of the fixed computation's best time.
BUSY, STOLEN, SLOWED = 0.10, 0.02, 1.25


@dataclass(frozen=True)
class Noise:
    """Of the host or the rank that had most of it; None where nobody could tell."""

    busy_share: float | None  # of all cores' time, spent by processes that are no part of the measurement
    steal_share: float | None  # of all cores' time, given to other guests by a hypervisor
    reference_slowdown: float | None  # the fixed computation's median over its best time in the run; 1.0: as fast
    switches_per_s: float | None  # times that the kernel took a core away from a rank
    clock_hz: float | None = None  # of the rank whose cores were slowest at the end
    gpu_clock_hz: float | None = None  # of the slowest of its GPUs, the mean; of older records, of a host's, at the end
    set_aside_share: float = 0.0  # of the native steps' time: measured again, since others used the machine

    @property
    def disturbed(self) -> bool:
        """Whether something else had a part in the process's figures."""
        return any(
            value is not None and value > most
            for value, most in ((self.busy_share, BUSY), (self.steal_share, STOLEN), (self.reference_slowdown, SLOWED))
        )


# What decides how fast the fixed computation can be: host, interpreter (its library may know the processor's own
# SHA-256), the rank's cores, the ranks that compute beside it, threads, and the share that a straggler loses.
Ground = tuple[object, ...]


class Reference(NamedTuple):
    """The fixed computation on one rank."""

    ground: Ground | None  # None: unknown, so that nothing is like it
    middle: float  # seconds
    best: float


def references_of(record: AnyRecord) -> tuple[Reference, ...]:
    """Of every rank that timed it."""
    place, there = record.case.placement, Counter(rank.hello.host for rank in record.ranks if rank.hello)
    found = []
    for rank in record.ranks:
        seconds = [*rank.noise.reference_before_s, *rank.noise.reference_after_s] if rank.noise else []
        if seconds:
            ground: Ground | None = None
            if rank.hello:
                host, cores, load = rank.hello.host, rank.hello.cores, getattr(record.case, "straggler", 0.0)
                threads = place.threads * place.devices
                ground = (host, record.interpreter.path, cores, there[host], threads, load)
            found.append(Reference(ground, median(seconds), min(seconds)))
    return tuple(found)


def best_of_run(references: Iterable[Reference]) -> dict[Ground, float]:
    """The fixed computation's best seconds of a run, by what decides them."""
    best: dict[Ground, float] = {}
    for each in references:
        if each.ground is not None:
            best[each.ground] = min(each.best, best.get(each.ground, each.best))
    return best


def beside_run(noise: Noise, references: Iterable[Reference], best: dict[Ground, float]) -> Noise:
    """The noise of a process beside the best of its run, rather than the process's own."""
    slow = [each.middle / best.get(each.ground or (), each.best) for each in references]
    return replace(noise, reference_slowdown=_most(slow))


def noise_of(record: AnyRecord) -> Noise:
    """Shares and switches are of the native pass, of a whole training, or of all exchanges by themselves.

    The fixed computation is held against the process's own best: `beside_run` knows better.
    """
    uses = [use for rank in record.ranks if (use := use_of(rank))]
    trained = [native for rank in record.ranks if isinstance(rank, Rank) and (native := rank.passes.get("native"))]
    return Noise(
        busy_share=_most([max(use.busy_cpu_s - use.own_cpu_s, 0.0) / _cores_s(use) for use in uses if use.own_cpu_s]),
        steal_share=_most([use.steal_cpu_s / _cores_s(use) for use in uses]),
        reference_slowdown=_most([each.middle / each.best for each in references_of(record)]),
        switches_per_s=_most([use.involuntary_switches / use.seconds for use in uses]),
        clock_hz=min((use.clock_hz for use in uses if use.clock_hz), default=None),
        gpu_clock_hz=min(chain.from_iterable(map(_gpu_clocks, uses)), default=None),
        set_aside_share=max(map(_set_aside, trained), default=0.0),
    )


def use_of(rank: AnyRank) -> HostUse | None:
    """What its host was used for during the native pass, a whole training, or all exchanges by themselves."""
    return (rank.noise.native or rank.noise.train or rank.noise.comm) if rank.noise else None


def _gpu_clocks(use: HostUse) -> list[float]:
    clocks = [gpu.sm_clock_hz for gpu in use.gpus] if use.gpus else [use.gpu_clock_hz]
    return [clock for clock in clocks if clock]


def _set_aside(native: Pass) -> float:
    aside = sum(native.set_aside_s or ())
    return aside / (aside + native.wall_s) if aside else 0.0


def _cores_s(use: HostUse) -> float:
    return use.seconds * use.cores


def _most(values: list[float]) -> float | None:
    return max(values) if values else None
