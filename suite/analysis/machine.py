"""Whether a run stayed on its machine: one that is resumed elsewhere mixes figures that say nothing of each other.

How noisy the machine was while a record was measured.

The fixed computation shows what shares of time cannot: a clock that was halved, a neighbour on the other thread of a
core. Where that lasts as long as a process, only the other processes of the run show it.

What the GPUs of a training did while it was measured, each once, however many ranks drive it.

How well a training uses its machine: beside the measured peak of its devices, and in joules a sample.

Model FLOP utilisation (Chowdhery and others, "PaLM", 2022, appendix B) counts what the network needs, not what a
framework computes: FLOPS operations for every multiply-accumulate of a sample's forward pass.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, replace
from itertools import chain
from statistics import fmean, median
from typing import Any, NamedTuple

from suite.contracts.case import Case, Placement
from suite.results.rank_report import GPU, AnyRank, GpuSettings, GpuUse, HostUse, Machine, Pass, Rank
from suite.results.records import AnyRecord, Host, Record
from suite.results.run_folder import ResultFolder


class Where(NamedTuple):
    """Where the ranks of a process ran, in words."""

    machines: frozenset[str]  # as `described` has them; empty where nobody kept them
    adjusted: frozenset[str]  # likewise; empty, too, where the machines hide it
    limited: frozenset[str]  # likewise: how fast their GPUs may be; empty, too, before it was kept


def where(ranks: Iterable[AnyRank], device: str) -> Where:
    """As the ranks reported it."""
    hellos = [rank.hello for rank in ranks if rank.hello and rank.hello.machine]
    machines = [(hello.machine, hello.host_cores) for hello in hellos if hello.machine]
    return Where(
        machines=frozenset(described(machine, cores) for machine, cores in machines),
        adjusted=frozenset(filter(None, (adjusted(machine, device) for machine, _ in machines))),
        limited=frozenset(filter(None, (limited(machine, device) for machine, _ in machines))),
    )


def described(machine: Machine, cores: int | None) -> str:
    """What makes its speed: processor, cores, what it may use of them, GPUs less what tells one from its like."""
    gpus = Counter(gpu.partition(" (")[0].rpartition(": ")[2] for gpu in machine.gpus)
    parts = [machine.cpu or "unknown processor", f"{cores} cores" if cores else "", quota(machine)]
    return ", ".join(filter(None, [*parts, *(f"{count} {name}" for name, count in sorted(gpus.items()))]))


def adjusted(machine: Machine, device: str) -> str:
    """What may change under a run on the same machine: the clock's governor, the driver of GPUs that compute."""
    driver = machine.gpu_driver if device != "cpu" else None
    named = (("governor", machine.governor), ("GPU driver", driver))
    return ", ".join(f"{name} {value}" for name, value in named if value)


def limited(machine: Machine, device: str) -> str:
    """What may change likewise, of GPUs that compute: the most of their clock and power, the correction of memory."""
    found = {_settings(each) for each in machine.gpu_settings} - {""} if device != "cpu" else set()
    return "; ".join(sorted(found))


def _settings(gpu: GpuSettings) -> str:
    clock, power = gpu.most_sm_clock_hz, gpu.power_limit_watts
    return ", ".join(
        [
            *([f"GPU clock at most {clock / 1e6:.0f} MHz"] if clock else []),
            *([f"power limit {power:g} W"] if power else []),
            *([] if gpu.ecc is None else [f"ECC {'on' if gpu.ecc else 'off'}"]),
        ]
    )


def quota(machine: Machine) -> str:
    """What its control groups leave of the cores, in words; "" where they set no limit."""
    return "" if machine.cpu_quota is None else f"the time of {machine.cpu_quota:g} of them"


def elsewhere(processes: Iterable[tuple[str, Placement, Where]]) -> dict[str, set[str]]:
    """By mark, the rows that it is for; given (row, its case's placement, where it ran) of every process."""
    every = list(processes)
    return {
        "other machine": measured_elsewhere((row, place.hosts, where.machines) for row, place, where in every),
        "other driver or governor": {
            row
            for kind in ("adjusted", "limited")  # one by one: where one was not kept yet, the other tells
            for row in measured_elsewhere(
                (row, (place.hosts, place.device), getattr(where, kind)) for row, place, where in every
            )
        },
    }


def measured_elsewhere(places: Iterable[tuple[str, Hashable, frozenset[str]]]) -> set[str]:
    """The rows with a process on other machines than most; given (row, where it was to run, machines) of every process.

    The machines are in words, or what was `adjusted` on them. Rows whose hosts the plan names, or their device, are
    held against those of the same hosts and device alone.
    """
    by_place: dict[Hashable, list[tuple[str, frozenset[str]]]] = defaultdict(list)
    for row, place, machines in places:
        if machines:  # format 1 did not keep them
            by_place[place].append((row, machines))
    found = set()
    for several in by_place.values():
        ((usual, _),) = Counter(machines for _, machines in several).most_common(1)
        found |= {row for row, machines in several if machines != usual}
    return found


