"""How well a training uses its machine: beside the measured peak of its devices, and in joules a sample.

Model FLOP utilisation (Chowdhery and others, "PaLM", 2022, appendix B) counts what the network needs, not what a
framework computes: FLOPS operations for every multiply-accumulate of a sample's forward pass.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from suite.results.rank_report import HostUse
from suite.results.records import Record

if TYPE_CHECKING:
    from suite.analysis.rows import Row

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


def machine_peaks(rows: "Iterable[Row]") -> "dict[str, Peak]":
    """By row id: the most that was measured anywhere in the run on as many of the same cores or GPUs.

    What is measured is the machine, so frameworks share a peak, and a disturbed process has no low one to itself.
    """
    best: dict[object, Peak] = {}
    keys = {}
    for row in rows:
        place = row.case.placement
        per_node = place.ranks_per_node * place.devices
        for process in row.processes:
            if process.peak:
                devices = (place.device, place.nodes, per_node, place.threads, place.binding)
                keys[row.id] = key = (*devices, row.case.precision, process.about.processors)
                known = best.get(key, process.peak)
                best[key] = Peak(
                    max(known.flop_per_s, process.peak.flop_per_s),
                    max(known.bytes_per_s, process.peak.bytes_per_s),
                    max((known, process.peak), key=lambda one: one.flop_per_s).library,
                )
    return {id_: best[key] for id_, key in keys.items()}


def joules_of(record: Record) -> float | None:
    """Of all hosts during the native pass; None where one could not be read. A host's ranks read the same counters."""
    hosts: dict[str, list[HostUse | None]] = {}
    for rank in record.ranks:
        host = rank.hello.host if rank.hello else ""
        hosts.setdefault(host, []).append(rank.noise.native if rank.noise else None)
    found = [max((_joules(use) for use in uses if use), default=0.0) for uses in hosts.values()]
    return sum(found) if found and all(found) else None


def _joules(use: HostUse) -> float:
    return (use.cpu_joules or 0.0) + (use.gpu_joules or 0.0)
