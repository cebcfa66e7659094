"""The load `server`: latency by rate, measured and by a model of the queue, and where a query's time goes."""

import math
from collections.abc import Container, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from markupsafe import Markup

from stagebench.reports.charts.html import Body, Cells, Content, folded, heat, joined, note, small, table, tag
from stagebench.reports.charts.lines import Line, Lines
from stagebench.reports.charts.rows import cell_bar, swatch
from stagebench.reports.pages.run import Report, Section, named
from stagebench.suite.analysis.comparability import group
from stagebench.suite.analysis.latency import words_of
from stagebench.suite.analysis.panels import SHOWN, Name, Panel, arriving, behind, by_group, set_up, title
from stagebench.suite.analysis.rows import Row
from stagebench.suite.analysis.serving import AtRate, Compared, Kept, Served
from stagebench.suite.analysis.wording import milliseconds, number, percent
from stagebench.suite.contracts.case import Case
from stagebench.suite.contracts.model_server import INPROCESS
from stagebench.suite.plugins import model_servers
from stagebench.suite.text import counted, grouped
from stagebench.suite.worker.case_parts import Serving
from stagebench.suite.worker.pass_kinds import SERVER

# Parts of a latency, with the words and the colour of each; "lag", "hop" and "back" are of model servers.
PARTS = {
    "lag": ("generator’s lag", "rest"),
    "queue": ("queue, server", "bubble"),
    "hop": ("hop", "communication"),
    "assembly": ("batch", "io"),
    "h2d": ("to the device", "h2d"),
    "forward": ("forward", "forward"),
    "d2h": ("from the device", "h2d"),
    "back": ("way back", "communication"),
}
CHARTS = 6


@dataclass(frozen=True)
class Load:
    """A case under this load, and its answers."""

    row: Row
    served: Served

    @property
    def case(self) -> Case:
        return self.row.case

    @property
    def rule(self) -> Serving:
        return self.row.case.serving

    @property
    def kept(self) -> Kept | None:
        return self.row.kept

    def compared(self, at: AtRate) -> Mapping[float, Compared]:
        """Return the measured and the modelled latency at a rate, by quantile; it is simulated once."""
        if at.rate not in self._compared:
            self._compared[at.rate] = self.served.compared(at, self.case.batch, self.rule)
        return self._compared[at.rate]

    @cached_property
    def _compared(self) -> dict[float, Mapping[float, Compared]]:
        return {}

    @property
    def setting(self) -> Hashable:
        """The part of a case that cases share which differ in framework, batch, delay and model server."""
        rule = self.rule._replace(max_delay_ms=0.0, model_server=INPROCESS, workers=1, address="", options={})
        return group(self.case.on(batch=1, serving=rule))

    @property
    def setting_words(self) -> str:
        case, rule = self.case, self.rule
        own = [f"{words_of(rule.bound_share)} within {rule.bound_ms:g} ms", f"queries arrive {arriving(rule.arrivals)}"]
        threads = counted(case.placement.threads, "thread")
        return " · ".join([case.workload, case.tuning, case.placement.device, threads, case.precision, *own])

    @property
    def batcher(self) -> tuple[str, str, int]:
        """The framework, the model server and the largest batch; 0: elsewhere it is not known."""
        return title(self.case.adapter), behind(self.rule), 0 if self.rule.address else self.case.batch

    @property
    def delay(self) -> float | None:
        """How long a batch's oldest query waits, in ms; None if the server decides that."""
        server = model_servers().get(self.rule.model_server)
        return None if server and not (server.program and server.delays) else self.rule.max_delay_ms

    @property
    def words(self) -> str:
        """The framework, the model server, the largest batch and the delay."""
        framework, server, batch = self.batcher
        held = f", {self.served.delay_ms(self.rule):g} ms" * (self.delay is not None)
        return f"{framework}, {server}{f', {batch} at most' * bool(batch)}{held}"

    @property
    def parts(self) -> dict[str, float]:
        """The mean seconds of a query's parts; a server's queue and its own work are one."""
        at = self.served.at_bound(self.rule)
        found = at.stages if at and at.answered else {}
        return {"queue" if name == "server" else name: seconds for name, seconds in found.items()}


