"""Stragglers: the time to a loss by the share that one rank loses, and from where another strategy is sooner."""

from dataclasses import dataclass

from reports.figure import Figure
from reports.lines import Line, lines_figure
from reports.names import common, names
from reports.panels import Panel, beside_others, kept_whole
from reports.text import listed, number
from suite.analysis.exchange import Crossover, Gain, Slowed, Stragglers, crossover, gains, stragglers
from suite.analysis.rows import Row

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
        waiting = [(name, variant) for name, variant in sound if variant.synchronous]
        freer = [(name, variant) for name, variant in sound if not variant.synchronous]
        found += [_sooner(*one, *other) for one in waiting for other in freer]
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


def _sooner(name: str, waiting: Slowed, other: str, freer: Slowed) -> str:
    """From which share on a strategy that does not wait is sooner, or at which of those tried; "" where none tells."""
    found = crossover(waiting, freer)
    if found:
        return f"{other} is sooner than {name} once a straggler loses {found.value:.0%} of its time ({ends(found)})."
    tried = gains(waiting, freer)
    if not tried:
        return ""
    sooner, shares = [gain for gain in tried if gain.mean > 0], _shares(tried)
    if len(sooner) == len(tried):
        where = f"every share tried ({shares})"
    else:
        where = f"{_shares(sooner)} alone, of {shares}" if sooner else f"none of the shares tried ({shares})"
    alike = [gain for gain in tried if not gain.detectable]
    if any(gain.half is None for gain in tried):
        doubt = "; a single seed has no interval"
    else:
        doubt = f"; no detectable difference at {_shares(alike)}" if alike else ""
    return f"{other} is sooner than {name} at {where}{doubt}."


def _shares(gains: list[Gain]) -> str:
    return listed([f"{gain.share:.0%}" for gain in gains])


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
    return lines_figure(lines, "share of time that the load took", "seconds to the loss", "lines+markers")
