"""Runs next to each other: the latest two that share a case, as `compare` has it, every case as `history` has it."""

from collections.abc import Sequence
from datetime import datetime
from itertools import islice

from stagebench.reports.charts.html import Cells, folded, listing, note, table, tag
from stagebench.reports.charts.lines import Line, Lines
from stagebench.reports.pages.run import Section, named
from stagebench.suite.analysis.compare_runs import Compared, Comparison, compare, paired
from stagebench.suite.analysis.panels import Name
from stagebench.suite.analysis.runs import MeasuredRun, Point, Series, series_of
from stagebench.suite.analysis.trend import FEWEST
from stagebench.suite.analysis.wording import number, share

THRESHOLD = 0.03  # as the commands have it: smaller changes do not matter
DRAWN = 60  # series; the table has all
KINDS = {"faster": "good", "slower": "bad"}


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
    heads = "Case | verdict< | before, samples/s | after | change! | interval | remarks<"
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
    remarks = ["; ".join(one.bars), f"not the same: {'; '.join(one.differs)}" if one.differs else ""]
    change, ends = "", ""
    if one.found:
        ratio = one.found.ratio
        low, change, high = (share(end - 1) for end in (ratio.low, ratio.value, ratio.high))
        ends = f"{low} … {high}"
    verdict = tag("span", one.verdict, class_=KINDS.get(one.verdict))
    speeds = number(one.before.speed or None), number(one.after.speed or None)
    return [one.case.label, verdict, *speeds, change, ends, " · ".join(filter(None, remarks))]


def _history(series: Sequence[Series]) -> Section:
    changed = sum(bool(each.changes) for each in series)
    charts = [_chart(name, each).html() for name, each in named(series)[:DRAWN]]
    lines = []
    for each in series:
        what = ". ".join(
            f"{change.ratio - 1:+.1%} from {_day(each.points[change.at])} "
            f"on; changed there: {'; '.join(change.differs) or 'nothing that the runs keep'}"
            for change in each.changes
        )
        first, last = (number(each.points[at].row.speed) for at in (0, -1))
        lines.append([each.case.label, str(len(each.points)), first, last, what])
    cut = f"The first {DRAWN} of {len(series)} cases are drawn, those that changed before the others; "
    body = [note(f"{cut}the table has them all.") if len(series) > DRAWN else None]
    body.append(tag("div.panels.three", charts))
    body.append(table("History", "Case | runs | first, samples/s | latest | changes<", lines))
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
    points = [point for point in series.points if point.row.rate]
    days = [datetime.fromisoformat(point.run.about.created).timestamp() / 86400 for point in points]
    if len(set(days)) < len(days):
        days = [float(index) for index in range(len(days))]
    line = Line.of("", days, [point.row.rate for point in points], "lead", 2.0)
    ticks = {days[at]: _day(points[at]) for at in (0, -1)}
    changes = "; ".join(
        f"{change.ratio - 1:+.0%} on {_day(points[change.at])}" for change in series.changes if change.at < len(points)
    )
    first, last = (number(points[at].row.speed) for at in (0, -1))
    return Lines(changes or f"{first} → {last}", series.case.label, [line], "begun", "samples/s", ticks=ticks)
