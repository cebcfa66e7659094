"""Whether a run stayed on its machine: one that is resumed elsewhere mixes figures that say nothing of each other."""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable
from typing import Any, NamedTuple

from suite.contracts.case import Placement
from suite.results.rank_report import AnyRank, GpuSettings, Machine
from suite.results.records import Host
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
