"""The page of a case: its result, its comparison, its stages, how to repeat it, and what each process reported.

Cases are data that the page loads, since a page that is opened from a disk may load nothing but scripts. They come in
pieces, so that a page about one case of ten thousand loads a few.
"""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import is_dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from markupsafe import Markup

from stagebench.reports.charts.html import (
    Cells,
    Content,
    below_title,
    differing,
    folded,
    joined,
    listing,
    note,
    table,
    tag,
)
from stagebench.reports.charts.rows import Entry, Rows, linear, stack
from stagebench.reports.pages.overview import speeds_of
from stagebench.reports.pages.run import Report
from stagebench.reports.pages.stages import PARTS, layers_of, word
from stagebench.suite.analysis.budget import STAGES
from stagebench.suite.analysis.comparability import DISQUALIFYING, FOREIGN, meaning
from stagebench.suite.analysis.machine import Gpu
from stagebench.suite.analysis.measured import Process, Profile
from stagebench.suite.analysis.panels import Name, Panel, labels, titles
from stagebench.suite.analysis.rows import Row
from stagebench.suite.analysis.standing import learnt, verdict
from stagebench.suite.analysis.stats import Values
from stagebench.suite.analysis.wording import (
    UNKNOWN,
    bracketed,
    in_words,
    memory,
    milliseconds,
    number,
    of_bound,
    percent,
    scientific,
    share,
    whole_number,
)
from stagebench.suite.contracts.case import Case
from stagebench.suite.plan.text import Block, plan_text
from stagebench.suite.text import cut, grouped
from stagebench.suite.worker.pass_kinds import BY_NAME

KERNELS, NAMED = 10, 60  # rows of the table of kernels; letters of a name there: those of C++ templates have hundreds
FEW = 256  # cases; more of them lie in pieces by the first two digits of their ids, instead of the first
NEIGHBOURS = 8  # cases of its comparison
SHORT = len("GPU-12345678")  # of a UUID: enough to tell a host's from each other

Fact = tuple[str, str]
File = tuple[str, str]  # name, text


def digits_of(rows: Sequence[Row]) -> int:
    """Return how many digits of a case's id name the piece that holds it."""
    return 1 if len(rows) <= FEW else 2


def details(report: Report) -> Iterator[File]:
    """Yield case-0.js, case-1.js, ...: the page of each case whose id begins so."""
    digits, own = digits_of(report.rows), report.folder.own_networks()
    panels = {row.id: panel for panel in report.groups for row in panel.rows}
    names = {row.id: name for panel in report.groups for name, row in panel.pairs}
    charts = {id(panel): speeds_of(report, panel) for panel in report.groups}

    def piece(row: Row, setting: str) -> dict[str, Any]:
        name, panel = names.get(row.id) or labels([row.case])[0], panels.get(row.id)
        staged: Mapping[str, Any] = next((one.stage_seconds for one in row.measured if one.stage_seconds), {})
        comparison = [_comparison(row, panel, charts[id(panel)])] if panel else []
        return {
            "title": f"{name.title}, {row.case.workload}",
            "html": str(_page(report, row, name, setting, own, comparison)),
            "steps": [[f"process {process.repeat}", ticks(process.step_seconds)] for process in row.measured],
            "stages": [[word(stage), ticks(np.asarray(all_)), stage] for stage, all_ in staged.items() if any(all_)],
        }

    titled = zip(report.rows, titles([row.case for row in report.rows]), strict=True)
    by_prefix = grouped(titled, lambda pair: pair[0].id[:digits])
    for prefix in sorted(by_prefix):  # the pages of one file at a time: all of them are most of a large site
        pages = {row.id: piece(row, setting) for row, setting in by_prefix[prefix]}
        content = json.dumps(pages, separators=(",", ":")).replace("<", "\\u003c")
        yield f"case-{prefix}.js", f"stagebench.details({content});\n"


def ticks(seconds: Values) -> list[int]:
    """Return seconds in units of 0.1 µs: whole numbers become text three times as fast as others."""
    found: list[int] = (seconds * 1e7).round().astype(int).tolist()
    return found


