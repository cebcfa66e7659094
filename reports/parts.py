"""One network on several devices beside one on each: which is faster, what a device holds and hands on."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from reports.panels import Panel
from reports.text import mebibytes, memory, number
from suite.analysis.notes import noted
from suite.analysis.rows import Row
from suite.analysis.stats import ratio
from suite.groups import grouped

Named = tuple[str, Row]


@dataclass(frozen=True)
class Duel:
    """The fastest of both kinds on as many devices, for one network."""

    title: str
    devices: int
    whole: Named  # a network on each device
    parted: Named  # one network on all, or on several

    @property
    def verdict(self) -> str:
        """Of the network in parts: "faster", "slower", "no detectable difference", or why there is none."""
        assert self.parted[1].rates
        assert self.whole[1].rates
        return ratio(self.parted[1].rates, self.whole[1].rates).verdict

    @property
    def sentence(self) -> str:
        """Speed, memory and traffic of the two, in words."""
        (whole, on_each), (parted, shared) = self.whole, self.parted
        words = [
            f"{self.title} on {self.devices} devices: {parted} reaches {number(shared.speed)} samples/s with one "
            f"network in parts, {whole} {number(on_each.speed)} with a network on each device ({self.verdict})"
        ]
        if shared.memory and on_each.memory:
            words.append(f"a rank holds {memory(max(shared.memory))} at most, against {memory(max(on_each.memory))}")
        there, here = traffic(shared), traffic(on_each)
        if there is not None and here is not None:
            words.append(f"a device contributes {mebibytes(there)} MiB a step, against {mebibytes(here)}")
        return "; ".join(words) + "."


def with_parts(tables: Iterable[Panel]) -> list[Panel]:
    """Those in which several devices hold one network together, of whatever else they stand beside."""
    return [panel for panel in tables if any(map(in_parts, panel.rows))]


def answers(panels: Sequence[Panel]) -> list[str]:
    """When one network on several devices wins, in a sentence; then every comparison in one of its own."""
    duels = [duel for panel in panels for duel in _duels(panel)]
    won: dict[str, list[str]] = {}
    for duel in duels:
        won.setdefault(duel.verdict, []).append(f"{duel.title} on {duel.devices}")
    words = {
        "faster": "One network in parts is faster than one on each device with",
        "slower": "One network on each device is faster than one in parts with",
        "no detectable difference": "No difference is detectable with",
    }
    wins = [f"{start} {', '.join(won[verdict])} devices." for verdict, start in words.items() if verdict in won]
    return wins + [duel.sentence for duel in duels]


def in_parts(row: Row) -> bool:
    return row.declared is not None and row.declared.model_parallel_size > 1


def traffic(row: Row) -> float | None:
    """Bytes that each device contributes to the exchanges of a step: gradients, or activations and what flows back.

    The mean over devices where they differ; None on one device, and where nobody counted.
    """
    exchanged = [noted(process.about.notes, "exchanged_bytes") for process in row.measured]
    gradients = [process.gradient_bytes for process in row.measured]  # of pipelines side by side a part of it
    return next((float(each) for each in [*exchanged, *gradients] if each), None)


def _duels(panel: Panel) -> Iterable[Duel]:
    named = [
        (name, row)
        for name, row in zip(panel.names, panel.rows, strict=True)
        if row.comparable and row.synchronous and row.several_devices
    ]
    for (devices, _), group in grouped(named, lambda each: _place(each[1])).items():
        kinds = [[each for each in group if in_parts(each[1]) == parts] for parts in (False, True)]
        if all(kinds):
            whole, parted = (max(kind, key=lambda each: each[1].speed) for kind in kinds)
            yield Duel(panel.title, devices, whole, parted)


def _place(row: Row) -> tuple[int, int]:
    return row.case.placement.device_count, row.case.global_batch