def serving(report: Report) -> Section | None:
    """Return what each case keeps up with, and its latencies by rate."""
    asked = [row for row in report.fast if SERVER in row.case.passes]
    if not asked:
        return None
    loads = {row.id: Load(row, row.served) for row in asked if row.served}
    every, sound = list(loads.values()), [load for load in loads.values() if load.row.sound]
    panels = by_group([load.row for load in every][:SHOWN])
    drawn = [_by_rate(panel.title, name, loads[row.id]) for panel in panels for name, row in panel.pairs]
    charts = [chart for chart in drawn if chart][: 2 * CHARTS]

    def cells(row: Row) -> Cells:
        served, kept, rule = loads[row.id].served, loads[row.id].kept, row.case.serving
        lost = [number(served.unanswered), f"{served.wrong} of {number(served.compared_answers)}"]
        at = served.at_bound(rule)
        if at is None:
            return ["not known", "", "", *lost]
        words = kept.words if kept else "not known" if served.late else "none"
        # A server elsewhere has another predictor than that of `offline`.
        of_offline = percent(kept.rate.value / row.speed) if kept and not rule.address else ""
        return [words, of_offline, "" if at.batch is None else number(at.batch), *lost]

    heads = "Case | keeps its bound up to, queries/s! | of offline | queries a batch | no answer | wrong answers"
    body: Cells = [report.cut(every, "cases"), *report.few("serving", charts, CHARTS)]
    body.append(table("Queries that arrive at random", heads, *report.bodies(panels, cells)) if loads else None)
    for alike in grouped(sound, lambda load: load.setting).values():
        if len(alike) > 1 and any(load.served.first for load in alike):
            body += [_rates(alike), _best(alike), report.drawn("serving", [_goodput(alike)])]
    body += [_budget(report, panels, loads), *_servers(every), _models(every)]
    late = sum(load.served.late for load in every)
    body.append(note(f"Left out, since the generator was late: {counted(late, 'rate')}.") if late else None)
    refused = {str(each.about.notes[SERVER]) for row in asked for each in row.measured if SERVER in each.about.notes}
    body += [note(words, ".") for words in sorted(refused)]
    headline = "Not known: the generator of queries was late" if late else "No rate that was tried keeps its bound"
    if kept := [found for load in sound if (found := load.kept)]:
        least, most = (end(kept, key=lambda found: found.rate.value) for end in (min, max))
        headline = f"{least.words} to {most.words}" if least is not most else most.words
        headline = f"{headline[0].upper()}{headline[1:]} queries/s keep the bound"
    others = {row.case.serving.arrivals for row in asked} - {"poisson"}
    bounds = sorted({(row.case.serving.bound_share, row.case.serving.bound_ms) for row in asked})
    also = "; ".join(f"{words_of(share)} within {limit:g} ms" for share, limit in bounds)
    also = f"{also}; queries arrive at random{', or as their case says' * bool(others)}."
    return Section("serving", headline, body, also)


def _servers(every: Sequence[Load]) -> list[Markup]:
    """Return what the model servers took, and what closed loops reached, of the first process of each case."""
    behind_one = [load for load in every if load.served.model_server][:SHOWN]
    used = [(name.words, load, seen) for name, load in named(behind_one) if (seen := load.served.model_server)]
    if not used:
        return []
    taken, loops = list[Cells](), list[Cells]()
    counts = sorted({each.queries for *_, seen in used for each in seen.closed_loops})
    for name, load, seen in used:
        mib = None if seen.resident_bytes is None else seen.resident_bytes / 2**20
        beyond = "" if seen.alone_s is None else milliseconds(seen.alone_s)
        seconds, memory, cores = ("" if each is None else number(each) for each in (seen.ready_s, mib, seen.cores))
        version = f"{seen.name} {seen.version}".rstrip() + set_up(load.rule)
        taken.append([name, version, seconds, beyond, str(seen.processes or ""), memory, cores])
        known = {
            each.queries: f"{number(each.per_s)}/s, {milliseconds(each.latency_s)} ms" for each in seen.closed_loops
        }
        loops.append([name, *(known.get(each, "") for each in counts)])
    heads = "Case | model server | first right answer after, s | beyond inference, ms | processes | memory, MiB"
    heads += " | cores busy"
    why = "Answers/s and the median latency of closed loops, by queries under way. Such a loop waits for its server: "
    why += "what users would have sent meanwhile is never sent, so its latencies are not theirs."
    closed = table("Closed loops", ["Case", *(counted(each, "query", "queries") for each in counts)], loops)
    title_ = tag("h3", "What model servers take")
    return [title_, table("What model servers take", heads, taken), closed, note(why)]


