"""The time of an iteration: each case's stages, its layers, and networks that several devices hold together."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from markupsafe import Markup

from stagebench.reports.charts.html import (
    Body,
    Cells,
    differing,
    folded,
    heat,
    joined,
    listing,
    measured,
    note,
    small,
    table,
    tag,
)
from stagebench.reports.charts.html import Entry as Line
from stagebench.reports.charts.rows import Rows, cell_bar, key, linear, stack, swatch
from stagebench.reports.pages.run import Report, Section
from stagebench.suite.analysis.budget import OVERHEAD, STAGES
from stagebench.suite.analysis.learning import noted
from stagebench.suite.analysis.panels import SHOWN, Name, Panel, by_group, by_network, for_charts
from stagebench.suite.analysis.roofline import of_row
from stagebench.suite.analysis.rows import Row
from stagebench.suite.analysis.scaling import in_parts
from stagebench.suite.analysis.stats import LEVEL, NO_VERDICT, Interval, ratio
from stagebench.suite.analysis.wording import listed, mebibytes, memory, milliseconds, number, percent, range_of, share
from stagebench.suite.text import counted, grouped
from stagebench.suite.worker.pass_kinds import STAGED

WORDS = {"io": "read", "h2d": "copy", "communication": "exchange"}
UNCLEAR = "large residual"
PARTS = tuple(stage for stage in STAGES if stage != "other")
MATTERS, MOST = 0.02, 8  # of the layers' time; layers with a line of their own


def word(stage: str) -> str:
    """Return a stage's name on a page."""
    return WORDS.get(stage, stage)


def stages(report: Report) -> Section | None:
    """Return the closed budget of every case that has one."""
    staged = [row for row in report.rows if row.rates and row.budget]
    if not staged:
        asked = any(STAGED in row.case.passes for row in report.rows)
        return Section("stages", "No case has both its native and its staged pass", None) if asked else None
    panels = by_group(staged[:SHOWN])
    shown = for_charts(panels)
    drawn = [row for panel in shown for row in panel.rows]
    kinds = {stage: word(stage) for stage in PARTS if any(_seconds(row, stage) for row in staged)}
    kinds["other"] = "not explained"
    title, also = headline(drawn)
    real = {"mark": "real step; paler beyond it: saved by fusing and overlapping"}
    body: Cells = [report.cut(staged, "cases that were measured stage by stage"), key(kinds | real)]
    body.append(report.drawn("stages", (_panel(report, panel) for panel in shown)))
    if len(_explained(drawn)) < len(drawn):
        badly = "Grey: the stages, measured one by one, explain that step badly; compare only its mark. "
        body.append(note(badly, "» The stages go on beyond the chart."))
    body += [tag("h3", "Stage by stage, milliseconds"), _table(report, panels, kinds)]
    waits = "A group’s bars share one scale. Read, copy and exchange are what the real step waits for: "
    body.append(note(waits, "a value below zero is noise around none."))
    return Section("stages", title, body, also)


def _seconds(row: Row, stage: str) -> float:
    return (row.budget.of(stage) or 0.0) if row.budget else 0.0


def _explained(rows: Iterable[Row]) -> list[Row]:
    return [row for row in rows if UNCLEAR not in row.marks]


def _mostly(rows: Sequence[Row]) -> tuple[str, list[float], str]:
    """Return the stage that takes most rows longest, its shares of their steps in order, and the finding in words."""
    longest = grouped(rows, lambda row: max(PARTS, key=lambda stage: _seconds(row, stage)))
    stage, members = max(longest.items(), key=lambda each: len(each[1]))
    where = f" in {len(members)} of {len(rows)}"
    if len(members) == len(rows):
        where = " in both" if len(rows) == 2 else f" in all {len(rows)}"
    shares = sorted(_seconds(row, stage) / _seconds(row, "native") for row in members)
    return f"{word(stage).capitalize()} takes longest", shares, where if len(rows) > 1 else ""


def headline(rows: Iterable[Row]) -> tuple[str, str]:
    """Return the stage that takes most cases longest; rows whose stages explain their step badly have no say."""
    every = list(rows)
    known = _explained(every)
    if not known:
        who = "It has" if len(every) == 1 else f"All {len(every)} have"
        also = f"{who} a large residual: compare only the real {'step' if len(every) == 1 else 'steps'}."
        return "No case’s stages explain its step", also
    longest, _, where = _mostly(known)
    left = len(every) - len(known)
    also = f"{left} more {'case has' if left == 1 else 'cases have'} stages that explain their step badly."
    return f"{longest}{where and f'{where} cases'}", also if left else ""


