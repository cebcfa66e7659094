"""Why the numbers may be trusted: proofs, outcomes, definitions, the machine and its noise; how to repeat a run."""

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from statistics import median
from typing import NamedTuple

from stagebench.reports.charts.html import Cells, Content, asset, folded, listing, table, tag
from stagebench.reports.charts.rows import Entry, Rows, logarithmic, strip
from stagebench.reports.pages.run import Report, Section
from stagebench.suite import __version__
from stagebench.suite.analysis.best import USUAL
from stagebench.suite.analysis.comparability import DISQUALIFYING, NOTED
from stagebench.suite.analysis.machine import Noise
from stagebench.suite.analysis.measured import Process, Provenance
from stagebench.suite.analysis.panels import SHOWN, labels
from stagebench.suite.analysis.panels import title as named
from stagebench.suite.analysis.rows import Row
from stagebench.suite.analysis.wording import in_words, memory, moment, number, of_bound, scientific, share
from stagebench.suite.errors import once_per_reason
from stagebench.suite.predict.scenario import MODEL_ERROR
from stagebench.suite.results.records import Host
from stagebench.suite.text import counted, grouped
from stagebench.suite.worker.case_parts import Sampling

LEAST = 1e-6  # of its bound: errors below are drawn there
KINDS = {"ok": "good", "unsupported": None, "unavailable": None, "not measured": "warn"}


def proofs(report: Report) -> Section | None:
    """Return the proof of every case, the failed ones first."""
    proven = [row for row in report.rows if row.processes]
    if report.imported or not report.rows:
        return None
    ordered = sorted(proven, key=lambda row: (row.proof is not None and row.proof.passed, -_part(row)))
    heads = "Case | proof | worst< | error | allowed | of its bound | parameters | multiply-accumulates | remarks<"
    whole = table("Proofs", heads, [_proof(report, row) for row in ordered[:SHOWN]])
    there = [row for row in proven if row.proof and row.proof.worst]
    charts = []
    if there:  # a strip a framework, a dot a case: its largest error as a part of its bound, on a logarithmic track
        scale = logarithmic(max(min(map(_part, there)), LEAST), max(1.0, *map(_part, there)), strong=(1.0,))
        entries = []
        for adapter, rows in grouped(there, lambda row: row.case.adapter).items():
            parts = [_part(row) for row in rows]
            words = f"{scientific(min(parts))} to {scientific(max(parts))} of the bound"
            drawn, value, count = strip(scale, parts), of_bound(max(parts)), counted(len(rows), "case")
            entries.append(Entry(named(adapter), drawn, value, count, of=adapter, words=words))
        setting, axis = "largest error ÷ what is allowed, logarithmic", "error as a part of its bound"
        charts.append(Rows("Every dot is a case; at 1 a proof fails", setting, scale, entries, "nearest", axis))
    title, also = headline(proven)
    body = [report.drawn("proofs", charts), report.cut(ordered), whole]
    return Section("proofs", title, body, also)


def _part(row: Row) -> float:
    """Return the largest error of a proof as a part of its bound."""
    worst = row.proof.worst if row.proof else None
    return worst.error / worst.tolerance if worst and worst.tolerance else 0.0


def headline(proven: Sequence[Row]) -> tuple[str, str]:
    """Return how many cases are proven, and the error nearest to its bound."""
    if not proven:
        return "Nothing has been measured yet", ""
    passed = [row for row in proven if row.proof and row.proof.passed]
    left = [row for row in proven if row.proof and row.proof.scope]
    also = f"The proofs of {len(left)} leave something open, as they say." if left else ""
    if len(passed) < len(proven):
        return f"{len(proven) - len(passed)} of {len(proven)} cases not proven", also
    nearest = max(passed, key=_part)
    where = f"{labels([nearest.case])[0].title}, {nearest.case.workload}, {of_bound(_part(nearest))}"
    return f"{len(passed)} of {len(passed)} proven; nearest to its bound: {where}", also