def _rates(loads: Sequence[Load]) -> Markup:
    """Return the largest rate that keeps the bound: a line a framework, server and batch, a column a delay."""
    kept = {load.row.id: found for load in loads if (found := load.kept)}
    most = max((each.rate.value for each in kept.values()), default=0.0)
    best = [load for load in loads if load.row.id in kept and kept[load.row.id].rate.value == most]
    finding = "No batch and delay keeps the bound"
    if best:
        who = best[0].words if len(best) == 1 else f"{len(best)} of {len(loads)} batches and delays"
        finding = f"{who}: {kept[best[0].row.id].words} queries/s keep the bound"
    above = tag("h3", finding), tag("p.sub", f"{loads[0].setting_words}: which batch and delay")
    delays = sorted({load.delay for load in loads}, key=lambda each: (each is None, each))
    lines = []
    for (framework, server, batch), own in grouped(loads, lambda load: load.batcher).items():
        cells = dict.fromkeys(delays, ("", 0.0))
        for load in own:
            if each := kept.get(load.row.id):
                words, depth = f"{'● ' * (each.rate.value == most)}{each.words}", each.rate.value / most
            else:
                words, depth = "not known" if load.served.late else "none", 0.0
            cells[load.delay] = words, depth
        lines.append(([f"{framework} ", small(server + f", batch {batch}" * bool(batch))], list(cells.values())))
    heads = ["Framework, model server, largest batch"]
    heads += ["delay of its own" if delay is None else f"delay {delay:g} ms" for delay in delays]
    words = "The largest rate that keeps the bound, in queries/s; the darker, the larger; ● the largest of all."
    return joined([*above, heat("Rates by batch and delay", heads, lines), note(words)])


def _goodput(loads: Sequence[Load]) -> Lines:
    """Return the goodput by offered rate of the best batch and delay of each framework and server."""
    known = [(load.batcher[:2], found) for load in loads if (found := load.served.goodput(load.rule))]
    best = [max(own, key=_most) for own in grouped(known, lambda each: each[0]).values()]
    best.sort(key=_most, reverse=True)
    lines = list[Line]()
    for names, found in best:
        kind = "rest" if lines else "lead"
        lines.append(Line(", ".join(names), list(found), list(found.values()), kind=kind, dots=True))
    words = "No rate is known"
    if best:
        words = f"{lines[0].name}: {number(_most(best[0]))} answers/s within the bound"
    offered = sorted({rate for _, found in best for rate in found})
    lines.append(Line("offered", offered, offered, kind="ideal"))
    return Lines(words, f"{loads[0].setting_words}: goodput", lines, "queries/s", "answers/s", "xy")


def _most(each: tuple[object, Mapping[float, float]]) -> float:
    return max(each[1].values())


def _best(loads: Sequence[Load]) -> Markup:
    """Return the bounded latency by rate, a line a framework, largest batch and delay; the least are marked."""
    share = loads[0].rule.bound_share
    found = [load.served.pooled(share) for load in loads]
    modelled = [_modelled(load, share, each) for load, each in zip(loads, found, strict=True)]
    rates = sorted({rate for each in found for rate in each})
    least, best = (
        {rate: min((each[rate] for each in those if rate in each), default=None) for rate in rates}
        for those in (found, modelled)
    )
    lines = []
    for load, measured, model in zip(loads, found, modelled, strict=True):
        cells = []
        for rate in rates:
            signs = "● " * (measured.get(rate, 0.0) == least[rate]) + "○ " * (model.get(rate, 0.0) == best[rate])
            cells.append(f"{signs}{milliseconds(measured[rate])}" if rate in measured else "")
        lines.append([load.words, *cells])
    words = f"{words_of(share)} in ms, by queries/s; ● the least, ○ the model’s least; empty: not tried, or given up."
    heads = ["Framework, model server, queries of a batch, delay", *(f"{number(rate)}/s" for rate in rates)]
    return joined([table(f"{loads[0].setting_words}: latencies", heads, lines), note(words)])


