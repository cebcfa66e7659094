"""The machine under a measurement: which one it was, how noisy it was, what its GPUs did, and its peaks."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, replace
from operator import itemgetter
from statistics import fmean, median
from typing import NamedTuple

from stagebench.suite.contracts.case import Case, Placement
from stagebench.suite.results.machines import adjusted, described, limited
from stagebench.suite.results.rank_report import GPU, Rank
from stagebench.suite.results.records import Record
from stagebench.suite.text import grouped
from stagebench.suite.worker.gpu_watch import together
from stagebench.suite.worker.messages import GpuUse, HostUse
from stagebench.suite.worker.noise import BUSY, STOLEN

# --- Which machine.


class Where(NamedTuple):
    """The machines that the ranks of a process ran on, and their settings, in words; empty if they hide them."""

    machines: frozenset[str]  # as by `described`
    adjusted: frozenset[str]  # as by `adjusted`
    limited: frozenset[str]  # as by `limited`


def where(ranks: Iterable[Rank], device: str) -> Where:
    """Return what the ranks reported of their machines."""
    hellos = [rank.hello for rank in ranks if rank.hello]
    machines = [(hello.machine, hello.host_cores) for hello in hellos if hello.machine]
    return Where(
        machines=frozenset(described(machine, cores) for machine, cores in machines),
        adjusted=frozenset(adjusted(machine, device) for machine, _ in machines) - {""},
        limited=frozenset(limited(machine, device) for machine, _ in machines) - {""},
    )


def elsewhere(processes: Iterable[tuple[str, Placement, Where]]) -> dict[str, set[str]]:
    """Return, by mark, the ids of rows to mark; `processes`: (row id, its case's placement, where it ran)."""
    marked: dict[str, set[str]] = {"other machine": set(), "other driver or governor": set()}
    processes = list(processes)
    for kind in Where._fields:  # one by one: a machine may hide any
        machines = kind == "machines"
        # A row is held against rows of the same planned hosts only, and for its settings of the same device.
        known = [
            ((place.hosts, machines or place.device), row, words)
            for row, place, where in processes
            if (words := getattr(where, kind))
        ]
        for same in grouped(known, itemgetter(0)).values():
            ((usual, _),) = Counter(words for *_, words in same).most_common(1)
            mark = "other machine" if machines else "other driver or governor"
            marked[mark] |= {row for _, row, words in same if words != usual}
    return marked


# --- How noisy. A fixed computation shows what shares of time cannot: a clock that was halved, a neighbour on the other
# thread of a core. If that lasts as long as a process, only the other processes of the run show it.

SLOWED = 1.25  # of the fixed computation's best time: beyond it a process counts as disturbed, as beyond BUSY or STOLEN


@dataclass(frozen=True, slots=True)
class Noise:
    """The noise on the host or the rank that had most of it; None if unknown."""

    busy_share: float | None  # of a rank's cores' time, spent by processes that are no part of the measurement
    steal_share: float | None  # of a rank's cores' time, given to other guests by a hypervisor
    reference_slowdown: float | None  # the fixed computation's median over its best time in the run; 1.0: as fast
    clock_hz: float | None = None  # of the rank whose cores were slowest at the end
    gpu_clock_hz: float | None = None  # mean clock of the slowest of its GPUs
    set_aside_share: float = 0.0  # of the native steps' time: measured again, since other programs used the machine

    @property
    def disturbed(self) -> bool:
        """True if something else had a part in the process's figures."""
        limits = ((self.busy_share, BUSY), (self.steal_share, STOLEN), (self.reference_slowdown, SLOWED))
        return any((value or 0.0) > limit for value, limit in limits)


# What decides the speed of the fixed computation: host, interpreter (its library may use the processor's own SHA-256),
# the rank's cores, the number of ranks that compute at the same time, threads, and the share that a straggler loses.
Ground = tuple[object, ...]


class Reference(NamedTuple):
    """The fixed computation on one rank."""

    ground: Ground | None  # None: unknown, so that it is compared with nothing
    middle: float  # seconds, the median
    best: float


def references_of(record: Record) -> tuple[Reference, ...]:
    """Return the fixed computation of every rank that timed it."""
    place, load = record.case.placement, record.case.straggler
    shared = (record.interpreter.path, place.threads * place.devices, load)
    ranks_on = Counter(rank.hello.host for rank in record.ranks if rank.hello)
    references = []
    for rank in record.ranks:
        seconds = [*rank.noise.reference_before_s, *rank.noise.reference_after_s] if rank.noise else []
        hello = rank.hello
        ground = (hello.host, tuple(hello.cores), ranks_on[hello.host], *shared) if hello else None
        if seconds:
            references.append(Reference(ground, median(seconds), min(seconds)))
    return tuple(references)


def best_of_run(references: Iterable[Reference]) -> dict[Ground, float]:
    """Return the fixed computation's best seconds of a run, by ground."""
    by_ground = grouped(references, lambda reference: reference.ground)
    return {ground: min(each.best for each in same) for ground, same in by_ground.items() if ground is not None}


def beside_run(noise: Noise, references: Iterable[Reference], best: dict[Ground, float]) -> Noise:
    """Return a process's noise with its slowdown against the best of its run, rather than against its own best."""
    slowdowns = [reference.middle / best.get(reference.ground or (), reference.best) for reference in references]
    return replace(noise, reference_slowdown=max(slowdowns, default=None))


def noise_of(record: Record) -> Noise:
    """Return the noise during the native pass, a whole training, or all exchanges.

    The fixed computation is compared with the process's own best; `beside_run` compares it with the run's.
    """
    uses = [use for rank in record.ranks if (use := use_of(rank))]
    foreign = [(max(use.busy_cpu_s - use.own_cpu_s, 0.0), use) for use in uses if use.own_cpu_s]
    native = [rank.passes[name] for rank in record.ranks if (name := record.case.speed_pass) in rank.passes]
    aside = [(sum(timed.set_aside_s or ()), timed.wall_s) for timed in native]
    return Noise(
        busy_share=max((seconds / (use.seconds * use.cores) for seconds, use in foreign), default=None),
        steal_share=max((use.steal_cpu_s / (use.seconds * use.cores) for use in uses), default=None),
        reference_slowdown=max((each.middle / each.best for each in references_of(record)), default=None),
        clock_hz=min((use.clock_hz for use in uses if use.clock_hz), default=None),
        gpu_clock_hz=min((gpu.sm_clock_hz for use in uses for gpu in use.gpus if gpu.sm_clock_hz), default=None),
        set_aside_share=max((seconds / (seconds + wall) for seconds, wall in aside if seconds), default=0.0),
    )


def use_of(rank: Rank) -> HostUse | None:
    """Return the use of a rank's host during the native pass, a whole training, or all exchanges."""
    return (rank.noise.native or rank.noise.train or rank.noise.comm) if rank.noise else None


# --- What GPUs did, each counted once, however many ranks drive it.

# Reasons that slow down a GPU that is too hot or lacks power, as stagebench.suite.worker.gpu_watch names them. Most
# large GPUs run at a power cap at all times, and the other reasons are settings.
FAULTS = frozenset({"thermal", "hardware thermal", "hardware slowdown", "power brake"})


@dataclass(frozen=True)
class Gpu:
    """A GPU of a host."""

    host: str
    model: str  # "" unknown
    use: GpuUse

    @property
    def faults(self) -> frozenset[str]:
        """Reasons that slowed it down and should not have."""
        return FAULTS & {*(self.use.throttled_by or ())}


def gpus_of(record: Record) -> tuple[Gpu, ...]:
    """Return the GPUs that were driven during the native pass, a whole training, or all exchanges."""
    gpus = []
    for rank in record.ranks:
        use, hello = use_of(rank), rank.hello
        names = hello.machine.gpus if hello and hello.machine else ()
        models = {match[2]: match[1] for name in names if (match := GPU.fullmatch(name))}
        host = hello.host if hello else ""
        gpus += [Gpu(host, models.get(gpu.uuid, ""), gpu) for gpu in use.gpus] if use else []
    return each_once(gpus)


def each_once(gpus: Iterable[Gpu]) -> tuple[Gpu, ...]:
    """Return one entry per GPU that several ranks or processes used: the mean of means, and the extremes."""
    joined = []
    for same in grouped(gpus, lambda gpu: (gpu.host, gpu.use.uuid)).values():
        (use,) = together([(1.0, [gpu.use]) for gpu in same])
        joules = [gpu.use.joules for gpu in same if gpu.use.joules is not None]  # all of one counter
        joined.append(replace(same[0], use=use._replace(joules=fmean(joules) if joules else None)))
    return tuple(joined)


# --- What the machine can do at most, and the energy that it took.


@dataclass(frozen=True)
class Peak:
    """The most that all devices of a case do together."""

    flop_per_s: float  # of matrix products
    bytes_per_s: float  # of copies, read and written
    library: str  # that did the product


def peak_of(record: Record) -> Peak | None:
    """Return the sum over ranks, which measured it at the same time; None if one did not."""
    peaks = [rank.peaks for rank in record.ranks if rank.peaks]
    if len(peaks) < max(1, record.case.placement.ranks):
        return None
    return Peak(sum(peak.flop_per_s for peak in peaks), sum(peak.bytes_per_s for peak in peaks), peaks[0].library)


def machine_peaks(measured: Iterable[tuple[str, Case, frozenset[str], Peak]]) -> dict[str, Peak]:
    """Return, by case id, the highest peak measured anywhere in the run on as many of the same cores or GPUs.

    `measured`: (id, case, models of its processors, peak) of every process that has a peak. A peak is the machine's:
    frameworks share it, and a disturbed process has no lower one of its own.
    """
    best: dict[Hashable, Peak] = {}
    grounds: dict[str, Hashable] = {}
    for id_, case, processors, peak in measured:
        place = case.placement
        devices = (place.device, place.nodes, place.devices_per_node, place.threads, place.binding)
        grounds[id_] = ground = (*devices, case.precision, processors)
        known = best.get(ground, peak)
        best[ground] = Peak(
            max(known.flop_per_s, peak.flop_per_s),
            max(known.bytes_per_s, peak.bytes_per_s),
            peak.library if peak.flop_per_s > known.flop_per_s else known.library,
        )
    return {id_: best[ground] for id_, ground in grounds.items()}


def joules_of(
    record: Record, use_of: Callable[[Rank], HostUse | None] = lambda rank: rank.noise.native if rank.noise else None
) -> float | None:
    """Return the energy of all hosts during a use (the native pass); None if a host's counters could not be read."""
    hosts: dict[str, dict[str, float]] = {}  # by host: joules of its processors ("") and of each GPU
    for rank in record.ranks:
        joules = hosts.setdefault(rank.hello.host if rank.hello else "", {"": 0.0})
        if (use := use_of(rank)) is None:
            continue
        if record.case.placement.device != "cpu" and not use.gpus:
            return None
        # A host's ranks read the same counters, and a GPU that ranks share counts once.
        for device, value in (("", use.cpu_joules or 0.0), *((gpu.uuid, gpu.joules) for gpu in use.gpus)):
            if value is None:  # the rest alone would be another figure
                return None
            joules[device] = max(value, joules.get(device, 0.0))
    sums = [sum(joules.values()) for joules in hosts.values()]
    return sum(sums) if sums and all(sums) else None
