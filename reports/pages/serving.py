"""The load `server`: latency by rate, measured and by a model of the queue, and where a query's time goes."""

import math
from collections.abc import Container, Hashable, Sequence

from markupsafe import Markup

from stagebench.reports.charts.html import Body, Cells, Content, folded, heat, joined, note, small, table, tag
from stagebench.reports.charts.lines import Line, Lines
from stagebench.reports.charts.rows import cell_bar, swatch
from stagebench.reports.pages.run import Report, Section
from stagebench.suite.analysis.comparability import group
from stagebench.suite.analysis.latency import words_of
from stagebench.suite.analysis.panels import SHOWN, Name, Panel, arriving, behind, by_group, labels, set_up, title
from stagebench.suite.analysis.rows import Row
from stagebench.suite.analysis.serving import Served
from stagebench.suite.analysis.wording import milliseconds, number, percent
from stagebench.suite.contracts.model_server import INPROCESS
from stagebench.suite.plugins import model_servers
from stagebench.suite.text import counted, grouped
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


def serving(report: Report) -> Section | None:
    """Return what each case keeps up with, and its latencies by rate."""
    asked = [row for row in report.fast if SERVER in row.case.passes]
    rows = [row for row in asked if row.served]
    if not asked:
        return None
    panels, charts = by_group(rows[:SHOWN]), []
    for panel in panels:
        drawn = (_by_rate(panel.title, name, row, row.served) for name, row in panel.pairs if row.served)
        charts += [chart for chart in drawn if chart]
    heads = "Case | keeps its bound up to, queries/s! | of offline | queries a batch | no answer | wrong answers"
    body: Cells = [report.cut(rows, "cases"), *report.few("serving", charts[: 2 * CHARTS], CHARTS)]
    body.append(table("Queries that arrive at random", heads, *report.bodies(panels, _cells)) if rows else None)
    for of in grouped([row for row in rows if row.sound], _setting).values():
        if len(of) > 1 and any(map(_known, of)):
            body += [_rates(of), _best(of)]
            body.append(report.drawn("serving", [_goodput(of)]))
    body += [_budget(report, panels), *_servers(rows), _models(rows)]
    late = sum(row.served.late for row in rows if row.served)
    body.append(note(f"Left out, since the generator was late: {counted(late, 'rate')}.") if late else None)
    refused = {str(each.about.notes[SERVER]) for row in asked for each in row.measured if SERVER in each.about.notes}
    body += [note(words, ".") for words in sorted(refused)]
    kept = [found for row in rows if row.sound and row.served and (found := row.served.keeping(row.case.serving))]
    headline = "No rate that was tried keeps its bound"
    if any(row.served.late for row in rows if row.served):
        headline = "Not known: the generator of queries was late"
    if kept:
        least, most = (end(kept, key=lambda found: found.rate.value) for end in (min, max))
        headline = f"{most.words} queries/s keep the bound"
        headline = f"{least.words} to {headline}" if least is not most else headline
    others = {row.case.serving.arrivals for row in asked} - {"poisson"}
    bounds = sorted({(row.case.serving.bound_share, row.case.serving.bound_ms) for row in asked})
    also = "; ".join(f"{words_of(share)} within {limit:g} ms" for share, limit in bounds)
    also = f"{also}; queries arrive at random{', or as their case says' * bool(others)}."
    return Section("serving", headline[0].upper() + headline[1:], body, also, definitions=_DEFINITIONS, name="Server")


def _setting(row: Row) -> Hashable:
    """Return what cases share that differ in framework, batch, delay and model server."""
    rule = row.case.serving._replace(max_delay_ms=0.0, model_server=INPROCESS, workers=1, address="", options={})
    return group(row.case.on(batch=1, serving=rule))


_DEFINITIONS = (
    "LoadGen’s load server: queries of one sample arrive by a Poisson process, singly, or in bursts of eight, or as a "
    "trace says. Latency lasts from the scheduled arrival to the answer, waiting for others of its batch included. In "
    "process nothing is sent. Behind a model server, a generator on a core of its own sends over HTTP, and the server "
    "hands batches to the framework’s process through shared memory. Of a server elsewhere only what it answers, and "
    "when, is known; its answers are compared with the case’s own framework’s. The generator’s lag lasts from a "
    "query’s scheduled arrival to its sending; a rate is left out where the lag’s p99 exceeds 0.5 ms or a tenth of "
    "the latency’s. Rates go up to what full batches reach, by a quarter each; each is tried twice, forth and back. A "
    "try ends early when its oldest query has waited five times the bound, behind a server one in a hundred. Whether "
    "a rate keeps the bound is judged by LoadGen’s early-stopping percentile; a query without an answer, or with a "
    "wrong one, is infinitely late. The rate is interpolated between two tries, in logarithms, and “at least” where "
    "no larger one was tried to its end. Goodput: answers/s within the bound that are not known to be wrong. The parts "
    "of a latency are means, together the latency. The hop is through shared "
    "memory from the server’s worker to the framework’s process and back; the way back, from the worker to the "
    "generator, is in “queue, server” if not every query was answered; batch: putting its queries together. The copies "
    "are those that the framework’s calls wait for. The first answers of a try, up to 256 MiB, are compared with the "
    "usual ones to their queries. Charts show plain quantiles; the model simulates tries of the same length with the "
    "seconds of batches at the other rates, and of a server with what a single query and an unbroken row of batches "
    "took beyond them."
)


