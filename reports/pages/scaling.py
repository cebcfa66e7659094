"""Speed over devices: who gains from more of them, against the ideal and what a model predicts; and what if."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from markupsafe import Markup

from stagebench.reports.charts.html import (
    Body,
    Cells,
    Content,
    folded,
    joined,
    listing,
    mark,
    measured,
    note,
    small,
    table,
    tag,
)
from stagebench.reports.charts.html import Entry as TableLine
from stagebench.reports.charts.lines import Line, Lines
from stagebench.reports.charts.rows import Rows, interval, linear, top
from stagebench.reports.pages.run import Chart, Report, Section, of_cases, tokens
from stagebench.suite.analysis.comparability import SHARED_GPUS
from stagebench.suite.analysis.panels import SHOWN, Name, Panel, by_group, by_network, devices, for_charts, labels
from stagebench.suite.analysis.panels import title as named
from stagebench.suite.analysis.rows import Row, Scaling
from stagebench.suite.analysis.scaling import trainings
from stagebench.suite.analysis.stats import Interval
from stagebench.suite.analysis.wording import bracketed, listed, number, percent, share
from stagebench.suite.contracts.case import Case, Placement
from stagebench.suite.predict.prediction import Answer, Asked, predict
from stagebench.suite.predict.scenario import SCHEDULES

Place = tuple[int, int]  # nodes, devices on each
# A strategy, its one-device baseline first, within a node or over nodes, the same batch per device or in all.
Series = tuple[Name, Sequence[Row]]
# Steps of each control: times the bandwidth, microseconds more latency, times the speed. More make reports slow.
STEPS = {"bandwidth": (0.1, 1.0, 10.0), "latency": (0.0, 30.0, 300.0), "speed": (0.5, 1.0, 2.0)}
USUAL = {"bandwidth": 1, "latency": 0, "speed": 1}
EXCHANGES = ("ring", "tree", "halving")  # algorithms that are tried besides a training's own
SIZES = (1, 4, 16, 64, 256)
TRAININGS = 2  # that have a grid


def scaling(report: Report) -> Section | None:
    """Return the speed of every case with a baseline on fewer devices."""
    scaled = [row for row in report.rows if row.scaling]
    at_places = at_a_glance(report, by_network(report.rows))
    if not scaled:
        return Section("scaling", "No case has a baseline on one device", at_places) if at_places else None
    shown = scaled[:SHOWN]
    body: Cells = [report.cut(scaled, "cases with a baseline"), wrong_model(report)]
    body.append(report.drawn("scaling", _charts(report, shown)))
    if any(answer.sizes for answer in report.predicted[0]):
        model = "Dashed: predicted by a model that was fitted to the fewest devices; "
        body.append(note(model, tag("a", "Predicted", href=report.to("predicted")), " has the errors."))
    body += [_table(report, shown), at_places]
    alone = (row for row in report.fast if row.several_devices and not row.scaling)
    if lonely := [row.case.label for row in alone if SHARED_GPUS not in row.marks]:
        more = f" and {len(lonely) - SHOWN} more" if len(lonely) > SHOWN else ""
        body.append(note(f"Without a baseline in this run: {'; '.join(lonely[:SHOWN])}{more}."))
    title, also = headline(scaled)
    answers = [f"{panel.title}: {headline(panel.rows)[0]}." for panel in by_network(scaled)]
    return Section("scaling", title, body, also, answers)


def speed_up(row: Row) -> Interval:
    """Return how many times as fast as its baseline a scaled row is."""
    assert row.scaling
    return row.scaling.efficiency.scaled(row.case.placement.device_count)


def _gains(row: Row) -> bool:
    return row.scaling is not None and row.scaling.efficiency.processes > 1 and speed_up(row).low > 1.0


def headline(scaled: Sequence[Row]) -> tuple[str, str]:
    """Return who gains beyond doubt from more devices, of the rows on the most devices."""
    most = max(map(_devices, scaled))
    every = [row for row in scaled if _devices(row) == most]
    rows = [row for row in every if row.sound] or every
    where = "a second device" if most == 2 else f"{most} devices"
    best = max(rows, key=lambda row: speed_up(row).value)
    name, times = labels([best.case])[0].words, number(speed_up(best).value)
    far = f"{name} scales best: {times} times one device, ideally {most}; {best.case.workload}."
    if all(row.scaling and row.scaling.efficiency.processes < 2 for row in rows):
        return f"No verdict yet on {where}", far
    if len(rows) == 1:
        return f"{name} is {times} times as fast on {devices(most)}", ""
    sure = [row for row in rows if _gains(row)]
    if not sure:
        return f"No case gains from {where}", far
    who, everyone = (list(dict.fromkeys(named(row.case.adapter) for row in of)) for of in (sure, rows))
    gain = f"{of_cases(len(sure), len(rows))} gain"
    if len(sure) < len(rows) and len(who) <= 3 and len(who) < len(everyone):
        gain = f"Only {listed(who)} gain{'s' * (len(who) == 1)}"
    return f"{gain} from {where}", far


def _devices(row: Row) -> int:
    return row.case.placement.device_count


def series_of(rows: Sequence[Row]) -> list[Series]:
    """Return the series of sound rows whose baseline is among them; of networks in parts, one a training."""
    known = {row.id: row for row in rows}
    in_parts = {row.id: number_ for number_, group in enumerate(trainings(rows)) for row in group}
    found: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        if row.scaling and row.scaling.baseline_id in known:
            baseline = known[row.scaling.baseline_id]
            at = (baseline.id, row.case.strategy, of_a_node(row.case), row.case.scaling, in_parts.get(row.id))
            found.setdefault(at, [baseline]).append(row)
    groups = [sorted(group, key=_devices) for group in found.values()]
    called = labels([_placeless(group[-1].case) for group in groups])
    return [(on_nodes(name, of_a_node(group[-1].case)), group) for name, group in zip(called, groups, strict=True)]


def of_a_node(case: Case) -> int:
    """Return the devices on each of several nodes; 0 on one node."""
    place = case.placement
    return place.devices_per_node if place.nodes > 1 else 0


def on_nodes(name: Name, count: int) -> Name:
    """Return the name of a series with the devices of each of its nodes; 0: one node."""
    return name._replace(detail=" · ".join(filter(None, [name.detail, f"{devices(count)} per node" if count else ""])))


def _placeless(case: Case) -> Case:
    batch = case.batch if case.scaling == "weak" else case.global_batch
    return case.on(batch=batch, placement=Placement(device=case.placement.device, threads=case.placement.threads))


def _charts(report: Report, scaled: Sequence[Row]) -> list[Chart]:
    """Return rows of speed-up of each place where series have two; small multiples where they have more."""
    ids = {id_ for row in scaled if row.scaling for id_ in (row.id, row.scaling.baseline_id)}
    panels = for_charts(by_network(row for row in report.rows if row.id in ids))
    found: list[Chart] = []
    for panel in panels:
        every = series_of(panel.rows)
        if any(len(rows) > 2 for _, rows in every):
            found += [_multiple(panel, one, every, report.predicted[0]) for one in every]
        else:
            found += [speed_ups(report, group) for group in by_group(row for row in panel.rows if row.scaling)]
    return found


def speed_ups(report: Report, panel: Panel) -> Rows:
    """Return the speed-ups of rows on as many devices, the largest first."""
    pairs = sorted(panel.pairs, key=lambda pair: -speed_up(pair[1]).value)
    most = _devices(pairs[0][1])
    scale = linear(max(most, top(speed_up(row) for _, row in pairs)), "×", strong=(1.0, float(most)))
    entries = []
    for name, row in pairs:
        up = speed_up(row)
        words, kind = f"{number(up.value)} times one device{bracketed(up)}", "lead" if _gains(row) else ""
        entries.append(report.entry(name, row, interval(scale, up), f"{number(up.value)}×", words, kind=kind))
    axis, setting = "speed-up over one device", f"{panel.title} ÷ 1 device, ideal {most}×"
    return Rows(headline(panel.rows)[0], setting, scale, entries, "speed-up", axis, warning=panel.warning)


def card(report: Report) -> Rows | None:
    """Return the speed-ups of the comparison with the most of them."""
    panels = for_charts(by_group(row for row in report.rows if row.scaling))
    panels = [panel for panel in panels if len(panel.rows) > 1 or len(panels) == 1]
    most = max(panels, key=lambda panel: (len(panel.rows), _devices(panel.rows[0])), default=None)
    return replace(speed_ups(report, most), more=("Scaling", report.to("scaling"))) if most else None


def _multiple(panel: Panel, one: Series, every: Sequence[Series], predicted: Sequence[Answer]) -> Lines:
    """Return a series in front of the others, with its ideal and its prediction."""
    (name, rows), counts = one, list(map(_devices, one[1]))
    base, last = rows[0].speed, rows[-1]
    ups = f"{number(last.speed / base)}× of {counts[-1] // counts[0]}"
    lines = [Line("ideal", counts, [base * count / counts[0] for count in counts], kind="ideal")]
    lines += [Line("", list(map(_devices, of)), [row.speed for row in of]) for _, of in every if of is not rows]
    lines.append(Line.of(ups, counts, [row.rate for row in rows], "lead", 2.0))
    ids = {row.id for row in rows if row.several_devices}
    for answer in predicted:
        asked = answer.asked
        if not ids.isdisjoint(asked.cases) and asked.fitted_to is not None and answer.sizes:
            sizes = [asked.fitted_to, *(found.ranks for found in answer.predictions)]
            rates = [asked.measured[asked.fitted_to].value, *(found.rate for found in answer.predictions)]
            low, high = ([None, *(found.rates[end] for found in answer.predictions)] for end in (0, 1))
            bad = any(answer.wrong(found) for found in answer.predictions)
            said, kind = ("predicted: wrong", "predicted bad") if bad else ("predicted", "predicted")
            lines.append(Line(said, sizes, rates, low, high, kind, dots=True))
    exposed = last.budget.exposed_share if last.budget else None
    title = f"{name.words}: {ups}" + (f", exchange {percent(exposed)}" if exposed is not None else "")
    setting = " · ".join(filter(None, [panel.title, name.words, f"batch {last.case.batch}"]))
    note_ = "Super-linear: check the baseline." if last.scaling and last.scaling.super_linear else ""
    return Lines(title, setting, lines, "devices", "samples/s", "x", ticks=counts, warning=panel.warning, note=note_)


def wrong_model(report: Report) -> Markup | None:
    """Return the warning that predictions are far from what was measured; None where they are not."""
    verdicts = [answer.wrong(one) for answer in report.predicted[0] for one in answer.predictions]
    wrong = verdicts.count(True)
    words = f"{wrong} of {len(verdicts)} predictions {'is' if wrong == 1 else 'are'} more than 10 % away from what was "
    return tag("p.bad", tag("strong", "The model is wrong here: "), f"{words}measured.") if wrong else None


def _table(report: Report, scaled: Sequence[Row]) -> Markup:
    nodes = any(row.over_nodes for row in scaled)
    heads = "Case | place | samples/s" + " | tokens/s" * report.texts
    heads += " | speed-up! | efficiency! | exchange, of the iteration" + " | over one node" * nodes
    bodies = []
    for panel in by_group(scaled):
        lines = []
        for name, row in panel.pairs:
            assert row.scaling
            base = tag("small", f"one device: {number(row.scaling.baseline_rate)}", title=row.scaling.baseline_label)
            cells: Cells = [[report.head(name, row), base], place_words(*place_of(row.case)), number(row.speed)]
            cells += [*tokens(report, row), number(speed_up(row).value), _reached(row.scaling)]
            cells += [share(row.budget.exposed_share if row.budget else None), _reached(row.over_nodes)][: 1 + nodes]
            lines.append(TableLine(cells, of=row.case.adapter))
        bodies.append(Body(lines, panel.title))
    return table("Efficiency", heads, *bodies)


def _reached(found: Scaling | None) -> Content:
    if found is None:
        return ""
    super_linear = tag("span.mark.bad", "super-linear: check the baseline") if found.super_linear else None
    return [measured(found.efficiency, share), super_linear]


def place_of(case: Case) -> Place:
    """Return where a case ran; binding and launcher aside."""
    return case.placement.nodes, case.placement.devices_per_node


def place_words(nodes: int, count: int) -> str:
    return f"{nodes} nodes of {count}" if nodes > 1 else devices(count)


def at_a_glance(report: Report, panels: Iterable[Panel], least: int = 2) -> Markup | None:
    """Return a line an adapter and strategy, a column a place; None of fewer places than `least`."""
    panels = list(panels)
    places = sorted({place_of(row.case) for panel in panels for row in panel.rows})
    if len(places) < least:
        return None
    bodies = []
    for panel in panels:
        lines = [[report.head(name), *(_speed(cells.get(place)) for place in places)] for name, cells in _lines(panel)]
        bodies.append(Body(lines, panel.title, panel.common))
    heads, title = ["samples/s", *(f"{place_words(*place)}!" for place in places)], "All speeds at a glance"
    words = note("A star: not compared with other frameworks. Small numbers: efficiency.")
    return joined([tag("h3", title), table(title, heads, *bodies), words])


def _speed(row: Row | None) -> Content:
    if row is None:
        return ""
    star = tag("span.bad", " *", title=f"not compared: {', '.join(row.marks)}") if not row.sound else None
    return [number(row.speed), star, small(share(row.scaling.efficiency.value)) if row.scaling else None]


def _lines(panel: Panel) -> list[tuple[Name, dict[Place, Row]]]:
    """Return a strategy's rows by place; strategies of several devices begin with the row that they are scaled from."""
    known = {row.id: row for row in panel.rows}
    found: dict[str, dict[Place, Row]] = {}
    for row in panel.rows:
        if row.several_devices:
            cells = found.setdefault(anywhere(row.case).id, {})
            if row.scaling and row.scaling.baseline_id in known:
                cells.setdefault((1, 1), known[row.scaling.baseline_id])
            cells[place_of(row.case)] = max(cells.get(place_of(row.case), row), row, key=lambda one: one.speed)
    there = {row.id for cells in found.values() for row in cells.values()}
    for row in panel.rows:
        if not row.several_devices and row.id not in there:
            found.setdefault(anywhere(row.case).id, {})[1, 1] = row
    called = labels([anywhere(max(cells.items())[1].case) for cells in found.values()])
    return list(zip(called, found.values(), strict=True))