def moved(folder: ResultFolder[Any, Any], here: Host) -> str | None:
    """That a run which is resumed has records, and none of its hosts is a machine like this one, or was set alike."""
    hosts = folder.hosts().values() if folder.begun else ()
    known, this = {described(host, host.cores_installed) for host in hosts}, described(here, here.cores_installed)
    if known and this not in known:
        return (
            f"{folder.path} was begun on {' and '.join(sorted(known))}, and this is {this}; rows that are measured on "
            "another machine than the others will be marked, and not compared: go on there, or name a new folder with "
            "-o"
        )
    for setting in (adjusted, limited):
        known, this = {setting(host, "cuda") for host in hosts} - {""}, setting(here, "cuda")
        if known and this and this not in known:
            return (
                f"{folder.path} was begun with {' and '.join(sorted(known))}, and this machine now has {this}; rows "
                "with processes of both will be marked, and not compared: change it back, or name a new folder with -o"
            )
    return None


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
    return tuple(Gpu(one[0].host, one[0].model, _joined_use([each.use for each in one])) for one in known.values())


def _joined_use(uses: list[GpuUse]) -> GpuUse:
    def of(names: Iterable[str], one: Callable[[list[Any]], Any]) -> dict[str, Any]:
        values = {name: [value for use in uses if (value := getattr(use, name)) is not None] for name in names}
        return {name: one(several) for name, several in values.items() if several}

    reasons = of(["throttled_by"], lambda several: tuple(sorted(set().union(*several))))
    return uses[0].but(**of(MEANS, fmean), **of(MOST, max), **of(LEAST, min), **reasons)


FLOPS = 2 * 3  # a multiply-accumulate is two operations; backward costs twice what forward does


@dataclass(frozen=True)
class Peak:
    """What all devices of a case do at most, together."""

    flop_per_s: float  # of matrix products
    bytes_per_s: float  # of copies, read and written
    library: str  # that did the product


def peak_of(record: Record) -> Peak | None:
    """As its ranks measured it at the same time; None where one did not."""
    found = [rank.peaks for rank in record.ranks if rank.peaks]
    if not found or len(found) < record.case.placement.ranks:
        return None
    return Peak(sum(one.flop_per_s for one in found), sum(one.bytes_per_s for one in found), found[0].library)


def machine_peaks(measured: Iterable[tuple[str, Case, frozenset[str], Peak]]) -> dict[str, Peak]:
    """By case id: the most that was measured anywhere in the run on as many of the same cores or GPUs.

    `measured`: (id, case, models of its processors, peak) of every process that has a peak. What is measured is the
    machine: frameworks share a peak, and a disturbed process has no low one to itself.
    """
    best: dict[Hashable, Peak] = {}
    keys: dict[str, Hashable] = {}
    for id_, case, processors, peak in measured:
        place = case.placement
        devices = (place.device, place.nodes, place.devices_per_node, place.threads, place.binding)
        keys[id_] = key = (*devices, case.precision, processors)
        known = best.get(key, peak)
        best[key] = Peak(
            max(known.flop_per_s, peak.flop_per_s),
            max(known.bytes_per_s, peak.bytes_per_s),
            max((known, peak), key=lambda one: one.flop_per_s).library,
        )
    return {id_: best[key] for id_, key in keys.items()}


def joules_of(record: Record) -> float | None:
    """Of all hosts during the native pass; None where one could not be read."""
    hosts: dict[str, list[HostUse]] = {}
    for rank in record.ranks:
        own = hosts.setdefault(rank.hello.host if rank.hello else "", [])
        if rank.noise and rank.noise.native:
            own.append(rank.noise.native)
    on_gpus = record.case.placement.device != "cpu"
    found = [_joules(uses, on_gpus) for uses in hosts.values()]
    return sum(found) if found and all(found) else None


def _joules(uses: list[HostUse], on_gpus: bool) -> float:
    """Of one host, whose ranks read the same counters of its processors, and those of the GPUs that each drives.

    A GPU that ranks share counts once. Older records have the sum of all of a host's GPUs. 0.0 where some GPU has no
    counter: the rest alone would be a figure of something else.
    """
    if on_gpus and any(not use.gpus and use.gpu_joules is None for use in uses):
        return 0.0
    driven: dict[str, float] = {}
    for gpu in (gpu for use in uses for gpu in use.gpus):
        if gpu.joules is None:
            return 0.0
        driven[gpu.uuid] = max(gpu.joules, driven.get(gpu.uuid, 0.0))
    shared = [(use.cpu_joules or 0.0) + (0.0 if use.gpus else use.gpu_joules or 0.0) for use in uses]
    return max(shared, default=0.0) + sum(driven.values())