def _servers(rows: Sequence[Row]) -> list[Markup]:
    """Return what the model servers took, and what closed loops reached, of the first process of each case."""
    behind_one = [row for row in rows if row.served and row.served.model_server][:SHOWN]
    names = [each.words for each in labels([row.case for row in behind_one])]
    found = [(name, row, row.served.model_server) for name, row in zip(names, behind_one, strict=True) if row.served]
    taken, loops = list[Cells](), list[Cells]()
    counts = sorted({each.queries for *_, seen in found if seen for each in seen.closed_loops})
    for name, row, seen in found:
        if seen:
            mib = None if seen.resident_bytes is None else seen.resident_bytes / 2**20
            beyond = "" if seen.alone_s is None else milliseconds(seen.alone_s)
            seconds, memory, cores = ("" if each is None else number(each) for each in (seen.ready_s, mib, seen.cores))
            version = f"{seen.name} {seen.version}".rstrip() + set_up(row.case.serving)
            processes = str(seen.processes or "")
            taken.append([name, version, seconds, beyond, processes, memory, cores])
            known = {
                each.queries: f"{number(each.per_s)}/s, {milliseconds(each.latency_s)} ms" for each in seen.closed_loops
            }
            loops.append([name, *(known.get(each, "") for each in counts)])
    if not taken:
        return []
    heads = "Case | model server | first right answer after, s | beyond inference, ms | processes | memory, MiB"
    heads += " | cores busy"
    why = "Answers/s and the median latency of closed loops, by queries under way. Such a loop waits for its server: "
    why += "what users would have sent meanwhile is never sent, so its latencies are not theirs."
    closed = table("Closed loops", ["Case", *(counted(each, "query", "queries") for each in counts)], loops)
    title_ = tag("h3", "What model servers take")
    return [title_, table("What model servers take", heads, taken), closed, note(why)]


def _setting_words(row: Row) -> str:
    case, rule = row.case, row.case.serving
    threads = counted(case.placement.threads, "thread")
    own = [f"{words_of(rule.bound_share)} within {rule.bound_ms:g} ms", f"queries arrive {arriving(rule.arrivals)}"]
    return " · ".join([case.workload, case.tuning, case.placement.device, threads, case.precision, *own])


def _rates(rows: list[Row]) -> Markup:
    """Return the largest rate that keeps the bound: a line a framework, server and batch, a column a delay."""
    known = {row.id: row.served.keeping(row.case.serving) for row in rows if row.served}
    kept = {name: each for name, each in known.items() if each}
    most = max((each.rate.value for each in kept.values()), default=0.0)
    best = [row for row in rows if row.id in kept and kept[row.id].rate.value == most]
    finding = "No batch and delay keeps the bound"
    if best:
        who = _called(best[0]) if len(best) == 1 else f"{len(best)} of {len(rows)} batches and delays"
        finding = f"{who}: {kept[best[0].id].words} queries/s keep the bound"
    above = tag("h3", finding), tag("p.sub", f"{_setting_words(rows[0])}: which batch and delay")
    own_delays = {row.id: _delay(row) for row in rows}
    delays = sorted(set(own_delays.values()), key=lambda each: (each is None, each))
    lines = []
    for (adapter, taken, batch), own in grouped(rows, _batcher).items():
        cells = dict.fromkeys(delays, ("", 0.0))
        for row in own:
            if each := kept.get(row.id):
                words, depth = f"{'● ' * (each.rate.value == most)}{each.words}", each.rate.value / most
            else:
                words, depth = "not known" if row.served and row.served.late else "none", 0.0
            cells[own_delays[row.id]] = words, depth
        lines.append(([f"{title(adapter)} ", small(taken + f", batch {batch}" * bool(batch))], list(cells.values())))
    heads = ["Framework, model server, largest batch"]
    heads += ["delay of its own" if delay is None else f"delay {delay:g} ms" for delay in delays]
    words = "The largest rate that keeps the bound, in queries/s; the darker, the larger; ● the largest of all."
    return joined([*above, heat("Rates by batch and delay", heads, lines), note(words)])