def _page(report: Report, row: Row, name: Name, setting: str, own: Collection[str], comparison: list[Rows]) -> Markup:
    case, foreign = row.case, FOREIGN in row.marks
    data = f"{case.data_name}{f' from {case.input.mode}' if case.data != 'synthetic' else ''}"
    above = tag("p.eyebrow", " · ".join(filter(None, [case.strategy, setting, data])))
    also = tag("p.also", headline(row))
    kinds = {mark: "mark bad" if mark in DISQUALIFYING else "mark" for mark in row.marks}
    marks = ([tag("span", mark, class_=kind), f" {meaning(mark)}"] for mark, kind in kinds.items())
    parts: Cells = [tag("div.masthead", above, tag("h1", f"{name.title}, {case.workload}"), also)]
    parts.append(listing(marks, "ul.findings"))
    panels = [*comparison, *([_stages(row)] if row.budget else [])]
    parts.append(tag("div.panels", below_title([one.html() for one in panels])))
    results = {"Speed": _speed(row), "Milliseconds per iteration": _budget(row), "Proof": _proof(row)}
    columns = [tag("div", tag("h2", title), _facts(facts)) for title, of in results.items() if (facts := list(of))]
    parts.append(tag("div.columns", columns))
    parts += [layers_of(report, row), _kernels(row.kernels) if row.kernels else None, _gpus(row.gpus)]
    if not foreign:
        plan = plan_text(case.adapter, case.label, "One case of a run.", [Block(case, "")], own)
        where = " beside run.json, which has the network" if case.workload in own else ""
        copy = tag("button", "Copy the plan", type="button", data_text="plan")
        typed = f"{where}, then type ", tag("code", "stagebench run case.toml -o again"), ". ", copy
        save = tag("p", "Save as ", tag("code", "case.toml"), *typed)
        whole = folded("The plan", tag("pre", plan, tabindex=0, id="plan"))
        parts += [tag("section", tag("h2", "Repeat this case"), save, whole), _settings(case)]
    parts.append(_processes(row.processes))
    last = []
    for process in row.processes:
        for log, lines in (process.about.evidence.logs if process.about.evidence else {}).items():
            words = f"Last lines, process {process.repeat}: {log}"
            last += [folded(words, tag("pre", "\n".join(lines), tabindex=0))] if lines else []
    parts.append(tag("section", last) if last else None)
    if not foreign:
        parts.append(note(f"Case {row.id}; its records are records/{row.id}-r*.json in the run folder."))
    return joined(parts)


def headline(row: Row) -> str:
    """Return a case's result in a line: speed, verdict, proof; or why it has none."""
    if row.rate is None:
        return learnt(row) if row.outcome == "ok" else f"{row.outcome}{': ' if row.reason else ''}{row.reason}"
    words = f"{number(row.rate.value)} samples/s{bracketed(row.rate)}"
    if row.against:
        words += f": {row.against.verdict}"
    worst = row.proof.worst if row.proof else None
    if row.proof and not row.proof.passed:
        words += "; its proof failed"
    elif worst and worst.tolerance:
        words += f"; proof at {of_bound(worst.error / worst.tolerance)} of its bound"
    elif FOREIGN not in row.marks and not row.proof:
        words += "; not proven"
    return words if row.outcome in ("ok", FOREIGN) else f"{words}; {row.outcome}: {row.reason}"


def _comparison(row: Row, panel: Panel, chart: Rows) -> Rows:
    """Return the case's comparison with its row marked, and the fastest others."""
    at = next(index for index, other in enumerate(panel.rows) if other.id == row.id)
    entries = list(chart.entries)
    entries[at] = entries[at]._replace(kind=f"{entries[at].kind} here".strip())
    kept = [entries[index] for index in sorted({*range(min(NEIGHBOURS - 1, len(entries))), at})]
    more = f"{len(entries) - len(kept)} more cases are in this comparison." if len(kept) < len(entries) else ""
    return replace(chart, title=verdict(panel), entries=kept, note=more)


def _stages(row: Row) -> Rows:
    assert row.budget
    parts, whole = {stage: 1000 * (row.budget.of(stage) or 0.0) for stage in PARTS}, 1000 * row.budget.native
    scale = linear(max(sum(max(ms, 0.0) for ms in parts.values()), whole), " ms")
    longest = max(parts, key=lambda stage: parts[stage])
    kinds = {stage: f"{word(stage)} {number(ms)}" for stage, ms in parts.items() if ms}
    title = f"{word(longest).capitalize()} takes longest: {percent(parts[longest] / whole)} of the step"
    entry = Entry("an iteration", stack(scale, parts, whole), number(whole), words=", ".join(kinds.values()))
    setting = "milliseconds, one by one; black mark: the real step"
    return Rows(title, setting, scale, [entry], "ms", "stages of an iteration in ms", key=kinds)