def _panel(report: Report, panel: Panel) -> Rows:
    known = _explained(panel.rows)
    ends = [sum(max(_seconds(row, stage), 0.0) for stage in PARTS) for row in known]
    ends += [_seconds(row, "native") * 1.1 for row in panel.rows]
    scale, entries = linear(1000 * max(ends), " ms"), []
    for name, row in sorted(panel.pairs, key=lambda pair: _seconds(pair[1], "native")):
        parts = {stage: 1000 * _seconds(row, stage) for stage in PARTS}
        said = ", ".join(f"{word(stage)} {number(ms)}" for stage, ms in parts.items() if ms)
        whole, kind = 1000 * _seconds(row, "native"), "unclear" * (UNCLEAR in row.marks)
        entries.append(report.entry(name, row, stack(scale, parts, whole), number(whole), f"{said} ms", kind=kind))
    # The finding: the cost of waiting for the exchange, where that is sure; else the longest stage.
    waiting = {}
    for name, row in panel.pairs:
        exposed = row.budget.exposed_communication if row.budget else None
        if row.budget and row.several_devices and exposed and exposed.low > 0 and UNCLEAR not in row.marks:
            waiting[row.id] = (row.budget.exposed_share or 0.0, name.title)
    title, axis = "The stages explain no step here", "stages of an iteration, ms"
    if waiting:
        shares, titles = zip(*sorted(waiting.values()), strict=True)
        who = listed(list(dict.fromkeys(titles))) if len(waiting) <= 3 else f"{len(waiting)} of {len(panel.rows)}"
        title = f"{who} wait{'s' * (len(waiting) == 1)} for the exchange: {_range(shares)} of the step"
    elif known:
        longest, parts_of, where = _mostly(known)
        title = f"{longest}{where}: {_range(parts_of)} of the step"
    return Rows(title, panel.title, scale, entries, "ms", axis, warning=panel.warning)


def _range(shares: Sequence[float]) -> str:
    return range_of([f"{shares[0] * 100:.0f}", f"{shares[-1] * 100:.0f}"]) + "\u00a0%"


def card(report: Report) -> Rows | None:
    """Return the panel that says most: of the most cases that are explained, of the longest steps."""
    panels = for_charts(by_group(row for row in report.rows if row.rates and row.budget))
    if not panels:
        return None

    def says(panel: Panel) -> tuple[int, float]:
        return len(_explained(panel.rows)), max(_seconds(row, "native") for row in panel.rows)

    most = max(panels, key=says)
    known = [(row, 0.01 * _seconds(row, "native")) for row in most.rows]
    large = (stage for stage in PARTS if any(_seconds(row, stage) > little for row, little in known))
    kinds = {stage: word(stage) for stage in large}
    return replace(_panel(report, most), key=kinds, more=("Stages", report.to("stages")), warning="")


def _table(report: Report, panels: Sequence[Panel], kinds: Mapping[str, str]) -> Markup:
    heads = ["Case", *(joined([swatch(stage), words]) for stage, words in kinds.items())]
    heads += ["real step!", "io alone-", "staged-", "overhead-"]
    there = [stage for stage in kinds if stage != "other"]
    bodies = []
    for panel in panels:
        longest = max((_seconds(row, stage) for row in _explained(panel.rows) for stage in there), default=0.0) or 1.0
        lines = []
        for name, row in panel.pairs:
            b = row.budget
            assert b
            cells: Cells = [report.head(name, row)]
            times = ((cell_bar(_seconds(row, stage) / longest, stage), milliseconds(b.of(stage))) for stage in there)
            cells += [[drawn, tag("span", ms)] for drawn, ms in times]
            cells.append([milliseconds(b.other), differing(b.intervals.get("other"))])
            cells += map(milliseconds, (b.native, b.io_only, b.staged))
            ratio = b.intervals.get(OVERHEAD)
            ends = small(f"{number(ratio.low)} … {number(ratio.high)}") if ratio else None
            cells.append([f"{number(b.instrumentation_overhead)}×", ends])
            lines.append(Line(cells, "unclear" * (UNCLEAR in row.marks), row.case.adapter))
        bodies.append(Body(lines, panel.title))
    return table("Milliseconds per iteration", heads, *bodies, kind="facets")


