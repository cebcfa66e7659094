"""How well a training uses its machine: beside the measured peak of its devices, and in joules a sample.

Model FLOP utilisation (Chowdhery and others, "PaLM", 2022, appendix B) counts what the network needs, not what a
framework computes: FLOPS operations for every multiply-accumulate of a sample's forward pass.
"""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass

from suite.contracts.case import Case
from suite.results.rank_report import HostUse
from suite.results.records import Record

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
