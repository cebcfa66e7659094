"""The cores of each rank, if a placement binds ranks to cores (`binding = "cores"`).

A rank gets whole cores, with both of a core's hardware threads; two of its threads share a core only if the host has
too few cores. A rank is in one NUMA node if a node has room; ranks are spread over the nodes, since each node has
memory of its own.
"""

import contextlib
import glob
import os
import re
from typing import Collection, Dict, Iterable, List, NamedTuple, Set

from stagebench.suite.worker.machine import text_of

ROOT = "/sys/devices/system"


class Cpu(NamedTuple):
    """A hardware thread."""

    number: int
    core: int  # the lowest CPU on it
    node: int  # of NUMA


class Core(NamedTuple):
    """A core, or one of its hardware threads if there are too few cores."""

    node: int
    cpus: List[int]


def of_threads() -> Dict[int, Set[int]]:
    """Return the CPUs that each thread of this process may use, by the thread's number."""
    return _masks(os.listdir("/proc/self/task"))


def of_children() -> Dict[int, Set[int]]:
    """Return the CPUs that each process which this one started may use, as a reader, by the process's number."""
    return _masks(pid for path in glob.glob("/proc/self/task/*/children") for pid in text_of(path).split())


def _masks(numbers: Iterable[str]) -> Dict[int, Set[int]]:
    found = {}
    for number in map(int, numbers):
        with contextlib.suppress(OSError):  # it has ended
            found[number] = os.sched_getaffinity(number)
    return found


def topology(allowed: Collection[int], root: str = ROOT) -> List[Cpu]:
    """Return these CPUs with their cores and nodes; if the system hides them, each is a core of its own, on node 0."""
    nodes = {}
    for path in glob.glob(f"{root}/node/node[0-9]*/cpulist"):
        node = int(re.findall(r"\d+", path)[-1])
        for cpu in _numbers(path):
            nodes[cpu] = node
    found = []
    for cpu in sorted(allowed):
        siblings = _numbers(f"{root}/cpu/cpu{cpu}/topology/thread_siblings_list")
        found.append(Cpu(cpu, min(siblings, default=cpu), nodes.get(cpu, 0)))
    return found


def shares(cpus: Collection[Cpu], ranks: int, threads: int, beside: int = 0) -> List[List[int]]:
    """Return the CPUs of each of a host's ranks, by local rank; ValueError if `threads` of each are too many.

    Readers and communication get more cores, up to the last argument for each rank, if the host has them and no further
    rank then has cores of several nodes.
    """
    by_core: Dict[int, Core] = {}
    for cpu in sorted(cpus, key=lambda cpu: (cpu.node, cpu.core, cpu.number)):
        by_core.setdefault(cpu.core, Core(cpu.node, [])).cpus.append(cpu.number)
    cores = list(by_core.values())
    for on_a_core in range(1, max(len(core.cpus) for core in cores) + 1):
        wanted = -(-threads // on_a_core)
        more = min(beside, len(cores) // ranks - wanted)
        if more < 0:
            continue
        fewest = _crossing(_distributed(cores, ranks, wanted))
        found = next(
            spread
            for spread in (_distributed(cores, ranks, wanted + extra) for extra in range(more, -1, -1))
            if _crossing(spread) == fewest
        )
        if all(sum(len(core.cpus) for core in own) >= threads for own in found):
            return _numbered(found)
    if ranks * threads > len(cpus):
        raise ValueError(f"{ranks} ranks of {threads} threads want more than the {len(cpus)} cores here")
    hardware_threads = [Core(core.node, [cpu]) for core in cores for cpu in core.cpus]
    return _numbered(_distributed(hardware_threads, ranks, threads))


def _distributed(cores: List[Core], ranks: int, wanted: int) -> List[List[Core]]:
    """Return `wanted` of the cores for each rank, from the node with most cores left if it has enough, else from all.

    Neighbouring ranks get neighbouring cores.
    """
    left = list(cores)
    found = []
    for _ in range(ranks):
        room = {core.node: sum(other.node == core.node for other in left) for core in left}
        node = max(sorted(room), key=lambda node: room[node])
        pool = [core for core in left if core.node == node] if room[node] >= wanted else left
        found.append(pool[:wanted])
        left = [core for core in left if core not in found[-1]]
    return sorted(found, key=lambda own: cores.index(own[0]))


def _crossing(spread: List[List[Core]]) -> int:
    """Return the number of ranks that have cores of several nodes."""
    return sum(len({core.node for core in own}) > 1 for own in spread)


def _numbered(spread: List[List[Core]]) -> List[List[int]]:
    return [sorted(cpu for core in own for cpu in core.cpus) for own in spread]


def _numbers(path: str) -> List[int]:
    """Return the CPUs of a list file such as "0-5,48-53"; none if it cannot be read."""
    found: List[int] = []
    for part in filter(None, text_of(path).strip().split(",")):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found