def layers(report: Report) -> Section | None:
    """Return the layers that matter of each network; a case's page has every layer."""
    layered = [row for row in report.rows if any(one.layers for one in row.measured)]
    if not layered:
        return None
    maps = [_heat(panel) for panel in for_charts(by_group(layered[:SHOWN]))]
    title, also = maps[0][0], "Milliseconds of forward and backward; the darker, the longer."
    panels = tag("div.heats", [drawn for _, drawn in maps])
    return Section("layers", title, [report.cut(layered, "cases with timed layers"), panels], also)


def _heat(panel: Panel) -> tuple[str, Markup]:
    """Return (headline, table): a line a layer that matters, a column a case; the darker, the longer."""
    pairs = [(name, row.layers) for name, row in panel.pairs if row.layers]
    timed = [(name, {one.layer: one.forward_s + one.backward_s for one in of}) for name, of in pairs]
    kinds = {one.layer: one.kind for row in panel.rows for one in row.layers or ()}
    total = sum(sum(column.values()) for _, column in timed) or 1.0
    taken = {layer: sum(column.get(layer, 0.0) for _, column in timed) / total for layer in kinds}
    most = sorted(kinds, key=lambda layer: -taken[layer])[:MOST]
    chosen = [layer for layer in kinds if layer in most and taken[layer] >= MATTERS]
    deepest = max((column.get(layer, 0.0) for _, column in timed for layer in chosen), default=0.0) or 1.0
    lines = []
    for layer in chosen:
        times = [column.get(layer) for _, column in timed]
        lines.append(([f"{layer} ", small(kinds[layer])], [(milliseconds(s), (s or 0.0) / deepest) for s in times]))
    if others := [layer for layer in kinds if layer not in chosen]:
        rest = [(milliseconds(sum(column.get(layer, 0.0) for layer in others)), 0.0) for _, column in timed]
        lines.append(([counted(len(others), "other layer")], rest))
    heads = ["Layer", *([name.title, small(f" {name.detail}") if name.detail else None] for name, _ in timed)]
    words = f"{len(chosen)} of {len(kinds)} layers take {percent(sum(taken[layer] for layer in chosen))} of the time"
    drawn = heat(f"Layers: {panel.title}", heads, lines)
    return words, tag("div", tag("h3", panel.title), tag("p.sub", words), drawn)


def layers_of(report: Report, row: Row) -> Markup | None:
    """Return every layer of a case, folded, with the best that its machine allows; None where they were not timed."""
    if not row.layers:
        return None
    roof, limits = of_row(report.folder.path, row), None
    heads = "Layer | kind | forward | backward | exchange | gradient bytes"
    lines = []
    for one in row.layers:
        times = map(milliseconds, (one.forward_s, one.backward_s, one.communication_s))
        lines.append([one.layer, one.kind, *times, number(one.bytes)])
        if roof:
            best = roof.by_layer.get(one.layer)
            lines[-1] += [milliseconds(best.best_s), best.bound_by] if best else ["", ""]
    if roof:
        heads += " | at best | bound by"
        limits = note(
            f"Peaks: {number(roof.peak.flop_per_s / 1e9)} Gflop/s and {number(roof.peak.bytes_per_s / 1e9)} GB/s. "
            f"The network with its update would reach {number(roof.best_rate)} samples/s on each device; "
            f"memory bounds {percent(roof.memory_share)} of that time."
        )
    return folded(f"Every layer ({len(lines)}), milliseconds", table("Layers", heads, lines), limits)


WINS = {
    "faster": "One network in parts is faster than one on each device",
    "slower": "One network on each device is faster than one in parts",
    "no detectable difference": "No difference is detectable between one network in parts and one on each device",
    f"faster, {NO_VERDICT}": "One network in parts was faster than one on each device, without a verdict",
    f"slower, {NO_VERDICT}": "One network on each device was faster than one in parts, without a verdict",
}


class Duel(NamedTuple):
    """A strategy that splits a network against the fastest that does not, on as many devices, for one network."""

    title: str
    devices: int
    whole: tuple[Name, Row]  # a network on each device
    parted: tuple[Name, Row]  # one network on all, or on several: the strategy's fastest settings
    ratio: Interval  # of the speeds, the network in parts over the whole one

    @property
    def outcome(self) -> str:
        """The outcome for the network in parts, one of WINS."""
        if self.ratio.verdict != NO_VERDICT:
            return self.ratio.verdict
        return f"{'faster' if self.ratio.value > 1.0 else 'slower'}, {NO_VERDICT}"

    @property
    def sentence(self) -> str:
        """Speed, memory and traffic of the two, in words."""
        (whole, on_each), (parted, shared) = self.whole, self.parted
        first, comma, why = self.outcome.partition(", ")
        verdict = f"{first} by {percent(abs(self.ratio.value - 1))}{comma}{why}" if why else first
        words = [
            f"{self.title} on {self.devices} devices: {parted.words} reaches {number(shared.speed)} samples/s with one "
            f"network in parts, {whole.words} {number(on_each.speed)} with a network on each device ({verdict})"
        ]
        if shared.memory and on_each.memory:
            words.append(f"a rank holds {memory(max(shared.memory))} at most, against {memory(max(on_each.memory))}")
        there, here = traffic(shared), traffic(on_each)
        if there is not None and here is not None:
            words.append(f"a device contributes {mebibytes(there)} MiB a step, against {mebibytes(here)}")
        return "; ".join(words) + "."