def _batcher(row: Row) -> tuple[str, str, int]:
    rule = row.case.serving
    return row.case.adapter, behind(rule), 0 if rule.address else row.case.batch  # elsewhere it is not known


def _delay(row: Row) -> float | None:
    """Return for how long a batch's oldest query waits, in ms; None if the server decides that."""
    server = model_servers().get(row.case.serving.model_server)
    return None if server and not (server.program and server.delays) else row.case.serving.max_delay_ms


def _goodput(rows: list[Row]) -> Lines:
    """Return the goodput by offered rate of the best batch and delay of each framework and server."""
    known = [(row, row.served.goodput(row.case.serving)) for row in rows if row.served]
    known = [(row, found) for row, found in known if found]
    groups = grouped(known, lambda each: _batcher(each[0])[:2]).values()
    best = [max(own, key=lambda each: max(each[1].values())) for own in groups]
    best.sort(key=lambda each: -max(each[1].values()))
    lines = list[Line]()
    for row, found in best:
        name, kind = f"{title(row.case.adapter)}, {behind(row.case.serving)}", "rest" if lines else "lead"
        lines.append(Line(name, list(found), list(found.values()), kind=kind, dots=True))
    words = (
        f"{lines[0].name}: {number(max(best[0][1].values()))} answers/s within the bound"
        if lines
        else "No rate is known"
    )
    offered = sorted({rate for _, found in best for rate in found})
    lines.append(Line("offered", offered, offered, kind="ideal"))
    return Lines(words, f"{_setting_words(rows[0])}: goodput", lines, "queries/s", "answers/s", "xy")


def _best(rows: list[Row]) -> Markup:
    """Return the bounded latency by rate, a line a framework, largest batch and delay; the least are marked."""
    share = rows[0].case.serving.bound_share
    found = [row.served.pooled(share) if row.served else {} for row in rows]
    modelled = [_modelled(row, share, each) for row, each in zip(rows, found, strict=True)]
    rates = sorted({rate for each in found for rate in each})
    least, best = (
        {rate: min((each[rate] for each in those if rate in each), default=None) for rate in rates}
        for those in (found, modelled)
    )
    lines = []
    for row, measured, model in zip(rows, found, modelled, strict=True):
        signs = {
            rate: "● " * (seconds == least[rate]) + "○ " * (model.get(rate, 0.0) == best[rate])
            for rate, seconds in measured.items()
        }
        known = {rate: f"{signs[rate]}{milliseconds(seconds)}" for rate, seconds in measured.items()}
        lines.append([_called(row), *(known.get(rate, "") for rate in rates)])
    words = f"{words_of(share)} in ms, by queries/s; ● the least, ○ the model’s least; empty: not tried, or given up."
    heads = ["Framework, model server, queries of a batch, delay", *(f"{number(rate)}/s" for rate in rates)]
    return joined([table(f"{_setting_words(rows[0])}: latencies", heads, lines), note(words)])


def _called(row: Row) -> str:
    """Return a row's framework, server, largest batch and delay."""
    rule, most = row.case.serving, row.case.batch
    held = f", {row.served.delay_ms(rule) if row.served else rule.max_delay_ms:g} ms" * (_delay(row) is not None)
    return f"{title(row.case.adapter)}, {behind(rule)}{f', {most} at most' * (not rule.address)}{held}"


def _modelled(row: Row, share: float, rates: Container[float]) -> dict[float, float]:
    """Return what the model says of the first process's rates."""
    found, served = dict[float, float](), row.served
    for at in served.first if served else ():
        compared = (
            served.compared(at, row.case.batch, row.case.serving).get(share) if served and at.rate in rates else None
        )
        if compared and compared.predicted is not None:
            found[at.rate] = compared.predicted
    return found


