"""Strategies of exchanging gradients, side by side: how fast they are, and how far they bring the same training."""

from dataclasses import dataclass
from itertools import accumulate

from reports.figure import Chart
from reports.lines import Line, lines_figure, thinned
from reports.names import common, names, varying
from reports.panels import Panel, beside_others, kept_whole
from reports.shown import SHOWN
from reports.text import listed, number
from suite.analysis.exchange import Exchange, Variant, exchanges
from suite.analysis.learning import WINDOW, smoothed
from suite.analysis.rows import Row
from suite.analysis.stats import Spread
from suite.contracts.case import Case


@dataclass(frozen=True)
class ExchangeTable:
    """One training by several strategies."""

    title: str
    common: str
    exchange: Exchange
    named: list[tuple[str, Variant]]
    charts: list[Chart] | None  # None: behind so many others that it has none

    @property
    def answer(self) -> str:
        """Who comes furthest, in a sentence; of those that may be compared."""
        sound = [(name, variant) for name, variant in self.named if variant.sound]
        samples = _least([(variant.after_samples, name) for name, variant in sound if variant.after_samples])
        seconds = _least([(variant.after_seconds, name) for name, variant in sound if variant.after_seconds])
        found = [
            (samples, f"After {number(self.exchange.samples)} samples"),
            (seconds, f"After {number(self.exchange.seconds)} s of training"),
        ]
        return " ".join(f"{when}, {lowest}." for lowest, when in found if lowest)


def _least(losses: list[tuple[Spread, str]]) -> str:
    """Whose loss is the lowest, and whose is not detectably different; nothing of a single one."""
    if len(losses) < 2:
        return ""
    least, name = min(losses, key=lambda pair: pair[0].value)
    alike = [other for spread, other in losses if other != name and least.overlaps(spread)]
    beside = f" (no detectable difference from {listed(alike)})" if alike else ""
    return f"{name} has the lowest loss, {number(least.value)}{beside}"


def exchanges_of(rows: list[Row]) -> list[ExchangeTable]:
    """Every training on several devices that was done by more than one strategy; the first ones with their curves."""
    found = exchanges(rows)
    questions = varying([_question(exchange.variants[0].case) for exchange in found])
    curves = accumulate(len(exchange.variants) for exchange in found)
    together = zip(found, questions, curves, strict=True)
    return [_table(exchange, differing, count <= SHOWN) for exchange, differing, count in together]


def _question(case: Case) -> dict[str, str]:
    return {
        "workload": f"{case.workload} on {case.data_name}",
        "repeat": f"{case.input.repeat}× data",  # noqa: RUF001 - the sign is meant
        "batch": f"batch {case.batch} per device",
        "optimiser": f"{case.optimiser} at {case.lr:g}",
        "devices": f"{case.placement.device_count} devices",
        "nodes": f"{case.placement.nodes} nodes",
        "precision": case.precision,
        "straggler": f"straggler {case.straggler:.0%}" if case.straggler else "no straggler",
    }


def _table(exchange: Exchange, differing: list[str], drawn: bool) -> ExchangeTable:
    cases = [variant.case.on(seed=0) for variant in exchange.variants]
    first, devices = cases[0], f"{cases[0].placement.device_count} devices"
    title = ", ".join(dict.fromkeys([f"{first.workload} on {first.data_name}", *differing, devices]))
    named = list(zip(names(cases), exchange.variants, strict=True))
    charts = _charts(title, common(cases), exchange, named) if drawn else None
    return ExchangeTable(title, common(cases), exchange, named, charts)


def _charts(title: str, shared: str, exchange: Exchange, named: list[tuple[str, Variant]]) -> list[Chart]:
    kept, warning = beside_others([row for _, variant in named for row in variant.rows])
    shown = kept_whole(named, kept, lambda one: one[1].rows)
    if not shown:
        return []
    panel = Panel(title, kept, [name for name, _ in shown], shared, warning)
    drawn = [_chart(panel, shown, "samples seen by all devices", False, exchange.samples)]
    if exchange.seconds:
        drawn.append(_chart(panel, shown, "seconds of training", True, exchange.seconds))
    return drawn


def _chart(panel: Panel, shown: list[tuple[str, Variant]], across: str, by_time: bool, stretch: float) -> Chart:
    """The first training of every variant."""
    lines = []
    for name, variant in shown:
        first = variant.curves[0]
        losses = smoothed(first.by(by_time), first.losses, WINDOW * stretch)
        lines.append(Line(name, thinned(first.by(by_time)), thinned(losses)))
    titled = Panel(
        f"{panel.title}: loss by {across.partition(' ')[0]}", panel.rows, panel.names, panel.common, panel.warning
    )
    return titled, lines_figure(lines, across, "loss, smoothed")
