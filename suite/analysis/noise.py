"""How noisy the machine was while a record was measured."""

from dataclasses import dataclass
from statistics import median

from suite.results.rank_report import HostUse, Pass
from suite.results.records import Record

# Beyond these a process counts as disturbed: shares of all cores' time, and of the fixed computation's best time.
BUSY, STOLEN, SLOWED = 0.10, 0.02, 1.25


@dataclass(frozen=True)
class Noise:
    """Of the host or the rank that had most of it; None where nobody could tell."""

    busy_share: float | None  # of all cores' time, spent by processes that are no part of the measurement
    steal_share: float | None  # of all cores' time, given to other guests by a hypervisor
    reference_slowdown: float | None  # the fixed computation's median over its best time; 1.0: always as fast
    switches_per_s: float | None  # times that the kernel took a core away from a rank
    clock_hz: float | None = None  # of the rank whose cores were slowest at the end
    gpu_clock_hz: float | None = None  # of the host whose GPUs were
    set_aside_share: float = 0.0  # of the native steps' time: measured again, since others used the machine

    @property
    def disturbed(self) -> bool:
        """Whether something else had a part in the process's figures."""
        return any(
            value is not None and value > most
            for value, most in ((self.busy_share, BUSY), (self.steal_share, STOLEN), (self.reference_slowdown, SLOWED))
        )


def noise_of(record: Record) -> Noise:
    """Shares and switches are of the native pass, or of a whole training."""
    slow: list[float] = []
    for rank in record.ranks:
        seconds = [*rank.noise.reference_before_s, *rank.noise.reference_after_s] if rank.noise else []
        if seconds:
            slow.append(median(seconds) / min(seconds))
    uses = [use for rank in record.ranks if rank.noise and (use := rank.noise.native or rank.noise.train)]
    return Noise(
        busy_share=_most([max(use.busy_cpu_s - use.own_cpu_s, 0.0) / _cores_s(use) for use in uses if use.own_cpu_s]),
        steal_share=_most([use.steal_cpu_s / _cores_s(use) for use in uses]),
        reference_slowdown=_most(slow),
        switches_per_s=_most([use.involuntary_switches / use.seconds for use in uses]),
        clock_hz=min((use.clock_hz for use in uses if use.clock_hz), default=None),
        gpu_clock_hz=min((use.gpu_clock_hz for use in uses if use.gpu_clock_hz), default=None),
        set_aside_share=max(
            (_set_aside(native) for rank in record.ranks if (native := rank.passes.get("native"))), default=0.0
        ),
    )


def _set_aside(native: Pass) -> float:
    aside = sum(native.set_aside_s or ())
    return aside / (aside + native.wall_s) if aside else 0.0


def _cores_s(use: HostUse) -> float:
    return use.seconds * use.cores


def _most(values: list[float]) -> float | None:
    return max(values) if values else None