@lru_cache(maxsize=256)
def _defaults(facts: tuple[Fact, ...]) -> Markup:
    """Return the facts that many cases share, folded."""
    return folded(f"{len(facts)} defaults", _facts(facts))


def _facts(facts: Sequence[Fact]) -> Markup:
    return tag("dl.facts", [_fact(name, value) for name, value in facts])


@lru_cache(maxsize=1 << 14, typed=True)  # Markup is another value than the text that it is equal to
def _fact(name: str, value: Content) -> Markup:
    return joined((tag("dt", name), tag("dd", value)))


def _speed(row: Row) -> Iterator[Fact]:
    if row.rate and row.rate_per_device:
        yield "samples/s, all devices together", f"{number(row.rate.value)}{bracketed(row.rate)}"
        yield "samples/s per device", number(row.rate_per_device.value)
    if row.token_rate:
        yield "tokens/s, all devices together", f"{number(row.token_rate.value)}{bracketed(row.token_rate)}"
    if row.against:
        ratio = row.against.ratio
        yield "of the fastest of its group", f"{number(ratio.value)}{bracketed(ratio)}: {row.against.verdict}"
    if row.utilisation:
        yield "of the measured peak of its devices", share(row.utilisation)
    if row.joules_per_sample:
        yield "joules per sample", number(row.joules_per_sample)
    if row.scaling:
        found = row.scaling.efficiency.scaled(100)
        yield "scaling efficiency", f"{number(found.value)} %{bracketed(found)} of {row.scaling.baseline_label}"


def _budget(row: Row) -> Iterator[Fact]:
    if row.budget:
        for stage in STAGES:
            name = "not explained" if stage == "other" else word(stage)
            yield name, joined([milliseconds(row.budget.of(stage)), differing(row.budget.intervals.get(stage))])
        yield "real step", milliseconds(row.budget.native)
        yield "staged", milliseconds(row.budget.staged)


def _proof(row: Row) -> Iterator[Fact]:
    if row.proof is None:
        if row.processes and FOREIGN not in row.marks:
            yield "none", row.proof_reason
        return
    proof, worst = row.proof, row.proof.worst
    yield "passed" if proof.passed else "failed", proof.reason or proof.scope or "against a float64 oracle"
    if worst:
        far = f"{scientific(worst.error)} of {scientific(worst.tolerance)} allowed"
        yield "worst", f"{worst.what} {worst.tensor}: {far}"
    yield "parameters", number(proof.parameter_count)
    yield "multiply-accumulates", number(proof.macs)
    yield "key", proof.key or ""


def _settings(case: Case) -> Markup:
    """Return every resolved value; those that differ from the defaults are open."""
    usual = _usual(case.adapter, case.strategy, case.workload)
    sides = grouped(_values(case), lambda fact: usual.get(fact[0]) == fact[1])
    own, rest = sides.get(False, []), sides.get(True, [])
    return tag("section", tag("h2", "Settings that are not the defaults"), _facts(own), _defaults(tuple(rest)))


@lru_cache(maxsize=256)
def _usual(adapter: str, strategy: str, workload: str) -> dict[str, str]:
    return dict(_values(Case(adapter, strategy, workload)))


