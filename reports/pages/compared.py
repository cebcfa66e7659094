"""Runs next to each other, as `compare` and `history` have them; systems of several owners, and who leads where."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import NamedTuple

from stagebench.reports.charts.html import Body, Cells, Entry, folded, listing, measured, note, small, table, tag
from stagebench.reports.charts.lines import Line, Lines
from stagebench.reports.pages.run import Section, named
from stagebench.suite.analysis.compare_runs import Compared, Comparison, compare, paired
from stagebench.suite.analysis.leaders import Against, against_fastest
from stagebench.suite.analysis.panels import SHOWN, Name, labels, title, titles
from stagebench.suite.analysis.rows import Row
from stagebench.suite.analysis.runs import MeasuredRun, Point, Series, series_of
from stagebench.suite.analysis.stats import Rates, Round
from stagebench.suite.analysis.trend import FEWEST
from stagebench.suite.analysis.wording import listed, number, percent, share
from stagebench.suite.results.rank_report import GPU
from stagebench.suite.results.records import Host
from stagebench.suite.text import counted, grouped

THRESHOLD = 0.03  # as the commands have it: smaller changes do not matter
DRAWN = 60  # series; the table has all
KINDS = {"faster": "good", "slower": "bad"}
Systems = Mapping[str, Sequence[MeasuredRun]]  # the runs of each, the oldest first
EQUAL = (
    "Equal settings: network, input, precision, optimiser, number of devices, threads, batch and tuning. A system has "
    "its newest row of a case; rows with a mark that keeps them out of comparisons are left out. 95 % intervals over "
    "processes; all pairs of a setting hold together."
)


def compared(runs: Sequence[MeasuredRun]) -> list[Section]:
    """Return the comparison and the history; empty where no two runs share a case with a speed."""
    different = {run.key: run for run in runs if run.measured}.values()
    ordered = sorted(different, key=lambda run: run.about.created)
    several = (each for each in series_of(ordered, THRESHOLD) if len(each.points) > 1)
    series = sorted(several, key=lambda each: not each.changes)
    # The latest run with the last one before it that shares a case, of the same plan if there is one.
    plans = [run.about.plan for run in ordered]
    newest = sorted(range(len(plans) - 1), key=lambda at: (plans[at] == plans[-1], at), reverse=True)
    shared = (at for at in newest if any(one and other for one, other in paired(ordered[at], ordered[-1])))
    found = [_comparison(compare(ordered[at], ordered[-1], THRESHOLD, ordered[:at])) for at in islice(shared, 1)]
    return [*found, *([_history(series)] if series else [])]


def _comparison(found: Comparison) -> Section:
    both = [one for one in found.cases if one.before and one.after]
    faster, slower = (sum(one.verdict == kind for one in both) for kind in ("faster", "slower"))
    title = f"{found.after.name} is {found.verdict}: {faster} faster, {slower} slower of {len(both)}"
    after, before = (tag("a", run.name, href=f"{run.name}/index.html") for run in (found.after, found.before))
    said = f". 95 % intervals over processes; changes below {100 * found.threshold:g} % do not count ("
    units = " or ".join(sorted({one.after.unit for one in both if one.after}))
    heads = f"Case | verdict< | before, {units} | after | change! | interval | remarks<"
    lines = [_line(one) for one in sorted(both, key=lambda one: one.verdict not in KINDS)]
    body: Cells = [tag("p", after, " against ", before, said, tag("code", "stagebench compare"), ").")]
    body.append(table("The latest two runs", heads, lines))
    for run in (found.before, found.after):
        cases = [one for one in found.cases if (one.after if run is found.before else one.before) is None]
        if cases:
            lone = listing(f"{one.case.label}: {'; '.join(one.bars)}" for one in cases)
            words = f"Measured only in {run.name}: {len(cases)} case{'' if len(cases) == 1 else 's'}"
            body.append(folded(words, lone))
    return Section("comparison", title, body)


def _line(one: Compared) -> Cells:
    assert one.before
    assert one.after
    remarks = ["; ".join(one.bars), f"not the same: {'; '.join(one.differs)}" if one.differs else "", *one.latency]
    change, ends = "", ""
    if one.found:
        ratio = one.found.ratio
        low, change, high = (share(end - 1) for end in (ratio.low, ratio.value, ratio.high))
        ends = f"{low} … {high}"
    verdict = tag("span", one.verdict, class_=KINDS.get(one.verdict))
    both = [row.judged_by if row else None for row in (one.before, one.after)]
    speeds = (number(rates.value if rates else None) for rates in both)
    return [one.case.label, verdict, *speeds, change, ends, " · ".join(filter(None, remarks))]


def _history(series: Sequence[Series]) -> Section:
    changed = sum(bool(each.changes) for each in series)
    units = " or ".join(sorted({each.points[-1].row.unit for each in series}))
    charts = [_chart(name, each).html() for name, each in named(series)[:DRAWN]]
    lines = []
    for each in series:
        what = ". ".join(
            f"{change.ratio - 1:+.1%} from {_day(each.points[change.at])} "
            f"on; changed there: {'; '.join(change.differs) or 'nothing that the runs keep'}"
            for change in each.changes
        )
        first, last = (number(each.points[at].level.value) for at in (0, -1))
        lines.append([each.case.label, str(len(each.points)), first, last, what])
    cut = f"The first {DRAWN} of {len(series)} cases are drawn, those that changed before the others; "
    body = [note(f"{cut}the table has them all.") if len(series) > DRAWN else None]
    body.append(tag("div.panels.three", charts))
    body.append(table("History", f"Case | runs | first, {units} | latest | changes<", lines))
    told = f"). A change can be told from noise once there are {FEWEST} runs."
    body.append(note("The oldest run first (", tag("code", "stagebench history"), told))
    title = f"{changed} of {len(series)} cases changed their speed"
    if not changed:
        enough = any(len(each.points) >= FEWEST for each in series)
        title = "No case changed its speed detectably" if enough else "Too few runs to tell a change from noise"
    return Section("history", title, body)


def _day(point: Point) -> str:
    return point.run.about.created[:10]


def _chart(name: Name, series: Series) -> Lines:
    points = series.points
    days = [datetime.fromisoformat(point.run.about.created).timestamp() / 86400 for point in points]
    if len(set(days)) < len(days):
        days = [float(index) for index in range(len(days))]
    line = Line.of("", days, [point.level for point in points], "lead", 2.0)
    ticks = {days[at]: _day(points[at]) for at in (0, -1)}
    changes = "; ".join(f"{change.ratio - 1:+.0%} on {_day(points[change.at])}" for change in series.changes)
    first, last = (number(points[at].level.value) for at in (0, -1))
    return Lines(changes or f"{first} → {last}", series.case.label, [line], "begun", points[-1].row.unit, ticks=ticks)


class Measured(NamedTuple):
    """A row of a system."""

    system: str
    run: MeasuredRun
    row: Row

    @property
    def rates(self) -> Rates:
        assert self.row.judged_by
        return self.row.judged_by


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
    lines = []
    for name, several in runs.items():
        frameworks = _once(title(row.case.adapter) for run in several for row in run.rows if row.measured)
        newest = max(several, key=lambda run: run.about.created)
        link = tag("a", newest.about.created[:10], href=f"{newest.path}/index.html")
        latest = [link, small(counted(len(several), "run"))]
        won = (network if n == 1 else f"{network} ({n} settings)" for network, n in leads[name].items())
        lines.append([name, *machine_of(several), frameworks, latest, ", ".join(won)])
    heads = "System | processors< | cores | accelerators< | memory | frameworks< | latest | leads on<"
    where = counted(len(settings), "setting") + " in common" if settings else "no setting in common"
    where = f"{counted(len(runs), 'system')}, {where}"
    drawn = table("Systems", heads, lines)
    if not settings:
        return [Section("systems", where, drawn)]
    return [Section("systems", _most_leads(leads, winners), drawn, f"{where}."), _leaders(settings, winners)]


def _most_leads(leads: Mapping[str, Counter[str]], winners: Sequence[set[str]]) -> str:
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
                if row.comparable and row.judged_by:
                    newest[name, row.id] = Measured(name, run, row)
    settings = grouped(newest.values(), lambda each: (each.row.group, each.run.about.method)).values()
    shared = [rows for rows in settings if len({each.system for each in rows}) > 1]
    return [sorted(rows, key=lambda each: -each.rates.value) for rows in shared]


def _verdicts(rows: Sequence[Measured]) -> dict[str, Against]:
    """Compare the rows by their numbers. Rounds of different runs have nothing in common, whatever they are called."""
    rates = {}
    for index, each in enumerate(rows):
        by_round: dict[Round, float] = {(each.run.key, at): rate for at, rate in each.rates.by_round.items()}
        rates[str(index)] = Rates(by_round, each.rates.steps, each.rates.first_look)
    return against_fastest(rates)


def _leaders(
    settings: Sequence[tuple[Sequence[Measured], Mapping[str, Against]]], winners: Sequence[set[str]]
) -> Section:
    called = titles([rows[0].row.case for rows, _ in settings])
    bodies = []
    for words, (rows, verdicts) in list(zip(called, settings, strict=True))[:SHOWN]:
        lines = []
        for index, (each, name) in enumerate(zip(rows, labels([one.row.case for one in rows], True), strict=True)):
            against = verdicts[str(index)]
            system = tag("a", each.system, href=f"{each.run.path}/index.html")
            cells = [[system, small(name.words)], measured(each.rates.interval), percent(against.ratio.value)]
            lines.append(Entry([*cells, against.verdict], "lead" if against.leads else "", each.row.case.adapter))
        bodies.append(Body(lines, words))
    units = " or ".join(sorted({rows[0].row.unit for rows, _ in settings}))
    heads = f"System | {units}^ | of the fastest | verdict<"
    alone = sum(len(names) == 1 for names in winners)
    answer = f"One system leads alone in {alone} of {counted(len(winners), 'setting')}"
    return Section(
        "leaders",
        answer if any(winners) else "No verdict yet at equal settings",
        [table("Equal settings", heads, *bodies), note(EQUAL)],
    )


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


def _once(words: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(filter(None, words)))