def anywhere(case: Case) -> Case:
    """Return the case without its place, rate and passes: what a strategy on one device and on many have in common."""
    return _placeless(case).on(lr=0.0, passes=())


def predicted(report: Report) -> Section | None:
    """Return what a model that was fitted to the fewest devices predicts of more, against what was measured."""
    answers, refused = report.predicted
    if not answers and not refused:
        return None
    tested = [answer for answer in answers if answer.sizes]
    body: Cells = []
    bad = mark("wrong", "more than 10 % away from what was measured", bad=True)
    bodies = []
    for answer in tested:
        asked, lines = answer.asked, []
        for one in answer.predictions:
            ends = f"{number(one.rates[0])} … {number(one.rates[1])}"
            error = [share(answer.error(one)), bad if answer.wrong(one) else None]
            lines.append([devices(one.ranks), number(asked.measured[one.ranks].value), number(one.rate), ends, error])
        fitted = f"fitted to {asked.fitted_to} devices; {'; '.join(asked.sources[1:])}"
        bodies.append(Body(lines, asked.label, fitted))
    if tested:
        heads = "Devices | measured, samples/s | predicted! | 95 % interval | error"
        body += [wrong_model(report), table("Measured beside predicted", heads, *bodies)]
    elif answers:
        words = "This run has measured nothing on more devices than the model was fitted to"
        body.append(tag("p", f"{words}: nothing says how good its predictions are."))
    if refused:
        body.append(folded("Not predicted", listing(refused)) if answers else listing(refused))
    title, also = _how_far_off(tested, bool(answers))
    return Section("predicted", title, body, also, [f"{title}."] if tested else [])


