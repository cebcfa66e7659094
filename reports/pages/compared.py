"""Runs next to each other: the latest two that share a case, as `compare` has it, every case as `history` has it."""

from collections.abc import Sequence
from datetime import datetime

from reports.charts.html import Body, Content, folded, note, table, tag
from reports.charts.lines import Line, Lines
from reports.pages.run import Section
from suite.analysis.compare_runs import Compared, Comparison, compare, paired
from suite.analysis.panels import Name, labels
from suite.analysis.runs import MeasuredRun, Series, series_of
from suite.analysis.wording import number, share

THRESHOLD = 0.03  # as the commands have it: smaller changes do not matter
DRAWN = 60  # series; the table has all
KINDS = {"faster": "good", "slower": "bad"}


def compared(runs: Sequence[MeasuredRun]) -> list[Section]:
    """Return the comparison and the history; empty where no two runs share a case with a speed."""
    different = {run.key: run for run in runs if run.measured}.values()
    ordered = sorted(different, key=lambda run: run.about.created)
    series = sorted(
        (each for each in series_of(ordered, THRESHOLD) if len(each.points) > 1), key=lambda each: not each.changes
    )
    found = _latest(ordered)
    return [
        section for section in (_comparison(found) if found else None, _history(series) if series else None) if section
    ]


def _latest(ordered: Sequence[MeasuredRun]) -> Comparison | None:
    """Compare the latest run with the last one before it that shares a case, of the same plan if there is one."""
    if not ordered:
        return None
    *earlier, after = ordered
    newest = sorted(range(len(earlier)), key=lambda at: (earlier[at].about.plan == after.about.plan, at), reverse=True)
    for at in newest:
        if any(one and other for one, other in paired(earlier[at], after)):
            return compare(earlier[at], after, THRESHOLD, earlier[:at])
    return None


def _comparison(found: Comparison) -> Section:
    both = [one for one in found.cases if one.before and one.after]
    faster, slower = (sum(one.verdict == kind for one in both) for kind in ("faster", "slower"))
    title = f"{found.after.name} is {found.verdict}: {faster} faster, {slower} slower of {len(both)}"
    after, before = (tag("a", run.name, href=f"{run.name}/index.html") for run in (found.after, found.before))
    said = f". 95 % intervals over processes; changes below {100 * found.threshold:g} % do not count ("
    heads = "Case | verdict< | before, samples/s | after | change! | interval | remarks<"
    lines = [_line(one) for one in sorted(both, key=lambda one: one.verdict not in KINDS)]
    body: list[Content] = [tag("p", after, " against ", before, said, tag("code", "stagebench compare"), ").")]
    body.append(table("The latest two runs", heads, Body(lines)))
    for run in (found.before, found.after):
        cases = [one for one in found.cases if (one.after if run is found.before else one.before) is None]
        if cases:
            lone = [tag("li", f"{one.case.label}: {'; '.join(one.bars)}") for one in cases]
            words = f"Measured only in {run.name}: {len(cases)} case{'' if len(cases) == 1 else 's'}"
            body.append(folded(words, tag("ul", lone)))
    return Section("comparison", title, body)


def _line(one: Compared) -> list[Content]:
    assert one.before
    assert one.after
    differs = f"not the same: {'; '.join(one.differs)}" if one.differs else ""
    remarks = " · ".join(filter(None, ["; ".join(one.bars), differs]))
    change, ends = "", ""
    if one.found:
        low, change, high = (
            share(end - 1) for end in (one.found.ratio.low, one.found.ratio.value, one.found.ratio.high)
        )
        ends = f"{low} … {high}"
    verdict = tag("span", one.verdict, class_=KINDS.get(one.verdict))
    speeds = number(one.before.speed or None), number(one.after.speed or None)
    return [one.case.label, verdict, *speeds, change, ends, remarks]


def _history(series: Sequence[Series]) -> Section:
    changed = sum(bool(each.changes) for each in series)
    called = labels([each.case for each in series])
    charts = [_chart(name, each).html() for name, each in list(zip(called, series, strict=True))[:DRAWN]]
    lines = []
    for each in series:
        what = ". ".join(
            f"{change.ratio - 1:+.1%} from {each.points[change.at].run.about.created[:10]} "
            f"on; changed there: {'; '.join(change.differs) or 'nothing that the runs keep'}"
            for change in each.changes
        )
        first, last = (number(each.points[at].row.speed) for at in (0, -1))
        lines.append([each.case.label, str(len(each.points)), first, last, what])
    cut = f"The first {DRAWN} of {len(series)} cases are drawn, those that changed before the others; "
    body = [note(f"{cut}the table has them all.") if len(series) > DRAWN else None]
    body.append(tag("div", charts, class_="panels three"))
    body.append(table("History", "Case | runs | first, samples/s | latest | changes<", Body(lines)))
    told = "). A change can be told from noise once there are five runs."
    body.append(note("The oldest run first (", tag("code", "stagebench history"), told))
    title = f"{changed} of {len(series)} cases changed their speed"
    return Section("history", title if changed else "No case changed its speed detectably", body)


def _chart(name: Name, series: Series) -> Lines:
    points = [point for point in series.points if point.row.rate]
    days = [datetime.fromisoformat(point.run.about.created).timestamp() / 86400 for point in points]
    if len(set(days)) < len(days):
        days = [float(index) for index in range(len(days))]
    rates = [point.row.rate for point in points if point.row.rate]
    highs = [min(rate.high, 2 * rate.value) for rate in rates]
    line = Line("", days, [rate.value for rate in rates], [rate.low for rate in rates], highs, "lead", dots=True)
    ticks = {days[0]: points[0].run.about.created[:10], days[-1]: points[-1].run.about.created[:10]}
    changes = "; ".join(
        f"{change.ratio - 1:+.0%} on {points[change.at].run.about.created[:10]}"
        for change in series.changes
        if change.at < len(points)
    )
    return Lines(changes or "no detectable change", series.case.label, [line], "", "samples/s", ticks=ticks)
