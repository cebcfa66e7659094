"""Why the numbers may be trusted: proofs, outcomes, and what each trainer reports of itself."""

from collections.abc import Sequence

from reports.charts.html import Body, Content, folded, table, tag
from reports.charts.rows import Entry, Rows, logarithmic, strip
from reports.pages.run import Report, Section
from suite.analysis.comparability import DISQUALIFYING, NOTED
from suite.analysis.panels import SHOWN, labels
from suite.analysis.panels import title as named
from suite.analysis.rows import Row
from suite.analysis.wording import in_words, number, of_bound, scientific
from suite.errors import once_per_reason
from suite.text import grouped

LEAST = 1e-6  # of its bound: errors below are drawn there


def proofs(report: Report) -> Section | None:
    """Return the proof of every case, the failed ones first."""
    proven = [row for row in report.rows if row.processes]
    if report.imported or not report.rows:
        return None
    ordered = sorted(proven, key=lambda row: (row.proof is not None and row.proof.passed, -_part(row)))
    heads = "Case | proof | worst< | error | allowed | of its bound | parameters | multiply-accumulates | remarks<"
    whole = table("Proofs", heads, Body([_proof(report, row) for row in ordered[:SHOWN]]))
    title, also = headline(proven)
    body = [report.drawn("proofs", _strips(proven)), report.cut(ordered), whole]
    return Section("proofs", title, body, also, definitions=_DEFINITIONS, name="Proofs")


_DEFINITIONS = (
    "Before a case is measured, its adapter trains the network from the same weights on the same batch as a float64 "
    "oracle; losses, logits, every gradient and the parameters after three updates are compared. Worst is the tensor "
    "nearest to its tolerance, as ‖a − b‖ / ‖b‖."
)


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
    (name,) = labels([nearest.case])
    return (
        f"{len(passed)} of {len(proven)} proven; nearest to its bound: "
        f"{name.title}, {nearest.case.workload}, {of_bound(_part(nearest))}",
        also,
    )


def _strips(proven: Sequence[Row]) -> list[Rows]:
    """Return a strip a framework, a dot a case: its largest error as a part of its bound, on a logarithmic track."""
    there = [row for row in proven if row.proof and row.proof.worst]
    if not there:
        return []
    scale = logarithmic(max(min(map(_part, there)), LEAST), max(1.0, *map(_part, there)), strong=(1.0,))
    entries = []
    for adapter, rows in grouped(there, lambda row: row.case.adapter).items():
        parts = [_part(row) for row in rows]
        count = f"{len(rows)} case{'s' * (len(rows) > 1)}"
        words = f"{scientific(min(parts))} to {scientific(max(parts))} of the bound"
        entries.append(Entry(named(adapter), strip(scale, parts), of_bound(max(parts)), count, of=adapter, words=words))
    setting, axis = "largest error ÷ what is allowed, logarithmic", "error as a part of its bound"
    return [Rows("Every dot is a case; at 1 a proof fails", setting, scale, entries, "nearest", axis)]


def _proof(report: Report, row: Row) -> list[Content]:
    proof, name = row.proof, report.head(row.case.label, row, marked=False)
    if proof is None:
        reason = f"{row.proof_reason}; not compared with other frameworks"
        return [name, tag("span", "none", class_="bad"), *[""] * 6, reason]
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
    heads = "Case | outcome | processes | last loss, native< | load before → after (1 min)< | reason and marks<"
    ordered = sorted(report.rows, key=lambda row: row.outcome == "ok")
    lines = [_outcome(report, row, (row.outcome, row.reason) in shared) for row in ordered[:SHOWN]]
    reasons = [tag("li", f"{one.outcome}: {one.label}: {one.reason}") for one in shared.values()]
    seen = {mark for row in report.rows for mark in row.marks}
    words = [(mark, f"{meaning}; kept out of comparisons") for mark, meaning in DISQUALIFYING.items()]
    meanings = [tag("li", f"{mark}: {meaning}.") for mark, meaning in [*words, *NOTED.items()] if mark in seen]
    failed = [row for row in report.rows if row.outcome not in ("ok", "unsupported", "unavailable", "not measured")]
    title = f"{len(failed)} of {len(report.rows)} cases failed" if failed else "No case failed"
    body = [tag("ul", reasons) if reasons else None, report.cut(ordered), table("Outcomes", heads, Body(lines))]
    body.append(folded("What the marks mean", tag("ul", meanings)) if meanings else None)
    return Section("outcomes", title, body)


KINDS = {"ok": "good", "unsupported": None, "unavailable": None, "not measured": "warn"}


def _outcome(report: Report, row: Row, shared: bool) -> list[Content]:
    evidence = []
    for process in row.processes:
        if process.outcome != "ok" and process.about.evidence:
            found = process.about.evidence.model_dump(mode="json").items()
            text = "\n".join(
                f"{what}: " + ("\n".join(map(str, lines)) if isinstance(lines, list) else str(lines))
                for what, lines in found
            )
            evidence.append(folded(f"Evidence of process {process.repeat}", tag("pre", text, tabindex=0)))
    losses = ", ".join(number(process.losses.get("native")) for process in row.processes)
    load = ", ".join(f"{process.about.load.before[0]} → {process.about.load.after[0]}" for process in row.processes)
    words = ["see above" if shared else row.reason, report.marks(row), evidence]
    outcome = tag("span", row.outcome, class_=KINDS.get(row.outcome, "bad"))
    answers = f"{row.answers} of {row.case.sampling.processes}"
    return [report.head(row.case.label, row, marked=False), outcome, answers, losses, load, words]


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
    body = [report.cut(trained), table("Notes", "Case | notes<", Body(lines))]
    return Section("notes", "How each was trained", body)
