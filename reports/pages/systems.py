"""Systems of several owners: what each of them is, and who leads where they measured at equal settings."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from stagebench.reports.charts.html import Body, Entry, measured, note, small, table, tag
from stagebench.reports.pages.run import Section
from stagebench.suite.analysis.leaders import Against, against_fastest
from stagebench.suite.analysis.panels import SHOWN, labels, title, titles
from stagebench.suite.analysis.rows import Row
from stagebench.suite.analysis.runs import MeasuredRun
from stagebench.suite.analysis.stats import Rates, Round
from stagebench.suite.analysis.wording import listed, percent
from stagebench.suite.results.rank_report import GPU
from stagebench.suite.results.records import Host
from stagebench.suite.text import counted, grouped

Systems = Mapping[str, Sequence[MeasuredRun]]  # the runs of each, the oldest first
EQUAL = (
    "Equal settings: network, input, precision, optimiser, number of devices, threads, batch and tuning. A system has "
    "its newest row of a case; rows with a mark that keeps them out of comparisons are left out. 95 % intervals over "
    "processes; all pairs of a setting hold together."
)


class Measured(NamedTuple):
    """A row of a system."""

    system: str
    run: MeasuredRun
    row: Row


def systems_of(runs: Systems) -> list[Section]:
    """Return the table of systems, and their comparison; nothing for fewer than two systems."""
    if len(runs) < 2:
        return []
    settings = [(rows, _verdicts(rows)) for rows in _equal(runs)]
    leads: dict[str, Counter[str]] = {name: Counter() for name in runs}
    winners = [{each.system for at, each in enumerate(rows) if verdicts[str(at)].leads} for rows, verdicts in settings]
    for (rows, _), names in zip(settings, winners, strict=True):
        for name in names:
            leads[name][rows[0].row.case.workload] += 1
    lines = [[name, *machine_of(several), _frameworks(several), _runs(several), _leads(leads[name])]
             for name, several in runs.items()]  # fmt: skip
    heads = "System | processors< | cores | accelerators< | memory | frameworks< | latest | leads on<"
    where = counted(len(settings), "setting") + " in common" if settings else "no setting in common"
    where = f"{counted(len(runs), 'system')}, {where}"
    drawn = table("Systems", heads, lines)
    if not settings:
        return [Section("systems", where, drawn)]
    return [Section("systems", _headline(leads, winners), drawn, f"{where}."), _comparison(settings)]


def _headline(leads: Mapping[str, Counter[str]], winners: Sequence[set[str]]) -> str:
    """Return which system leads in most settings."""
    most = max(each.total() for each in leads.values())
    first = [name for name, each in leads.items() if each.total() == most]
    if not most:
        return "No verdict yet"
    s = "s" * (len(first) == 1)
    lead = f"lead{s}" if all(len(names) < 2 for names in winners) else f"lead{s} or share{s} the lead"
    return f"{listed(first)} {lead} in {most} of {counted(len(winners), 'setting')}"


def _equal(runs: Systems) -> list[list[Measured]]:
    """Return the comparable rows of each setting that two systems or more have, the fastest first."""
    newest: dict[tuple[str, str], Measured] = {}
    for name, several in runs.items():
        for run in several:
            for row in run.rows:
                if row.comparable:
                    newest[name, row.id] = Measured(name, run, row)
    settings = grouped(newest.values(), lambda each: (each.row.group, each.run.about.method)).values()
    shared = [rows for rows in settings if len({each.system for each in rows}) > 1]
    return [sorted(rows, key=lambda each: -each.row.speed) for rows in shared]


def _verdicts(rows: Sequence[Measured]) -> dict[str, Against]:
    """Compare the rows by their numbers. Rounds of different runs have nothing in common, whatever they are called."""
    rates = {}
    for number, (_, run, row) in enumerate(rows):
        assert row.rates
        by_round: dict[Round, float] = {(run.key, at): rate for at, rate in row.rates.by_round.items()}
        rates[str(number)] = Rates(by_round, row.rates.steps, row.rates.first_look)
    return against_fastest(rates)


def _comparison(settings: Sequence[tuple[Sequence[Measured], Mapping[str, Against]]]) -> Section:
    called = titles([rows[0].row.case for rows, _ in settings])
    bodies = []
    for words, (rows, verdicts) in list(zip(called, settings, strict=True))[:SHOWN]:
        lines = []
        for number, (each, name) in enumerate(zip(rows, labels([one.row.case for one in rows], True), strict=True)):
            against = verdicts[str(number)]
            system = tag("a", each.system, href=f"{each.run.path}/index.html")
            cells = [[system, small(name.words)], measured(each.row.rate), percent(against.ratio.value)]
            lines.append(Entry([*cells, against.verdict], "lead" if against.leads else "", each.row.case.adapter))
        bodies.append(Body(lines, words))
    heads = "System | samples/s^ | of the fastest | verdict<"
    return Section("leaders", "Who leads at equal settings", [table("Equal settings", heads, *bodies), note(EQUAL)])


def machine_of(runs: Iterable[MeasuredRun]) -> tuple[str, ...]:
    """Return processors, cores, accelerators and memory, each value once."""
    hosts = [host for run in runs for host in run.hosts.values()]
    cores = _once(str(host.cores_installed or host.cores or "") for host in hosts)
    memory = (host.machine.memory_bytes for host in hosts)
    sizes = _once(f"{size / 2**30:.0f} GiB" for size in memory if size)
    return _once(host.machine.cpu or "" for host in hosts), cores, _once(map(_accelerators, hosts)), sizes


def _accelerators(host: Host) -> str:
    models = Counter(match[1] if (match := re.fullmatch(GPU, gpu)) else gpu for gpu in host.machine.gpus)
    return ", ".join(f"{count} × {model}" for model, count in models.items())


def _frameworks(runs: Iterable[MeasuredRun]) -> str:
    return _once(title(row.case.adapter) for run in runs for row in run.rows if row.measured)


def _runs(runs: Sequence[MeasuredRun]) -> list[object]:
    newest = max(runs, key=lambda run: run.about.created)
    return [tag("a", newest.about.created[:10], href=f"{newest.path}/index.html"), small(counted(len(runs), "run"))]


def _leads(networks: Counter[str]) -> str:
    return ", ".join(name if count == 1 else f"{name} ({count} settings)" for name, count in networks.items())


def _once(words: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(filter(None, words)))