def _modelled(load: Load, share: float, rates: Container[float]) -> dict[float, float]:
    """Return what the model says of the first process's rates."""
    found = dict[float, float]()
    for at in load.served.first:
        known = load.compared(at).get(share) if at.rate in rates else None
        if known and known.predicted is not None:
            found[at.rate] = known.predicted
    return found


def _budget(report: Report, panels: Sequence[Panel], loads: Mapping[str, Load]) -> Content:
    """Return where the time of a query goes: a column a part, together the mean latency."""
    parts = {row.id: loads[row.id].parts for panel in panels for row in panel.rows}
    there = [name for name in PARTS if any(name in own for own in parts.values())]
    longest = max((seconds for own in parts.values() for seconds in own.values()), default=0.0) or 1.0

    def cells(row: Row) -> Cells:
        own = parts[row.id]
        drawn = [
            [cell_bar(own[name] / longest, PARTS[name][1]), tag("span", milliseconds(own[name]))] if name in own else ""
            for name in there
        ]
        return [milliseconds(sum(own.values())) if own else "not known", *drawn]

    if not any(parts.values()):
        return None
    heads = ["Case", "latency!", *(joined([swatch(PARTS[name][1]), PARTS[name][0]]) for name in there)]
    why = "In ms, the mean over queries at the largest rate that keeps the bound; at the lowest rate if none does."
    drawn = table("Where the time of a query goes", heads, *report.bodies(panels, cells, marked=False), kind="facets")
    return [tag("h3", "Where the time of a query goes"), drawn, note(why)]


def _models(every: Sequence[Load]) -> Content:
    """Return measured quantiles next to the model's: a line a rate of the first process of each case."""
    bodies = []
    for name, load in named(every[: 2 * CHARTS]):
        lines = []
        for at in load.served.first:
            found = load.compared(at)
            pairs = [found.get(share) or (None, None) for share in (0.5, load.rule.bound_share)]
            values = [value for pair in pairs for value in pair]
            cells = ["" if value is None or math.isinf(value) else milliseconds(value) for value in values]
            if cells[1]:
                lines.append([f"{number(at.rate)}/s{' given up' * at.saturated}", *cells])
        bodies += [Body(lines, name.words)] * bool(lines)
    heads = "Rate | median | model | bounded percentile | model"
    words = note("In ms. A percentile of too few queries, as LoadGen counts, is left out.")
    drawn = table("Model and measurement", heads, *bodies)
    return folded("Model and measurement", drawn, words) if bodies else None


def _by_rate(setting: str, name: Name, load: Load) -> Lines | None:
    """Return latencies by rate; None if fewer than two rates had any answer."""
    answering = [at for at in load.served.first if at.answered]
    found = [load.compared(at) for at in answering]
    if len(found) < 2:
        return None
    lines, rates = [], [at.rate for at in answering]
    for share, kind in ((0.5, "rest"), (load.rule.bound_share, "lead")):
        known = [each.get(share) for each in found]
        measured = [
            1000 * each.measured if each and not at.saturated and math.isfinite(each.measured) else None
            for at, each in zip(answering, known, strict=True)
        ]
        lines.append(Line(words_of(share), rates, measured, kind=kind, dots=True))
        model = [1000 * each.predicted if each and each.predicted is not None else None for each in known]
        if any(each is not None for each in model):
            lines.append(Line(f"{words_of(share)}, model", rates, model, kind="predicted"))
    at = load.served.at_bound(load.rule)
    at = at if at in answering else answering[0]
    there = found[answering.index(at)]
    off = {
        share: abs(each.predicted / each.measured - 1)
        for share, each in there.items()
        if each.predicted is not None and math.isfinite(each.predicted) and math.isfinite(each.measured)
    }
    modelled = not at.saturated and len(off) == len(there)
    words = ", ".join(f"{percent(by)} ({words_of(share)})" for share, by in off.items())
    said = f"{name.words}: at {number(at.rate)} queries/s the model is off by {words}" if modelled else name.words
    return Lines(said, f"{setting} · {name.words}", lines, "queries/s", "ms", "y")