def _how_far_off(tested: Sequence[Answer], fitted: bool) -> tuple[str, str]:
    """Return how far the predictions were off."""
    errors = (answer.error(one) for answer in tested for one in answer.predictions)
    found = sorted(abs(error) for error in errors if error is not None)
    if not found:
        return ("Nothing tests the model’s predictions" if fitted else "Nothing of this run can be predicted"), ""
    if len(found) == 1:
        return f"The prediction is off by {share(found[0])}", ""
    half = f"Half of them by {share(found[(len(found) - 1) // 2])} or less."
    return f"{len(found)} predictions are off by {share(found[-1])} at most", half


def what_if(report: Report) -> Section | None:
    """Return controls that step through a grid of predictions; none on a page that is a file of its own."""
    found = [answer.asked for answer in report.predicted[0] if answer.asked.scenario.stages == 1][:TRAININGS]
    if not found or report.single:
        return None
    algorithms = list(dict.fromkeys([*EXCHANGES, *(asked.scenario.network.algorithm for asked in found)]))
    grids = [grid(asked, algorithms) for asked in found]
    content = json.dumps({"trainings": grids}, separators=(",", ":")).replace("<", "\\u003c")
    fields: dict[str, Content] = {}
    choices = {"training": [one["label"] for one in grids], "schedule": list(SCHEDULES), "all-reduce": algorithms}
    for name, names in choices.items():
        options = [tag("option", choice, value=index) for index, choice in enumerate(names)]
        fields[name] = tag("select", options, name=name)
    for name, steps in STEPS.items():
        ends = {"min": 0, "max": len(steps) - 1, "step": 1, "value": USUAL[name], "data_steps": json.dumps(steps)}
        fields[name] = [tag("input", type="range", name=name, **ends), tag("output")]
    words = {"speed": "device speed"}
    controls = [tag("label", tag("span", words.get(name, name)), field) for name, field in fields.items()]
    figure = tag("figure.panel", tag("div.area", style="--h:260px", aria_hidden="true"))
    data = tag("script", Markup(content), type="application/json", id="grid")
    body = [tag("form.controls", controls, id="controls"), tag("p", role="status", id="answer"), figure, data]
    axes = "Both axes are logarithmic; thin: ideal; dashed: as fitted; grey dots: measured."
    body.append(note(f"Computed by stagebench predict. {axes}"))
    return Section("what_if", "What if the link, the exchange or the device were others?", body)


