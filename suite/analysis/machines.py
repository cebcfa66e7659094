"""Whether a run stayed on its machine: one that is resumed elsewhere mixes figures that say nothing of each other."""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable
from typing import Any

from suite.results.rank_report import Machine
from suite.results.records import Host
from suite.results.run_folder import ResultFolder


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


def quota(machine: Machine) -> str:
    """What its control groups leave of the cores, in words; "" where they set no limit."""
    return "" if machine.cpu_quota is None else f"the time of {machine.cpu_quota:g} of them"


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
    known, this = {adjusted(host, "cuda") for host in hosts} - {""}, adjusted(here, "cuda")
    if known and this and this not in known:
        return (
            f"{folder.path} was begun with {' and '.join(sorted(known))}, and this machine now has {this}; rows with "
            "processes of both will be marked, and not compared: change it back, or name a new folder with -o"
        )
    return None
