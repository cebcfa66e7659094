"""Stragglers: the time to a loss by the share that one rank loses, and from where another strategy is sooner."""

from dataclasses import dataclass

from reports.figure import Figure
from reports.lines import Line, lines_figure
from reports.names import common, names
from reports.panels import Panel, beside_others, kept_whole
from reports.text import listed, number
from suite.analysis.rows import Row
from suite.analysis.stragglers import Crossover, Slowed, Stragglers, crossover, stragglers

Chart = tuple[Panel, Figure]


@dataclass(frozen=True)
class SlowedRank:
    """Variants of one training by the straggler's share."""

    title: str
    found: Stragglers
    named: list[tuple[str, Slowed]]
    charts: list[Chart]

    @property
    def answers(self) -> list[str]:
        """Which strategy is soonest with each share, and from where those that do not wait overtake those that do."""
        sound = [(name, variant) for name, variant in self.named if all(row.sound for row in variant.rows)]
        found = [self._soonest(share, sound) for share in self.found.shares]
        for name, variant in sound:
            for other, freer in sound:
                passed = crossover(variant, freer) if variant.synchronous and not freer.synchronous else None
                if passed:
                    found.append(
                        f"{other} is sooner than {name} once a straggler loses {passed.value:.0%} of its time "
                        f"({ends(passed)})."
                    )
        return [each for each in found if each]

    def _soonest(self, share: float, variants: list[tuple[str, Slowed]]) -> str:
        spreads = [(variant.spread(share), name, variant) for name, variant in variants]
        times = [(spread, name, variant) for spread, name, variant in spreads if spread]
        if len(times) < 2:
            return ""
        least, name, variant = min(times, key=lambda each: each[0].value)
        alike = [other for spread, other, _ in times if other != name and least.overlaps(spread)]
        beside = f" (no detectable difference from {listed(alike)})" if alike else ""
        most = max(other.samples_per_update for _, _, other in times)
        if variant.samples_per_update < most:
            beside += f"; it updates after {variant.samples_per_update} samples, others after up to {most}"
        when = f"With a straggler of {share:.0%}" if share else "Without a straggler"
        loss, after = number(self.found.loss), number(least.value)
        return f"{when}, {name} is the first to reach a loss of {loss}, after {after} s{beside}."


def ends(found: Crossover) -> str:
    """The interval in words; open beyond the shares that were tried."""
    low = "below the least tried" if found.low is None else f"{found.low:.0%}"
    high = "beyond the most tried" if found.high is None else f"{found.high:.0%}"
    return f"{low} to {high}"


def stragglers_of(rows: list[Row]) -> list[SlowedRank]:
    """Every training with several shares of a straggler."""
    return [_slowed(found) for found in stragglers(rows)]


def _slowed(found: Stragglers) -> SlowedRank:
    cases = [variant.case.on(seed=0, straggler=0.0) for variant in found.variants]
    first, named = cases[0], list(zip(names(cases), found.variants, strict=True))
    title = f"{first.workload} on {first.data_name}, {first.placement.words}"
    kept, warning = beside_others([row for variant in found.variants for row in variant.rows])
    shown = kept_whole(named, kept, lambda one: one[1].rows)
    if not shown:
        return SlowedRank(title, found, named, [])
    panel = Panel(
        f"{title}: time to a loss of {number(found.loss)}", kept, [n for n, _ in shown], common(cases), warning
    )
    return SlowedRank(title, found, named, [(panel, _figure(shown, found.shares))])


def _figure(shown: list[tuple[str, Slowed]], shares: tuple[float, ...]) -> Figure:
    lines = []
    for name, variant in shown:
        taken = [variant.taken(share) for share in shares]
        across = [load.value if load else share for load, share in zip(taken, shares, strict=True)]
        lines.append(Line.of(name, across, [variant.spread(share) for share in shares]))
    return lines_figure(
        lines, "share of its time that the straggler's load took", "seconds to the loss", "lines+markers"
    )