def _values(found: Any, above: str = "") -> Iterator[Fact]:
    values = found._asdict() if hasattr(found, "_fields") else vars(found)
    for name, value in values.items():
        if is_dataclass(value) or hasattr(value, "_fields"):
            yield from _values(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", f"{value:g}" if isinstance(value, float) else in_words(value)


def _processes(processes: Sequence[Process]) -> Content:
    """Return one table of all processes: a line a fact; facts that all of them share are folded."""
    if not processes:
        return None
    told = [dict(_process(process)) for process in processes]
    names = dict.fromkeys(name for facts in told for name in facts)
    lines = {name: [facts.get(name, UNKNOWN) for facts in told] for name in names}
    alike = _facts([(name, values[0]) for name, values in lines.items() if len(set(values)) == 1])
    if len(processes) == 1:
        return tag("section", tag("h2", "The process"), alike)
    differing = [[name, *values] for name, values in lines.items() if len(set(values)) > 1]
    heads = ["Processes", *(f"process {process.repeat}<" for process in processes)]
    whole = table("Processes", heads, differing) if differing else None
    shared = folded(f"{len(lines) - len(differing)} facts that they share", alike)
    return tag("section", tag("h2", f"{len(processes)} processes"), whole, shared)


def _process(process: Process) -> Iterator[Fact]:  # noqa: C901 - one fact after the other
    about = process.about
    yield "outcome", f"{process.outcome}{': ' if process.reason else ''}{process.reason}"
    yield "samples/s", number(process.rate)
    for name, seconds in process.passes.items():
        yield f"pass {name}, {BY_NAME[name].runs}", f"{milliseconds(seconds)} ms per step"
    yield "interpreter", f"Python {about.interpreter.version}, {about.interpreter.origin}"
    yield "versions", ", ".join(f"{name} {version}" for name, version in about.versions.items())
    yield "hosts", ", ".join(about.hosts)
    yield "processors", ", ".join(sorted(about.processors)) or "unknown"
    yield "transport", about.transport or "none"
    for values in about.environments.values():
        given = [f"{name}={value}" for name, value in values.items() if value]
        yield "variables that change what is computed", ", ".join(given) or "none is set"
    if about.turns_with:
        yield "native pass", f"in turns with {about.turns_with} other case{'s' * (about.turns_with > 1)}"
    yield "load before, after", f"{about.load.before[0]}, {about.load.after[0]}"
    if process.noise.set_aside_share:
        why = "native steps set aside, as others used the machine"
        yield why, f"{share(process.noise.set_aside_share)} of their time"
    if process.noise.clock_hz:
        yield "clock of its cores at the end", f"{process.noise.clock_hz / 1e9:.2f} GHz"
    if process.memory:
        yield "memory of each rank at most", ", ".join(memory(each.host_bytes) for each in process.memory)
        on_devices = [memory(each.device_bytes) for each in process.memory if each.device_bytes]
        if on_devices:
            yield "on its devices", ", ".join(on_devices)
    for name, loss in process.losses.items():
        if loss is not None:
            yield f"last loss, {name.replace('_', ' ')}", number(loss)
    for name, said in about.notes.items():
        yield name.replace("_", " "), in_words(said)


def _kernels(found: Profile) -> Markup:
    """Return the profiler's view: each stage next to the staged pass, and the longest kernels."""
    whole = found.seconds or 1.0
    stages = [
        [word(one.stage), *map(milliseconds, (one.busy, one.staged)), share(one.idle_share)] for one in found.stages
    ]
    rows: list[Cells] = []
    for row in found.rows[:KERNELS]:
        name = tag("span", cut(row.name, NAMED), title=row.name)
        times = milliseconds(row.seconds), share(row.seconds / whole)
        rows.append([name, word(row.stage), row.kind, f"{row.calls:g}", *times])
    kept = [" All that it saw lies in the run folder: ", tag("code", found.trace)] if found.trace else []
    said = note(f"By {found.profiler}. Calls are those of an iteration; shares are of all kernels’ time.", kept)
    first = table("Stages and kernels", "Stage | kernels, ms | staged, ms | no kernel", stages)
    second = table("The longest kernels", "Kernel | stage< | kind< | calls | ms | share", rows)
    return tag("section", tag("h2", "Kernels"), first, second, said)


def _gpus(gpus: Sequence[Gpu]) -> Content:
    if not gpus:
        return None
    heads = "host | GPU | UUID | time with a kernel | memory at most | power, W (most) | SM clock, MHz (least)"
    heads += " | memory clock, MHz (least) | °C at most | throttled by"
    lines = []
    for gpu in gpus:
        use = gpu.use
        cells = [gpu.host, gpu.model or "unknown", use.uuid[:SHORT], share(use.busy_share), memory(use.memory_bytes)]
        cells += [_two(use.watts, use.most_watts), _two(use.sm_clock_hz, use.least_sm_clock_hz, 1e-6)]
        cells += [_two(use.memory_clock_hz, use.least_memory_clock_hz, 1e-6), whole_number(use.celsius)]
        lines.append([*cells, UNKNOWN if use.throttled_by is None else ", ".join(use.throttled_by) or "nothing"])
    return tag("section", tag("h2", "GPUs while it was measured"), table("GPUs", heads, lines))


def _two(mean: float | None, extreme: float | None, scale: float = 1.0) -> str:
    return f"{number(mean, scale)} ({number(extreme, scale)})" if mean is not None else UNKNOWN
