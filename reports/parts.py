"""One network on several devices beside one on each: which is faster, what a device holds and hands on."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from reports.panels import Panel
from reports.text import listed, mebibytes, memory, number
from suite.analysis.learning import noted
from suite.analysis.rows import Row
from suite.analysis.scaling import in_parts
from suite.analysis.stats import LEVEL, NO_VERDICT, Interval, ratio
from suite.text import grouped

Named = tuple[str, Row]
WINS = {
    "faster": "One network in parts is faster than one on each device",
    "slower": "One network on each device is faster than one in parts",
    "no detectable difference": "No difference is detectable between one network in parts and one on each device",
    f"faster, {NO_VERDICT}": "One network in parts was faster than one on each device, without a verdict",
    f"slower, {NO_VERDICT}": "One network on each device was faster than one in parts, without a verdict",
}


@dataclass(frozen=True)
class Duel:
    """A strategy that splits a network beside the fastest that does not, on as many devices, for one network."""

    title: str
    devices: int
    whole: Named  # a network on each device
    parted: Named  # one network on all, or on several: the strategy's fastest settings
    ratio: Interval  # of the speeds, the network in parts over the whole one

    @property
    def outcome(self) -> str:
        """Of the network in parts, one of WINS."""
        if self.ratio.verdict != NO_VERDICT:
            return self.ratio.verdict
        return f"{'faster' if self.ratio.value > 1.0 else 'slower'}, {NO_VERDICT}"

    @property
    def verdict(self) -> str:
        """The outcome in words; without a verdict by how much, too, which is all that there is."""
        first, comma, why = self.outcome.partition(", ")
        return f"{first} by {100 * abs(self.ratio.value - 1):.0f}\u00a0%{comma}{why}" if why else first

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
    """When one network on several devices wins, a sentence an outcome; then every comparison in one of its own."""
    duels = [duel for panel in panels for duel in _duels(panel)]
    won = grouped(duels, lambda duel: duel.outcome)
    wins = [f"{words}: {_places(won[outcome])}." for outcome, words in WINS.items() if outcome in won]
    return wins + [duel.sentence for duel in duels]


def _places(duels: Iterable[Duel]) -> str:
    """Networks and devices, each with the strategies that split the network there."""
    there = grouped(duels, lambda duel: f"{duel.title} on {duel.devices} devices")
    return "; ".join(
        f"{place} ({listed([_strategy(duel.parted[1]) for duel in each])})" for place, each in there.items()
    )


def traffic(row: Row) -> float | None:
    """Bytes that each device contributes to the exchanges of a step: gradients, or activations and what flows back.

    The mean over devices where they differ; None on one device, and where nobody counted.
    """
    exchanged = [noted(process.about.notes, "exchanged_bytes") for process in row.measured]
    gradients = [process.gradient_bytes for process in row.measured]  # of pipelines side by side a part of it
    return next((float(each) for each in [*exchanged, *gradients] if each), None)


def _duels(panel: Panel) -> Iterable[Duel]:
    """Each strategy that splits the network, in its fastest settings, against the fastest that does not."""
    named = [
        (name, row)
        for name, row in zip(panel.names, panel.rows, strict=True)
        if row.comparable and row.synchronous and row.several_devices
    ]
    for (devices, _), group in grouped(named, lambda each: _place(each[1])).items():
        wholes, parted = ([each for each in group if in_parts(each[1]) == split] for split in (False, True))
        # The fastest of many is also the luckiest: the interval holds for every pair that might have been compared.
        level = 1 - (1 - LEVEL) / max(1, len(wholes) * len(parted))
        for tried in grouped(parted, lambda each: _strategy(each[1])).values() if wholes else ():
            whole, fastest = (max(kind, key=lambda each: each[1].speed) for kind in (wholes, tried))
            assert fastest[1].rates
            assert whole[1].rates
            yield Duel(panel.title, devices, whole, fastest, ratio(fastest[1].rates, whole[1].rates, level))


def _strategy(row: Row) -> str:
    return f"{row.case.adapter}/{row.case.strategy}"


def _place(row: Row) -> tuple[int, int]:
    return row.case.placement.device_count, row.case.global_batch
