"""The load `server`: latency by rate, measured and by a model of the queue, and where a query's time goes."""

import math
from collections.abc import Hashable, Sequence

from markupsafe import Markup

from reports.charts.html import Cells, joined, note, table, tag
from reports.charts.lines import Line, Lines
from reports.pages.run import Report, Section
from suite.analysis.comparability import group
from suite.analysis.latency import words_of
from suite.analysis.panels import SHOWN, Name, behind, by_group, labels, set_up, title
from suite.analysis.rows import Row
from suite.analysis.serving import AtRate, Served
from suite.analysis.wording import milliseconds, number, percent
from suite.contracts.model_server import INPROCESS
from suite.text import counted, grouped
from suite.worker.pass_kinds import SERVER

PARTS = (("lag",), ("queue", "assembly", "server"), ("inference",))  # of a latency
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
    heads = "Case | keeps its bound up to, queries/s! | of offline | queries a batch | generator’s lag, ms"
    heads += " | queue and server, ms | inference, ms | no answer | wrong answers"
    body: Cells = [report.cut(rows, "cases"), *report.few("serving", charts[: 2 * CHARTS], CHARTS)]
    body.append(table("Queries that arrive at random", heads, *report.bodies(panels, _cells)) if rows else None)
    body += [_best(of) for of in grouped([row for row in rows if row.sound], _setting).values() if len(of) > 1]
    body += _servers(rows)
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
    return Section("serving", headline, body, also, definitions=_DEFINITIONS, name="Server")


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
    "no larger one was tried to its end. Lag, queue and server, and inference are the parts of a latency, at the "
    "largest rate that keeps the bound. The first answers of a try, up to 256 MiB, are compared with the usual ones "
    "to their queries. Charts show plain quantiles; the model simulates tries of the same length with the seconds of "
    "batches at the other rates, and of a server with what a single query and an unbroken row of batches took beyond "
    "them."
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
    return [table("What model servers take", heads, taken), closed, note(why)]


def _best(rows: list[Row]) -> Markup:
    """Return the bounded latency by rate, a line a framework, largest batch and delay; the least is marked."""
    case, share = rows[0].case, rows[0].case.serving.bound_share
    found = [row.served.pooled(share) if row.served else {} for row in rows]
    rates = sorted({rate for each in found for rate in each})
    least = {rate: min(each[rate] for each in found if rate in each) for rate in rates}
    lines = []
    for row, each in zip(rows, found, strict=True):
        rule, most = row.case.serving, row.case.batch
        held = f", {most} at most, {row.served.delay_ms(rule) if row.served else rule.max_delay_ms:g} ms"
        of = f"{title(row.case.adapter)}, {behind(rule)}{'' if rule.address else held}"
        signs = {rate: "● " * (seconds == least[rate]) for rate, seconds in each.items()}
        lines.append([of, *(f"{signs[rate]}{milliseconds(each[rate])}" if rate in each else "" for rate in rates)])
    words = f"{words_of(share)} in ms, by queries/s; ● the least; empty: not tried, or given up."
    heads = ["Framework, model server, queries of a batch, delay", *(f"{number(rate)}/s" for rate in rates)]
    threads = counted(case.placement.threads, "thread")
    setting = " · ".join([case.workload, case.tuning, case.placement.device, threads, case.precision])
    named = f"{setting}: which batch and delay"
    return joined([tag("h3", named), table(named, heads, lines), note(words)])


def _known(row: Row) -> bool:
    """Return whether the first process has a rate whose latencies count."""
    return bool(row.served and row.served.first)


def _at_bound(row: Row, served: Served) -> AtRate:
    """Return the largest rate tried that keeps the bound; the lowest one if none does."""
    rule = row.case.serving
    known = [(at, at.within(rule.bound_share)) for at in served.first]
    keeping = [at for at, seconds in known if seconds is not None and seconds <= rule.bound_ms / 1000]
    return (keeping or served.first[:1])[-1]


def _cells(row: Row) -> Cells:
    assert row.served
    if not _known(row):
        return ["not known", *[""] * 5, number(row.served.unanswered), ""]
    found, at = row.served.keeping(row.case.serving), _at_bound(row, row.served)
    parts = [milliseconds(sum(at.stages.get(name, 0.0) for name in names)) for names in PARTS]
    wrong = f"{row.served.wrong} of {number(row.served.compared_answers)}"
    elsewhere = bool(row.case.serving.address)  # its predictor is another one than that of `offline`
    of_offline = percent(found.rate.value / row.speed) if found and not elsewhere else ""
    if elsewhere:
        parts[2] = ""
    return [
        found.words if found else "not known" if row.served.late else "none",
        of_offline,
        "" if at.batch is None else number(at.batch),
        *parts,
        number(row.served.unanswered),
        wrong,
    ]


def _by_rate(setting: str, name: Name, row: Row, served: Served) -> Lines | None:
    """Return latencies by rate; None if fewer than two rates had any answer."""
    answering = [at for at in served.first if at.answered]
    rule, rates = row.case.serving, [at.rate for at in answering]
    found = [served.compared(at, row.case.batch, rule) for at in answering]
    if len(found) < 2:
        return None
    lines = []
    for share, kind in ((0.5, "rest"), (rule.bound_share, "lead")):
        seen = [each[share].measured for each in found]
        usable = [not at.saturated and math.isfinite(value) for at, value in zip(answering, seen, strict=True)]
        measured = [1000 * value if use else None for value, use in zip(seen, usable, strict=True)]
        lines.append(Line(words_of(share), rates, measured, kind=kind, dots=True))
        predicted = [each[share].predicted for each in found]
        model = [1000 * seconds for seconds in predicted if seconds is not None]
        if model:
            lines.append(Line(f"{words_of(share)}, model", rates, model, kind="predicted"))
    at = _at_bound(row, served)
    there = found[answering.index(at) if at in answering else 0].values()
    off = [abs(each.predicted / each.measured - 1) for each in there if each.predicted and math.isfinite(each.measured)]
    known = len(off) == len(there) and not at.saturated
    said = f"{name.words}: the model is off by {percent(max(off))}" if known else name.words
    return Lines(said, f"{setting} · {name.words}", lines, "queries/s", "ms", "y")