def _proof(report: Report, row: Row) -> Cells:
    proof, name = row.proof, report.head(row.case.label, row, marked=False)
    if proof is None:
        reason = f"{row.proof_reason}; not compared with other frameworks"
        return [name, tag("span.bad", "none"), *[""] * 6, reason]
    passed = tag("span", "passed" if proof.passed else "failed", class_="good" if proof.passed else "bad")
    scope = f" {proof.scope[0].upper()}{proof.scope[1:]}." if proof.scope else ""
    looser = f" Looser tolerance: {proof.looser_because}" if proof.looser_because else ""
    words = [f"{proof.reason}{scope}{looser} ", tag("code", proof.key)]
    errors = ["–", "", "", ""]
    if worst := proof.worst:
        errors = [f"{worst.what} {worst.tensor}", scientific(worst.error), scientific(worst.tolerance)]
        errors.append(of_bound(_part(row)))
    return [name, passed, *errors, number(proof.parameter_count), number(proof.macs), words]


def outcomes(report: Report) -> Section | None:
    """Return the outcome of every case, with the evidence of those that failed."""
    if report.imported or not report.rows:
        return None
    refused = once_per_reason(row.refused for row in report.rows if row.reason)
    shared = {(one.outcome, one.reason): one for one in refused if one.cases > 1}
    ordered, lines = sorted(report.rows, key=lambda row: row.outcome == "ok"), []
    for row in ordered[:SHOWN]:
        losses = ", ".join(number(process.losses.get("native")) for process in row.processes)
        load = ", ".join(f"{process.about.load.before[0]} → {process.about.load.after[0]}" for process in row.processes)
        evidence = [_evidence(process) for process in row.processes if process.outcome != "ok"]
        reason = "see above" if (row.outcome, row.reason) in shared else row.reason
        outcome = tag("span", row.outcome, class_=KINDS.get(row.outcome, "bad"))
        cells: Cells = [report.head(row.case.label, row, marked=False), outcome]
        cells += [f"{row.answers} of {row.case.sampling.processes}", losses, load]
        lines.append([*cells, [reason, report.marks(row), evidence]])
    heads = "Case | outcome | processes | last loss, native< | load before → after (1 min)< | reason and marks<"
    reasons = listing(f"{one.outcome}: {one.label}: {one.reason}" for one in shared.values())
    seen = {mark for row in report.rows for mark in row.marks}
    words = {mark: f"{meaning}; kept out of comparisons" for mark, meaning in DISQUALIFYING.items()} | NOTED
    meanings = listing(f"{mark}: {meaning}." for mark, meaning in words.items() if mark in seen)
    failed = [row for row in report.rows if KINDS.get(row.outcome, "bad") == "bad"]
    title = f"{len(failed)} of {len(report.rows)} cases failed" if failed else "No case failed"
    body = [reasons, report.cut(ordered), table("Outcomes", heads, lines)]
    body.append(folded("What the marks mean", meanings) if meanings else None)
    return Section("outcomes", title, body)


def _evidence(process: Process) -> Content:
    found = process.about.evidence.model_dump(mode="json") if process.about.evidence else {}
    lists = ((what, lines if isinstance(lines, list) else [lines]) for what, lines in found.items())
    text = "\n".join(f"{what}: " + "\n".join(map(str, lines)) for what, lines in lists)
    return folded(f"Evidence of process {process.repeat}", tag("pre", text, tabindex=0)) if found else None


def notes(report: Report) -> Section | None:
    """Return what each trainer reports: layouts, kernels, the reader, how stages were separated."""
    trained = [row for row in report.rows if row.answers]
    if report.imported or not trained:
        return None
    lines = []
    for row in trained[:SHOWN]:
        reported = row.processes[0].about.notes.items()
        said = [[tag("b", name.replace("_", " ")), f": {in_words(note)}"] for name, note in reported]
        words = [[" · " if index else "", each] for index, each in enumerate(said)]
        lines.append([report.head(row.case.label, row, marked=False), words])
    body = [report.cut(trained), table("Notes", "Case | notes<", lines)]
    return Section("notes", "How each was trained", body)


