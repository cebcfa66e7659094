"""What the GPUs of a training did while it was measured, each once, however many ranks drive it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from suite.analysis.noise import use_of
from suite.results.rank_report import GPU, GpuUse
from suite.results.records import AnyRecord

# What slows a card down that is too hot or lacks power, as suite.worker.nvml has it. A power cap is how most large
# cards run at all times, and the other reasons are settings.
FAULTS = frozenset({"thermal", "hardware thermal", "hardware slowdown", "power brake"})
MEANS = ("busy_share", "watts", "sm_clock_hz", "memory_clock_hz", "joules")
MOST = ("memory_bytes", "most_watts", "celsius")
LEAST = ("least_sm_clock_hz", "least_memory_clock_hz")


@dataclass(frozen=True)
class Gpu:
    """One of a host's."""

    host: str
    model: str  # "" unknown
    use: GpuUse

    @property
    def faults(self) -> frozenset[str]:
        """What slowed it down and should not have."""
        return FAULTS & {*(self.use.throttled_by or ())}


def gpus_of(record: AnyRecord) -> tuple[Gpu, ...]:
    """During the native pass, a whole training, or all exchanges by themselves."""
    found = []
    for rank in record.ranks:
        machine = rank.hello.machine if rank.hello else None
        listed = [match for name in (machine.gpus if machine else ()) if (match := GPU.fullmatch(name))]
        models, host = {match[2]: match[1] for match in listed}, rank.hello.host if rank.hello else ""
        use = use_of(rank)
        found += [Gpu(host, models.get(one.uuid, ""), one) for one in (use.gpus if use else ())]
    return each_once(found)


def each_once(found: Iterable[Gpu]) -> tuple[Gpu, ...]:
    """Of one that several ranks drive, or that several processes ran on, the mean of means and the extremes."""
    known: dict[tuple[str, str], list[Gpu]] = {}
    for one in found:
        known.setdefault((one.host, one.use.uuid), []).append(one)
    return tuple(Gpu(one[0].host, one[0].model, _joined([each.use for each in one])) for one in known.values())


def _joined(uses: list[GpuUse]) -> GpuUse:
    def of(names: Iterable[str], one: Callable[[list[Any]], Any]) -> dict[str, Any]:
        values = {name: [value for use in uses if (value := getattr(use, name)) is not None] for name in names}
        return {name: one(several) for name, several in values.items() if several}

    reasons = of(["throttled_by"], lambda several: tuple(sorted(set().union(*several))))
    return uses[0].but(**of(MEANS, fmean), **of(MOST, max), **of(LEAST, min), **reasons)
