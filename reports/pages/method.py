"""How a run was measured: every definition on one page, the machine, the software, its noise, and how to repeat it."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from reports.charts.html import Content, folded, tag
from reports.pages.run import Report, Section
from suite import __version__
from suite.analysis.machine import Noise
from suite.analysis.measured import Provenance
from suite.analysis.panels import title as named
from suite.analysis.rows import Row
from suite.analysis.wording import memory, moment, number, share
from suite.results.records import Host
from suite.worker.case_parts import Sampling

SAMPLING = Sampling()  # of the full measurement
METHOD = {
    "Passes": "Speed comes from native, the framework’s own fastest path without instruments. Staged runs the stages "
    "one by one, synchronised after each, with a barrier before communication. Compute only skips the exchange, on "
    "all ranks at once; resident takes batches that already lie on the device. Both take turns with native steps, "
    "block by block, because a machine drifts by more than most differences. Comm only only exchanges the network’s "
    "gradients; io only only reads the input. Where several devices hold one network, the stage bubble is the time "
    "that one waits for the others; between ranks the transfer of activations and their gradients is in it.",
    "Sampling": "Each process warms up until its steps get no faster; then every step is timed. Cases are interleaved "
    "in rounds of processes; within a round, those that will be compared take turns of half a second on this "
    "machine’s processors, so that drift of the machine hits all alike. A row marked quick had fewer steps, less time "
    f"or fewer processes than the full measurement asks for ({SAMPLING.steps} steps, {SAMPLING.seconds:g} s, "
    f"{SAMPLING.processes} processes, {SAMPLING.breakdowns} of which run all passes).",
    "Intervals": "A speed is the geometric mean over processes, with Student’s t on the logarithms of their speeds; a "
    "ratio of rows of the same rounds is the quotient of their speeds. Those of differences are Student’s t over "
    "processes, from two on. With one process the interval shows the noise of its steps only.",
    "Comparisons": "A ratio comes from the rounds that both cases were measured in, so that drift of the machine "
    "cancels. Within a group all pairs’ intervals hold together (Bonferroni): of 100 groups of equal cases at most 5 "
    "show a difference, as long as the cases scatter about alike. Where none is detectable the verdict is that they "
    "share the lead, which does not mean that there is no difference. Rows without a proof, with a trend, a missing "
    "rank or a non-finite loss are never compared with other frameworks.",
    "Outliers": "Shown, never dropped.",
}


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
    noise = noise_of(report.rows)
    body: list[Content] = [tag("div", cards, class_="columns")]
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


def method(report: Report, sections: Iterable[Section]) -> Section | None:
    """Return every definition; `sections` are those of the other pages."""
    if report.imported:
        return None
    first = (
        f"This run’s figures follow method {report.folder.about.method}. Figures of another method are defined "
        "differently, and never compared with these."
    )
    parts = [*METHOD.items(), *((one.name, one.definitions) for one in sections if one.definitions)]
    found = tag("div", [tag("div", tag("h3", name), tag("p", words)) for name, words in parts], class_="columns")
    return Section("method", "How the numbers are made", [tag("p", first), found])


def replay(report: Report) -> Section | None:
    """Return the plan, and the command that repeats it."""
    if report.imported:
        return None
    about, plan = report.folder.about, report.plan
    install = f"Save the plan below as plan.toml, install stagebench {about.stagebench or __version__}, then:"
    commands = "stagebench run plan.toml -o again\nstagebench report again -o again/report"
    body: list[Content] = [tag("p", install), tag("pre", commands, tabindex=0)]
    if about.command:
        typed = tag("code", " ".join(about.command))
        body.append(tag("p", "This run was begun with ", typed, "; the same command resumes it."))
    lost = tag("p", "The run folder has lost its plan.toml; cases.json in it holds every resolved value.", class_="bad")
    body.append(folded("The plan", tag("pre", plan.text, tabindex=0), open_=True) if plan.text else lost)
    digests = []
    for used in software_of(report.rows):
        changed = tag("span", "the code changed during the run", class_="mark bad") if len(used.bundles) > 1 else None
        digest = tag("code", ", ".join(used.bundles) or "digest unknown")
        digests.append(tag("li", f"{named(used.adapter)}: ", digest, changed))
    said = "The code that ran in each framework’s interpreter is in the run folder’s bundles"
    return Section(
        "replay",
        "Repeat this run",
        [*body, *([tag("p", f"{said}; equal digests mean equal code."), tag("ul", digests)] if digests else [])],
    )


@dataclass(frozen=True)
class Software:
    """The software that an adapter ran on; several values where processes differed."""

    adapter: str
    interpreters: list[str]
    versions: list[str]
    transports: list[str]
    bundles: list[str]


def software_of(rows: Iterable[Row]) -> list[Software]:
    """Return the software by adapter, in the rows' order."""
    by_adapter: dict[str, list[Provenance]] = {}
    for row in rows:
        by_adapter.setdefault(row.case.adapter, []).extend(process.about for process in row.processes)
    found = []
    for adapter, abouts in by_adapter.items():
        if abouts:
            pythons = {f"Python {about.interpreter.version}, {about.interpreter.origin}" for about in abouts}
            versions = dict.fromkeys(
                f"{name} {version}" for about in abouts for name, version in about.versions.items()
            )
            carried = {one for about in abouts if about.transport != "none" and (one := _carried(about))}
            bundles = {about.bundle for about in abouts if about.bundle}
            found.append(Software(adapter, sorted(pythons), list(versions), sorted(carried), sorted(bundles)))
    return found