def machine(report: Report) -> Section | None:
    """Return the hosts, the software and the noise of a run."""
    if report.imported:
        return None
    hosts = report.folder.hosts()
    cards = [tag("div", tag("h3", f"Host {name}"), host_words(host)) for name, host in hosts.items()]
    cards += [] if hosts else [tag("p", "The run folder describes no host.")]
    for used in software_of(report.rows):
        words = [tag("p", ", ".join(used.versions) or "versions unknown"), tag("p", "; ".join(used.interpreters))]
        words += [tag("p", f"Transport: {', '.join(used.transports)}")] if used.transports else []
        cards.append(tag("div", tag("h3", named(used.adapter)), words))
    ok = [(row.case.label, one) for row in report.rows for one in row.processes if one.outcome == "ok"]
    noise = noise_words([(label, process.noise) for label, process in ok])
    body: Cells = [tag("div.columns", cards)]
    body += [tag("h3", "How noisy it was"), tag("p", " ".join(noise))] if noise else []
    return Section("machine", "Machine and software", body)


def host_words(host: Host) -> Content:
    """Return processors, memory, GPUs and system, a line each."""
    found = host.machine
    held = f", {memory(found.memory_bytes)}" if found.memory_bytes else ""
    lines = [f"{found.cpu or 'CPU unknown'}, {host.cores or host.cores_installed or '?'} cores{held}", *found.gpus]
    more = [f"{what} {value}" for what, value in (("kernel", found.kernel), ("governor", found.governor)) if value]
    system = ", ".join([found.os or "system unknown", *more])
    return [tag("p", line) for line in [*lines, system]]


@cache
def definitions() -> dict[str, tuple[str, str]]:
    """Return (name, text) of static/method.md by section; by their names those that all sections share."""
    usual = ", ".join(f"{name} {value}" for name, value in USUAL.items())
    text = asset("method.md").format(sampling=Sampling(), model_error=share(MODEL_ERROR), usual=usual)
    found = {}
    for part in text.split("\n## ")[1:]:
        head, _, words = part.partition("\n")
        section, _, name = head.rpartition(": ")
        found[section or name] = name, words.strip().replace("\n", " ")
    return found


def method(report: Report, sections: Iterable[Section]) -> Section | None:
    """Return every definition; `sections` are those of the other pages."""
    if report.imported:
        return None
    first = (
        f"This run’s figures follow method {report.folder.about.method}. Figures of another method are defined "
        "differently, and never compared with these."
    )
    shown, defined = {section.id for section in sections}, definitions()
    parts = [part for id_, part in defined.items() if id_ in shown or id_ == part[0]]
    found = tag("div.columns", [tag("div", tag("h3", name), tag("p", words)) for name, words in parts])
    return Section("method", "How the numbers are made", [tag("p", first), found])


def replay(report: Report) -> Section | None:
    """Return the plan, and the command that repeats it."""
    if report.imported:
        return None
    about, plan = report.folder.about, report.plan
    install = f"Save the plan below as plan.toml, install stagebench {about.stagebench or __version__}, then:"
    commands = "stagebench run plan.toml -o again\nstagebench report again -o again/report"
    body: Cells = [tag("p", install), tag("pre", commands, tabindex=0)]
    if about.command:
        typed = tag("code", " ".join(about.command))
        body.append(tag("p", "This run was begun with ", typed, "; the same command resumes it."))
    lost = tag("p.bad", "The run folder has lost its plan.toml; cases.json in it holds every resolved value.")
    body.append(folded("The plan", tag("pre", plan.text, tabindex=0), open_=True) if plan.text else lost)
    digests = []
    for used in software_of(report.rows):
        changed = tag("span.mark.bad", "the code changed during the run") if len(used.bundles) > 1 else None
        digest = tag("code", ", ".join(used.bundles) or "digest unknown")
        digests.append([f"{named(used.adapter)}: ", digest, changed])
    said = "The code that ran in each framework’s interpreter is in the run folder’s bundles"
    body += [tag("p", f"{said}; equal digests mean equal code."), listing(digests)] if digests else []
    return Section("replay", "Repeat this run", body)