def _budget(report: Report, panels: Sequence[Panel]) -> Content:
    """Return where the time of a query goes: a column a part, together the mean latency."""
    rows = [row for panel in panels for row in panel.rows if _known(row)]
    parts = {row.id: found for row in rows if (found := _parts(row))}
    there = [name for name in PARTS if any(name in each for each in parts.values())]
    longest = max((seconds for each in parts.values() for seconds in each.values()), default=0.0) or 1.0

    def cells(row: Row) -> Cells:
        own = parts.get(row.id, {})
        drawn = [
            [cell_bar(own[name] / longest, PARTS[name][1]), tag("span", milliseconds(own[name]))] if name in own else ""
            for name in there
        ]
        return [milliseconds(sum(own.values())) if own else "not known", *drawn]

    if not parts:
        return None
    heads = ["Case", "latency!", *(joined([swatch(PARTS[name][1]), PARTS[name][0]]) for name in there)]
    why = "In ms, the mean over queries at the largest rate that keeps the bound; at the lowest rate if none does."
    drawn = table("Where the time of a query goes", heads, *report.bodies(panels, cells, marked=False), kind="facets")
    return [tag("h3", "Where the time of a query goes"), drawn, note(why)]


def _parts(row: Row) -> dict[str, float]:
    """Return the mean seconds of a query's parts; a server's queue and its own work are one."""
    at = row.served.at_bound(row.case.serving) if row.served else None
    found = at.stages if at and at.answered else {}
    return {"queue" if name == "server" else name: seconds for name, seconds in found.items()}


def _models(rows: Sequence[Row]) -> Content:
    """Return measured quantiles next to the model's: a line a rate of the first process of each case."""
    shown = [row for row in rows if row.served][: 2 * CHARTS]
    bodies = []
    for name, row in zip(labels([row.case for row in shown]), shown, strict=True):
        lines = []
        for at in row.served.first if row.served else ():
            found = row.served.compared(at, row.case.batch, row.case.serving) if row.served else {}
            pairs = [found.get(share) or (None, None) for share in (0.5, row.case.serving.bound_share)]
            values = [value for pair in pairs for value in pair]
            cells = ["" if value is None or math.isinf(value) else milliseconds(value) for value in values]
            if cells[1]:
                lines.append([f"{number(at.rate)}/s{' given up' * at.saturated}", *cells])
        bodies += [Body(lines, name.words)] * bool(lines)
    heads = "Rate | median | model | bounded percentile | model"
    words = "In ms. A percentile of too few queries, as LoadGen counts, is left out."
    return (
        folded("Model and measurement", table("Model and measurement", heads, *bodies), note(words)) if bodies else None
    )


def _known(row: Row) -> bool:
    """Return whether the first process has a rate whose latencies count."""
    return bool(row.served and row.served.first)


def _cells(row: Row) -> Cells:
    assert row.served
    wrong = f"{row.served.wrong} of {number(row.served.compared_answers)}"
    at = row.served.at_bound(row.case.serving)
    if at is None:
        return ["not known", "", "", number(row.served.unanswered), wrong]
    found = row.served.keeping(row.case.serving)
    # A server elsewhere has another predictor than that of `offline`.
    of_offline = percent(found.rate.value / row.speed) if found and not row.case.serving.address else ""
    words = found.words if found else "not known" if row.served.late else "none"
    batch = "" if at.batch is None else number(at.batch)
    return [words, of_offline, batch, number(row.served.unanswered), wrong]


def _by_rate(setting: str, name: Name, row: Row, served: Served) -> Lines | None:
    """Return latencies by rate; None if fewer than two rates had any answer."""
    answering = [at for at in served.first if at.answered]
    rule, rates = row.case.serving, [at.rate for at in answering]
    found = [served.compared(at, row.case.batch, rule) for at in answering]
    if len(found) < 2:
        return None
    lines = []
    for share, kind in ((0.5, "rest"), (rule.bound_share, "lead")):
        known = [each.get(share) for each in found]
        usable = [
            each and not at.saturated and math.isfinite(each.measured)
            for at, each in zip(answering, known, strict=True)
        ]
        measured = [1000 * each.measured if each and use else None for each, use in zip(known, usable, strict=True)]
        lines.append(Line(words_of(share), rates, measured, kind=kind, dots=True))
        model = [1000 * each.predicted if each and each.predicted is not None else None for each in known]
        if any(each is not None for each in model):
            lines.append(Line(f"{words_of(share)}, model", rates, model, kind="predicted"))
    at = served.at_bound(rule)
    there = found[answering.index(at) if at in answering else 0]
    off = {
        share: abs(each.predicted / each.measured - 1)
        for share, each in there.items()
        if each.predicted is not None and math.isfinite(each.predicted) and math.isfinite(each.measured)
    }
    modelled = at is not None and not at.saturated and len(off) == len(there)
    words = ", ".join(f"{words_of(share)} by {percent(by)}" for share, by in off.items())
    said = f"{name.words}: the model is off: {words}" if modelled else name.words
    return Lines(said, f"{setting} · {name.words}", lines, "queries/s", "ms", "y")
