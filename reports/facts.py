"""What a page says in words: what ran where, how much of it, and what came out in short."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from reports.text import number, share
from suite.analysis.machine import Noise
from suite.analysis.measured import Provenance
from suite.analysis.rows import Row
from suite.errors import Refused, once_per_reason
from suite.plan.text import values_of
from suite.results.records import CANCELLED
from suite.results.run_folder import OF_THE_RUN, RunFolder
from suite.results.stored import text_of
from suite.text import without_codes


@dataclass(frozen=True)
class Plan:
    """The plan as given; empty where the run folder has lost it."""

    name: str
    title: str
    text: str


def plan_of(folder: RunFolder) -> Plan:
    """The run's plan.toml; a plan that cannot be parsed is still shown as text."""
    path = folder.path / "plan.toml"
    if not path.exists():
        return Plan("", "", "")
    text = without_codes(text_of(path, OF_THE_RUN).decode(errors="replace"))
    try:
        values = values_of(text)
    except ValueError:
        values = {}
    name, title = (without_codes(str(values.get(key, ""))) for key in ("name", "title"))
    return Plan(name, title, text)


@dataclass(frozen=True)
class Progress:
    """How much of the run is there."""

    records: int
    wanted: int
    outcomes: list[tuple[str, int]]
    given: str  # the time that the command gave it, as 20min; "" without one

    @property
    def complete(self) -> bool:
        """Whether every process that could run has its record."""
        return self.records >= self.wanted


def shared_reasons(rows: Iterable[Row]) -> dict[tuple[str, str], Refused]:
    """By outcome and reason: what several cases share, to stand once."""
    found = once_per_reason(row.refused for row in rows if row.reason)
    return {(one.outcome, one.reason): one for one in found if one.cases > 1}


def progress_of(rows: list[Row], command: Sequence[str]) -> Progress:
    """Records against processes asked for, and the rows' outcomes, most frequent first."""
    wanted = sum(row.case.sampling.processes for row in rows if row.processes or row.outcome == "not measured")
    there = sum(process.outcome != CANCELLED for row in rows for process in row.processes)
    return Progress(there, wanted, Counter(row.outcome for row in rows).most_common(), _given(command))


def _given(command: Sequence[str]) -> str:
    """The value of `--for`, which stands beside the option or is the next word."""
    words = [part for word in command for part in (word.split("=", 1) if word.startswith("--for=") else [word])]
    return next((value for option, value in pairwise(words) if option == "--for"), "")


@dataclass(frozen=True)
class Software:
    """What an adapter ran on; several values where processes differed, which a reader should see."""

    adapter: str
    interpreters: list[str]
    versions: list[str]
    transports: list[str]
    bundles: list[str]


def software_of(rows: list[Row]) -> list[Software]:
    """By adapter, in the rows' order."""
    found: dict[str, list[Provenance]] = {}
    for row in rows:
        found.setdefault(row.case.adapter, []).extend(process.about for process in row.processes)
    return [_software(adapter, abouts) for adapter, abouts in found.items() if abouts]


def noise_of(rows: list[Row]) -> list[str]:
    """How noisy the machine was, and which rows it hit; nothing where no record tells."""
    ok = [(row.case.label, process) for row in rows for process in row.processes if process.outcome == "ok"]
    return noise_words([(label, process.noise) for label, process in ok])


def noise_words(every: Sequence[tuple[str, Noise]]) -> list[str]:
    """The same of processes by the label of what they measured."""
    kinds = (
        ("other programs took", [noise.busy_share for _, noise in every if noise.busy_share is not None]),
        (
            "other guests of the hypervisor took",
            [noise.steal_share for _, noise in every if noise.steal_share is not None],
        ),
    )
    lines = [
        f"{words} {share(median(known))} of a rank's cores in the median process, {share(max(known))} in the worst"
        for words, known in kinds
        if known
    ]
    slow = [noise.reference_slowdown for _, noise in every if noise.reference_slowdown is not None]
    if slow:
        lines.append(f"a fixed computation took up to {number(max(slow))} times as long as at its best in this run")
    again = [noise.set_aside_share for _, noise in every if noise.set_aside_share]
    if again:
        lines.append(
            f"while others used the machine, native steps of {len(again)} of {len(every)} processes were set aside and "
            f"run again: up to {share(max(again))} of their time"
        )
    if not lines:
        return []
    hit = Counter(label for label, noise in every if noise.disturbed)
    count = f"{hit.total()} of {len(every)} processes were disturbed"
    shown = ", ".join(f"{label} ({times})" for label, times in hit.most_common(5))
    more = f" and {len(hit) - 5} other rows" if len(hit) > 5 else ""
    return [*(f"{each[0].upper()}{each[1:]}." for each in lines), f"{count}: {shown}{more}." if hit else f"{count}."]


def _software(adapter: str, abouts: list[Provenance]) -> Software:
    def several(values: list[str | None]) -> list[str]:
        return sorted({value for value in values if value})

    pythons = [about.interpreter for about in abouts]
    return Software(
        adapter,
        several([f"Python {python.version}, {python.origin}" for python in pythons]),
        list(dict.fromkeys(f"{name} {version}" for about in abouts for name, version in about.versions.items())),
        several([_carried(about) for about in abouts if about.transport != "none"]),
        several([about.bundle for about in abouts]),
    )


def _carried(about: Provenance) -> str | None:
    """The transport as the engine calls it and, between hosts, the interfaces that carried the bytes."""
    transport, hosts, wire = about.transport, about.hosts, about.wire or {}
    if not transport or len(hosts) < 2:
        return transport or None
    carriers = " and ".join(sorted({each.interface for each in wire.values()})) or "an interface that was not named"
    return f"{transport}, over {carriers} between {' and '.join(hosts)}"