def _carried(about: Provenance) -> str | None:
    """Return the transport as the engine calls it and, between hosts, the interfaces that carried the bytes."""
    transport, hosts, wire = about.transport, about.hosts, about.wire or {}
    if not transport or len(hosts) < 2:
        return transport or None
    carriers = " and ".join(sorted({each.interface for each in wire.values()})) or "an interface that was not named"
    return f"{transport}, over {carriers} between {' and '.join(hosts)}"


def noise_of(rows: Iterable[Row]) -> list[str]:
    """Return how noisy the machine was, and which rows it hit; nothing where no record tells."""
    ok = [(row.case.label, process) for row in rows for process in row.processes if process.outcome == "ok"]
    return noise_words([(label, process.noise) for label, process in ok])


def noise_words(every: Sequence[tuple[str, Noise]]) -> list[str]:
    """Return how noisy processes were, by the label of what they measured."""
    kinds: Mapping[str, list[float]] = {
        "Other programs took": [noise.busy_share for _, noise in every if noise.busy_share is not None],
        "Other guests of the hypervisor took": [
            noise.steal_share for _, noise in every if noise.steal_share is not None
        ],
    }
    lines = [
        f"{words} {share(median(known))} of a rank's cores in the median process, {share(max(known))} in the worst."
        for words, known in kinds.items()
        if known
    ]
    slow = [noise.reference_slowdown for _, noise in every if noise.reference_slowdown is not None]
    if slow:
        lines.append(f"A fixed computation took up to {number(max(slow))} times as long as at its best in this run.")
    again = [noise.set_aside_share for _, noise in every if noise.set_aside_share]
    if again:
        lines.append(
            f"While others used the machine, native steps of {len(again)} of {len(every)} processes were set aside and "
            f"run again: up to {share(max(again))} of their time."
        )
    if not lines:
        return []
    hit = Counter(label for label, noise in every if noise.disturbed)
    count = f"{hit.total()} of {len(every)} processes were disturbed"
    shown = ", ".join(f"{label} ({times})" for label, times in hit.most_common(5))
    more = f" and {len(hit) - 5} other rows" if len(hit) > 5 else ""
    return [*lines, f"{count}: {shown}{more}." if hit else f"{count}."]


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
