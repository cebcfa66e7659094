"""Measured next to predicted, and a grid of what the model says of other links, schedules and devices."""

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from markupsafe import Markup

from stagebench.reports.charts.html import Body, Cells, Content, folded, listing, mark, note, table, tag
from stagebench.reports.pages.run import Report, Section
from stagebench.reports.pages.scaling import wrong_model
from stagebench.suite.analysis.panels import devices
from stagebench.suite.analysis.wording import number, share
from stagebench.suite.predict.prediction import Answer, Asked, predict
from stagebench.suite.predict.scenario import MODEL_ERROR, SCHEDULES

# Steps of each control: times the bandwidth, microseconds more latency, times the speed. More make reports slow.
STEPS = {"bandwidth": (0.1, 1.0, 10.0), "latency": (0.0, 30.0, 300.0), "speed": (0.5, 1.0, 2.0)}
USUAL = {"bandwidth": 1, "latency": 0, "speed": 1}
EXCHANGES = ("ring", "tree", "halving")  # algorithms that are tried besides a training's own
SIZES = (1, 4, 16, 64, 256)
TRAININGS = 2  # that have a grid


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
    title, also = headline(tested, bool(answers))
    return Section("predicted", title, body, also, [f"{title}."] if tested else [], _DEFINITIONS, "Predicted")


_DEFINITIONS = (
    "A model of the iteration, fitted to the fewest devices that exchange gradients or hold a network in stages, "
    "predicts the speed on more of them (stagebench predict). The interval covers the uncertainty of the fit and the "
    f"model’s own error, {share(MODEL_ERROR)} as validated."
)


def headline(tested: Sequence[Answer], fitted: bool) -> tuple[str, str]:
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
