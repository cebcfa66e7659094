"""The page's first screen: who leads on every network, in a sentence each and in one chart."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from html import escape
from itertools import islice

from reports.figure import LINE, Figure, axis, colour, layout, whiskers, wrapped
from reports.names import differences, names
from reports.text import bracketed, listed, milliseconds, number, scientific
from suite.analysis.budget import STAGES, Budget, apart
from suite.analysis.leaders import Against
from suite.analysis.rows import Row
from suite.analysis.stats import Interval
from suite.text import cut, grouped

LOST = {"io": "waiting for input", "communication": "waiting for communication", "other": "what no stage explains"}
FROM_NATIVE = ("io", "h2d", "communication")  # stages that are differences of native steps, no part of the staged one
WIDEST = 125  # per cent: intervals may reach beyond the leader, and beyond the chart
NAMED = 8  # members of a group that its sentence and the chart have; the table of all cases has the others
MEMBER, TITLE = 13, 26  # pixels: a member of a group, a group's heading
BESIDE, LETTER = 7, 6  # pixels between an interval and its name, and of a letter
PHONE = 300  # pixels: the narrowest chart
LONGEST = PHONE // LETTER  # letters of a name


@dataclass(frozen=True)
class Group:
    """Rows that are compared with each other, the fastest first."""

    title: str
    rows: tuple[Row, ...]
    names: tuple[str, ...]

    @property
    def against(self) -> list[Against]:
        """Each row's comparison with the leaders."""
        return [row.against for row in self.rows if row.against]

    @property
    def decided(self) -> bool:
        """Whether somebody leads; nobody does before two processes."""
        return any(each.leads for each in self.against)


def groups_of(rows: Iterable[Row]) -> list[Group]:
    """Every group of the run in the plan's order; a row alone in its group is none."""
    found = grouped((row for row in rows if row.against), lambda row: row.group)
    members = [sorted(group, key=lambda row: row.speed, reverse=True) for group in found.values()]
    firsts = [group[0].case for group in members]
    return [
        Group(
            " · ".join(dict.fromkeys([case.workload, *differing])),
            tuple(group),
            tuple(names([row.case for row in group])),
        )
        for case, differing, group in zip(firsts, differences(firsts), members, strict=True)
    ]


def sentence(group: Group) -> str:
    """Who leads, how far the others are behind, and in which stage the next one loses most."""
    led = [index for index, each in enumerate(group.against) if each.leads]
    first, *rest = led or [0]
    rates = listed([number(group.rows[index].speed) for index in (first, *rest)])
    called = listed([group.names[index] for index in (first, *rest)])
    if not led:
        words = f"{called} was the fastest with {rates} samples/s, without a verdict"
    elif rest:
        words = f"{called} lead, no detectable difference between them ({rates} samples/s)"
    else:
        words = f"{called} leads with {rates} samples/s"
    others = [index for index in range(len(group.rows)) if index not in (first, *rest)]
    behind = [_behind(group, index) + (_why(group, index) if index == others[0] else "") for index in others[:NAMED]]
    more = [f"{len(others) - NAMED} more are behind them"] if len(others) > NAMED else []
    return f"{group.title}: " + "; ".join([words, *behind, *more]) + "."


def _behind(group: Group, index: int) -> str:
    ratio = group.against[index].ratio
    if not ratio.tells:
        return f"how far {group.names[index]} is behind is not determined"
    return f"{group.names[index]} reaches {_percent(ratio.value)} ({ratio.low * 100:.0f} … {_percent(ratio.high)})"


def _percent(share: float) -> str:
    return f"{share * 100:.0f}\u00a0%"  # no line ends between the two


def _why(group: Group, index: int) -> str:
    """The stage in which a row loses most against the one it is compared with; nothing where no budget can tell."""
    ours = group.rows[index]
    fastest = next((row for row in group.rows if row.id == group.against[index].fastest), ours)
    slower, faster = ours.budget, fastest.budget
    if slower is None or faster is None or group.against[index].verdict != "slower":
        return ""
    unclear = [group.names[group.rows.index(row)] for row in (ours, fastest) if "large residual" in row.marks]
    if unclear:  # the other's stages are no measure of what it does at once
        return f"{_longest(ours)} (stages cannot be compared: large residual of {listed(unclear)})"
    stage = _lost(ours, fastest)
    if stage is None:
        return f"{_longest(ours)} (where it loses most is not determined)"
    more = (getattr(slower, stage) or 0.0) - (getattr(faster, stage) or 0.0)
    return f", mostly because of {LOST.get(stage, stage)}: {milliseconds(more)} ms more in each iteration"


def _longest(row: Row) -> str:
    """The stage that takes a row longest, and of how much; nothing where that is not the same one in each process."""
    budgets = [process.budget for process in row.measured if process.budget]
    found = {max((name for name in STAGES if name != "other"), key=partial(_seconds, one)) for one in budgets}
    if row.budget is None or len(found) != 1:
        return ""
    (stage,) = found
    whole = f"{milliseconds(row.budget.native)} ms"
    if "large residual" in row.marks and stage not in FROM_NATIVE:
        whole = f"the {milliseconds(row.budget.staged)} ms that its stages take one by one"
    return f" and spends most in {LOST.get(stage, stage)}: {milliseconds(_seconds(row.budget, stage))} of {whole}"