def grid(asked: Asked, algorithms: Sequence[str]) -> dict[str, Any]:
    """Return samples/s by schedule, algorithm, STEPS and devices, the last one changing fastest."""
    sizes = [size for size in SIZES if size <= (asked.together or size)]
    own, between, rates = asked.scenario.network, asked.scenario.network.between, []
    alone: dict[float, float] = {}  # one device exchanges nothing: its rate depends on its speed alone
    kinds = list(product(SCHEDULES, algorithms))
    for (schedule, algorithm), (wider, more, faster) in product(kinds, product(*STEPS.values())):
        link = replace(between, alpha=between.alpha + 1e-6 * more, beta=between.beta / wider)
        network = replace(own, between=link, algorithm=algorithm)
        for size in sizes:
            scenario = asked.on(size, schedule).slower(compute=1 / faster)
            scenario = scenario.but(compute_error=0.0, link_error=0.0, model_error=0.0, network=network)
            known = alone.get(faster) if size == 1 else None
            rates.append(known or float(f"{predict(scenario, size).rate:.4g}"))
            if size == 1:
                alone[faster] = rates[-1]
    return {
        "label": asked.label,
        "sizes": sizes,
        "usual": {
            "schedule": list(SCHEDULES).index(asked.scenario.schedule),
            "all-reduce": list(algorithms).index(own.algorithm),
        },
        "units": {"bandwidth": 1e-6 / between.beta if between.beta else None, "latency": 1e6 * between.alpha},
        "measured": [[devices, rate.value] for devices, rate in asked.measured.items()],
        "rates": rates,
    }
