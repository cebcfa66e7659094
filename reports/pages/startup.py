"""The time to the first step: what a framework costs before it pays."""

from reports.charts.html import table
from reports.charts.rows import Rows, linear, stack
from reports.pages.run import Report, Section
from suite.analysis.panels import SHOWN, Panel, by_group, for_charts
from suite.analysis.wording import number

KEY = {"io": "loading", "h2d": "building", "forward": "compiling", "update": "a step"}  # Startup, by shade


def startup(report: Report) -> Section | None:
    """Return the seconds from a process's start to the end of its first step; None where no record has them."""
    rows = [row for row in report.fast if row.startup]
    if not rows:
        return None
    panels = by_group(rows[:SHOWN])
    heads = "Case | loading, s | building, s | compiling, s | a step, s | to the first step, s!"
    lines = report.bodies(panels, lambda row: [*map(number, row.startup or ()), number(sum(row.startup or ()))])
    charts = [_chart(report, panel) for panel in for_charts(panels)]
    body = [report.cut(rows, "cases"), report.drawn("startup", charts), table("Time to the first step", heads, *lines)]
    slowest = max(rows, key=lambda row: sum(row.startup or ()))
    title = f"The first step ends after {number(sum(slowest.startup or ()))} s at most"
    also = f"{slowest.case.label} is that slow."
    return Section("startup", title, body, also, [f"{title}."], _DEFINITIONS, "Time to the first step")


_DEFINITIONS = (
    "Seconds of one process, each part on its slowest rank, the median over processes. Loading: the framework is "
    "imported, the device set, ranks meet. Building: the network and its optimiser; tuned cases try candidates here. "
    "Compiling: what the first native step takes beyond a measured one, such as XLA, torch.compile or tf.function. "
    "Later steps of the warm-up may compile, too, and are not counted. A step: a measured one."
)


def _chart(report: Report, panel: Panel) -> Rows:
    whole = {row.id: sum(row.startup or ()) for row in panel.rows}
    scale, entries = linear(max(whole.values()), "s"), []
    for name, row in panel.pairs:
        assert row.startup
        words = ", ".join(
            f"{word} {number(seconds)} s" for word, seconds in zip(KEY.values(), row.startup, strict=True)
        )
        track = stack(scale, dict(zip(KEY, row.startup, strict=True)))
        entries.append(report.entry(name, row, track, number(whole[row.id]), words))
    title = f"{number(min(whole.values()))} to {number(max(whole.values()))} s to the first step"
    return Rows(title, panel.title, scale, entries, "s", "s to the first step", KEY, warning=panel.warning)