def parts(report: Report) -> Section | None:
    """Return strategies that split one network over several devices, next to those that hold a whole one on each."""
    panels = [panel for panel in by_network(report.rows) if any(map(in_parts, panel.rows))]
    if not panels:
        return None
    found = duels(panels)

    def cells(row: Row) -> Cells:
        bubble = row.budget.bubble if row.budget else None
        size = str(row.declared.model_parallel_size) if row.declared else "–"
        part = share(bubble / row.budget.native if row.budget and bubble is not None else None)
        moved = mebibytes(traffic(row)) if row.several_devices else "–"
        held = ", ".join(map(memory, row.memory)) or "–"
        count = str(row.case.placement.device_count)
        return [count, size, measured(row.rate), milliseconds(bubble), part, moved, held]

    heads = "Case | devices | devices of one network | samples/s! | bubble, ms | bubble, of the iteration"
    heads += " | traffic, MiB | memory of each rank<"
    won, answers = grouped(found, lambda duel: duel.outcome), []
    for outcome in (outcome for outcome in WINS if outcome in won):
        there = grouped(won[outcome], lambda duel: f"{duel.title} on {duel.devices} devices")
        who = (f"{place} ({listed([_strategy(duel.parted) for duel in each])})" for place, each in there.items())
        answers.append(f"{WINS[outcome]}: {'; '.join(who)}.")
    answers += [duel.sentence for duel in found]
    speeds = sorted(row.speed for panel in panels for row in panel.rows if in_parts(row) and row.rates)
    title = "No network in parts has a speed yet"
    if speeds:
        ends = range_of([number(speeds[0]), number(speeds[-1])])
        title = f"Networks in parts do {ends} samples/s; no whole one to compare with"
    if found:
        title = f"One network in parts wins {len(won.get('faster', ()))} of {len(found)} comparisons"
        if all(NO_VERDICT in duel.outcome for duel in found):
            title = "No verdict yet on networks in parts"
    shown = report.bodies((replace(one, rows=one.rows[:SHOWN], names=one.names[:SHOWN]) for one in panels), cells)
    body = [listing(answers, "ul.findings"), table("Networks in parts", heads, *shown)]
    return Section("parts", title, body, "", answers)


def traffic(row: Row) -> float | None:
    """Return the bytes that each device contributes to the exchanges of a step, their mean; None: not counted."""
    exchanged = [noted(process.about.notes, "exchanged_bytes") for process in row.measured]
    gradients = [process.gradient_bytes for process in row.measured]  # of pipelines side by side a part of it
    return next((float(each) for each in [*exchanged, *gradients] if each), None)


def duels(panels: Iterable[Panel]) -> list[Duel]:
    """Return each strategy that splits the network, in its fastest settings, against the fastest that does not."""
    found = []
    for panel in panels:
        named = [pair for pair in panel.pairs if pair[1].comparable and pair[1].synchronous and pair[1].several_devices]
        places = grouped(named, lambda pair: (pair[1].case.placement.device_count, pair[1].case.global_batch))
        for (devices, _), group in places.items():
            wholes, parted = ([pair for pair in group if in_parts(pair[1]) == split] for split in (False, True))
            # The fastest of many is also the luckiest: the interval holds for every pair that might have been compared.
            level = 1 - (1 - LEVEL) / max(1, len(wholes) * len(parted))
            for tried in grouped(parted, _strategy).values() if wholes else ():
                whole, fastest = (max(kind, key=lambda pair: pair[1].speed) for kind in (wholes, tried))
                assert fastest[1].rates
                assert whole[1].rates
                found.append(Duel(panel.title, devices, whole, fastest, ratio(fastest[1].rates, whole[1].rates, level)))
    return found


def _strategy(pair: tuple[Name, Row]) -> str:
    return f"{pair[0].title} {pair[1].case.strategy}"