class Software(NamedTuple):
    """The software that an adapter ran on; several values where processes differed."""

    adapter: str
    interpreters: list[str]
    versions: list[str]
    transports: list[str]
    bundles: list[str]


def software_of(rows: Iterable[Row]) -> list[Software]:
    """Return the software by adapter, in the rows' order."""
    found = []
    for adapter, those in grouped(rows, lambda row: row.case.adapter).items():
        abouts = [process.about for row in those for process in row.processes]
        pythons = {f"Python {about.interpreter.version}, {about.interpreter.origin}" for about in abouts}
        versions = dict.fromkeys(f"{name} {version}" for about in abouts for name, version in about.versions.items())
        carried = {one for about in abouts if about.transport != "none" and (one := _carried(about))}
        bundles = {about.bundle for about in abouts if about.bundle}
        if abouts:
            found.append(Software(adapter, sorted(pythons), list(versions), sorted(carried), sorted(bundles)))
    return found


def _carried(about: Provenance) -> str | None:
    """Return the transport as the engine calls it and, between hosts, the interfaces that carried the bytes."""
    transport, hosts, wire = about.transport, about.hosts, about.wire or {}
    if not transport or len(hosts) < 2:
        return transport or None
    carriers = " and ".join(sorted({each.interface for each in wire.values()})) or "an interface that was not named"
    return f"{transport}, over {carriers} between {' and '.join(hosts)}"


def noise_words(every: Sequence[tuple[str, Noise]]) -> list[str]:
    """Return how noisy processes were, by the label of what they measured."""
    lines = []
    for words, shares in {
        "Other programs took": [noise.busy_share for _, noise in every],
        "Other guests of the hypervisor took": [noise.steal_share for _, noise in every],
    }.items():
        if known := [one for one in shares if one is not None]:
            typical, worst = share(median(known)), share(max(known))
            lines.append(f"{words} {typical} of a rank's cores in the median process, {worst} in the worst.")
    slow = [noise.reference_slowdown for _, noise in every if noise.reference_slowdown is not None]
    if slow:
        lines.append(f"A fixed computation took up to {number(max(slow))} times as long as at its best in this run.")
    again = [noise.set_aside_share for _, noise in every if noise.set_aside_share]
    if again:
        lines.append(
            f"While others used the machine, native steps of {len(again)} of {len(every)} processes were set aside and "
            f"run again: up to {share(max(again))} of their time."
        )
    hit = Counter(label for label, noise in every if noise.disturbed)
    shown = ", ".join(f"{label} ({times})" for label, times in hit.most_common(5))
    more = f" and {len(hit) - 5} other rows" if len(hit) > 5 else ""
    who = f"{hit.total()} of {len(every)} processes were disturbed{': ' if hit else ''}{shown}{more}."
    return [*lines, who] if lines else []


def footer(report: Report) -> Content:
    """Return the end of every page: how to repeat the run, when it was, and its software."""
    about = report.folder.about
    made = f"stagebench {about.stagebench or 'of unknown version'}"
    facts: dict[str, Content] = {"Run": f"imported {moment(about.created)}", "Software": made}
    if not report.imported:
        plan = tag("a", "plan.toml", href=report.to("replay"))
        facts = {
            "Repeat this run": [tag("code", "stagebench run plan.toml -o again"), " ", plan],
            "Run": f"begun {moment(about.created)}, plan {report.plan.name or about.plan or 'unknown'}",
            "Software": [made, "; ", tag("a", "frameworks and libraries", href=report.to("machine"))],
        }
    return tag("dl", [tag("div", tag("dt", name), tag("dd", words)) for name, words in facts.items()])