def _lost(slower: Row, faster: Row) -> str | None:
    """The stage that takes more of the one than of the other, and by more than any other stage does.

    None where no stage does so beyond the scatter of processes.
    """
    both = [[process.budget for process in row.measured if process.budget] for row in (slower, faster)]

    def more(stage: str, than: str | None) -> bool:
        ours, theirs = ([_seconds(one, stage) - _seconds(one, than) for one in side] for side in both)
        found = apart(ours, theirs)
        return found is not None and found.low > 0.0

    return next((one for one in STAGES if all(more(one, other) for other in (None, *STAGES) if other != one)), None)


def _seconds(budget: Budget, stage: str | None) -> float:
    return (getattr(budget, stage) or 0.0) if stage else 0.0


def proven(groups: Sequence[Group]) -> str:
    """What the proofs of all rows that are compared say together; nothing where there is none."""
    rows = [row for group in groups for row in group.rows]
    found = [row.proof.worst for row in rows if row.proof and row.proof.worst]
    if not found:
        return ""
    alone = sum(bool(row.proof and row.proof.scope) for row in rows)
    worst = max(found, key=lambda one: one.error / one.tolerance if one.tolerance else one.error)
    return (
        f"Each of the {len(rows)} rows that are compared is proven to train its network as the oracle does. The error "
        f"nearest to its bound is {scientific(worst.error)}, where {scientific(worst.tolerance)} is allowed."
    ) + (f" The proofs of {alone} of them leave something open, as they say." if alone else "")


def chart(groups: Sequence[Group], adapters: Sequence[str]) -> Figure | None:
    """Each group's fastest rows against its leader, in per cent, coloured by adapter."""
    if not groups:
        return None
    traces: dict[str, Figure] = {}
    notes, y = [], 0.0
    for group in groups:
        title = wrapped(group.title)
        notes.append(
            {"xref": "paper", "x": 0, "xanchor": "left", "yref": "y", "y": y, "yanchor": "top", "showarrow": False}
            | {"text": f"<b>{title}</b>", "align": "left", "borderpad": 0}
        )
        y -= TITLE + LINE * title.count("<br>")
        for row, name, against in islice(zip(group.rows, group.names, group.against, strict=True), NAMED):
            percent, called = against.ratio.scaled(100), cut(_short(row, name, group), LONGEST)
            beside = _beside(called, percent)
            notes.append(_label(called, beside or {"x": 0, "xanchor": "left"}, y))
            y -= 0 if beside else MEMBER
            trace = traces.setdefault(row.case.adapter, _trace(adapters.index(row.case.adapter)))
            trace["x"].append(percent.value)
            trace["y"].append(y)
            for end, values in whiskers([percent]).items():
                if end in ("array", "arrayminus"):
                    trace["error_x"][end] += values
            trace["customdata"].append(
                f"{escape(name)}<br>{number(row.speed)} samples/s{bracketed(row.rate)}<br>"
                f"{number(percent.value)} % of the leader{bracketed(percent)}<br>{_proof(row)}"
            )
            y -= MEMBER
        y -= MEMBER
    figure = layout(round(-y) + 52)
    figure["xaxis"] |= axis("% of the leader's samples/s; 95 % intervals") | {"range": [0, WIDEST]}
    figure["yaxis"] = {"visible": False, "range": [y, 4], "fixedrange": True}
    figure["annotations"] = notes
    figure["shapes"] = [
        {"type": "line", "x0": 100, "x1": 100, "yref": "paper", "y0": 0, "y1": 1, "layer": "below"}
        | {"line": {"color": "--muted", "width": 1, "dash": "dot"}}
    ]
    return {"data": list(traces.values()), "layout": figure}


def _short(row: Row, name: str, group: Group) -> str:
    """As little of its name as tells a row from the others of its group."""
    case = row.case
    others = [other.case for other in group.rows if other is not row]
    if case.adapter not in {other.adapter for other in others}:
        return case.adapter
    if (case.adapter, case.strategy) not in {(other.adapter, other.strategy) for other in others}:
        return f"{case.adapter}/{case.strategy}"
    return name


def _beside(name: str, percent: Interval) -> Figure | None:
    """Where a name stands beside its interval; None where a phone has room for it on neither side."""
    low, high = (percent.low, percent.high) if percent.scatters else (percent.value, percent.value)
    before, after = low, WIDEST - high
    if max(before, after) < (BESIDE + LETTER * len(name)) * WIDEST / PHONE:
        return None
    if before > after:
        return {"x": low, "xanchor": "right", "xshift": -BESIDE}
    return {"x": high, "xanchor": "left", "xshift": BESIDE}


def _label(name: str, place: Figure, y: float) -> Figure:
    note = {"xref": "x", "yref": "y", "y": y, "yanchor": "middle", "showarrow": False, "borderpad": 0}
    return {**note, **place, "text": escape(name), "font": {"size": 10}}


def _proof(row: Row) -> str:
    worst = row.proof.worst if row.proof else None
    return (
        f"proof: off by {scientific(worst.error)}, {scientific(worst.tolerance)} allowed" if worst else "proof passed"
    )


def _trace(index: int) -> Figure:
    return {
        "type": "scatter",
        "mode": "markers",
        "x": [],
        "y": [],
        "marker": {"color": colour(index), "size": 9},
        "error_x": {**whiskers([]), "color": colour(index), "width": 0},
        "hovertemplate": "%{customdata}<extra></extra>",
        "customdata": [],
    }
