"""What the templates are given: every section's content, worked out before any of it is written down."""

from collections.abc import Callable
from dataclasses import asdict, fields
from typing import Any

from reports import charts, facts, findings, overview, parts
from reports.best import answers, configuration, plan_of, remarks, winners_of
from reports.device_charts import device_charts
from reports.devices import over_devices
from reports.epochs import epochs_of
from reports.exchanges import exchanges_of
from reports.figure import Chart, Figure, colour
from reports.heat import heat_maps
from reports.inputs import MODE_COLOURS, inputs_of, reading, words
from reports.learning import lessons_of
from reports.lines import POINTS
from reports.matrix import matrix, place_of
from reports.matrix import words_of as words_of_place
from reports.networks import networks_of
from reports.panels import Panel, by_network, for_charts, set_aside
from reports.programs import notes_of
from reports.scaling import scaling
from reports.shown import SHOWN, shown
from reports.stragglers import stragglers_of
from reports.study import study_of
from suite.analysis.best import USUAL
from suite.analysis.comparability import DISQUALIFYING, NOTED, SHARED_GPUS
from suite.analysis.roofline import of_row
from suite.analysis.rows import Row
from suite.analysis.stats import outliers
from suite.analysis.summary import unused_records
from suite.predict.from_run import beside_measured
from suite.predict.prediction import TRUSTED, Answer
from suite.results.foreign import imported
from suite.results.run_folder import RunFolder
from suite.worker.case_parts import Sampling
from suite.worker.pass_kinds import NATIVE, STAGED

IN_WORDS = 60  # comparisons in words
FIRST = 12  # groups in the first chart
STUDY = "paper"  # the plan whose page has the study's tables
ARTICLE = "data-parallel"  # whose charts over devices are the article's figures


def context(folder: RunFolder, every: list[Row]) -> dict[str, Any]:
    """Every name that a section's template knows, but addresses.

    What answers a plan's question is given every row, what has a line for each case those that are shown.
    """
    fast = shown(row for row in every if row.rates)
    rows = fast.rows  # those with a prediction beside them
    timed = shown(row for row in every if row.measured)
    staged = shown(row for row in every if row.rates and (row.budget or STAGED in row.case.passes))
    exchanging = shown(row for row in every if row.budget and row.several_devices)
    layered = shown(row for row in every if any(one.layers for one in row.measured))
    scaled = shown(row for row in every if row.scaling)
    speeds = by_network(every)
    parted = parts.with_parts(speeds)
    in_parts = shown(row for panel in parted for row in panel.rows)
    adapters = list(dict.fromkeys(row.case.adapter for row in every))
    plan = facts.plan_of(folder)

    def shades(rows: list[Row]) -> dict[str, str]:
        """The colours of the adapters that have a row there."""
        there = {row.case.adapter for row in rows}
        return {adapter: colour(index) for index, adapter in enumerate(adapters) if adapter in there}

    foreign = folder.about.imported
    predicted, unpredicted = beside_measured(folder, [] if foreign else rows)
    panels, stage_charts = for_charts(fast.rows), _drawn(for_charts(staged.rows), charts.stages)
    devices, lessons = over_devices(every), lessons_of(every)
    exchanged, slowed = exchanges_of(every), stragglers_of(every)
    winners, groups = winners_of(every), overview.groups_of(every)
    fed = inputs_of([row for row in every if row.measured])
    return {
        "title": _title(folder, plan),
        "imported": foreign,
        "foreign_notes": notes_of(folder) if foreign else [],
        "about": folder.about,
        "plan": plan,
        "hosts": folder.hosts(),
        "noise": facts.noise_of(every),
        "software": facts.software_of(every),
        "unused_records": unused_records(folder),
        "progress": facts.progress_of(every, folder.about.command),
        "findings": findings.ordered(
            plan.name,
            {
                findings.LED: [overview.sentence(group) for group in groups[:IN_WORDS]],
                findings.DEVICES: devices.answers if devices else [],
                findings.LESSONS: [f"{one.title}: {answer}" for one in lessons for answer in one.answers],
                findings.ALIKE: [answer for one in lessons for answer in one.alike],
                "slowed": [f"{one.title}. {answer}" for one in slowed for answer in one.answers],
                findings.EXCHANGED: [f"{one.title}. {one.answer}" for one in exchanged if one.answer],
                findings.PARTED: parts.answers(parted),
                findings.SCALED: list(findings.speed_ups(every)),
                findings.MODEL: findings.modelled(predicted),
                findings.READ: findings.read(fed),
                findings.SEARCHED: answers(winners),
            },
        ),
        "first_chart": overview.chart(groups[:FIRST], adapters),
        "compared_proofs": overview.proven(groups),
        "compared": shades([row for group in groups[:FIRST] for row in group.rows]),
        "set_aside": set_aside(fast.rows),
        "full": Sampling(),
        "every": every,
        "listed": shown(every),
        "seen_marks": {mark for row in every for mark in row.marks},
        "shared_reasons": facts.shared_reasons(every),
        "count": len(every),
        "groups": len(groups),
        "undecided": sum(not group.decided for group in groups),
        "first_groups": FIRST,
        "fast": fast,
        "tables": by_network(fast.rows),
        "staged": staged,
        "stage_tables": by_network(staged.rows),
        "in_parts": in_parts,
        "parted": by_network(in_parts.rows),
        "parted_answers": parts.answers(parted),
        "traffic": parts.traffic,
        "stages_asked": any(STAGED in row.case.passes for row in every) or not every,
        "speed_asked": any(NATIVE in row.case.passes for row in every) or not every,
        "matrix": matrix(speeds),
        "place": lambda row: words_of_place(place_of(row.case)),
        "speed_charts": _drawn(panels, lambda panel: charts.speeds(panel, adapters)),
        "stage_charts": stage_charts,
        "exchanging": exchanging,
        "exchange_tables": by_network(exchanging.rows),
        "aggregation_charts": _drawn(for_charts(exchanging.rows), charts.aggregation),
        "exchange_colours": charts.EXCHANGE_COLOURS,
        "scaled": scaled,
        "scaling_tables": by_network(scaled.rows),
        "scaling_charts": _drawn(
            for_charts(_with_baselines(scaled.rows, every)), lambda panel: scaling(panel, adapters, predicted)
        ),
        "lonely": shown(
            row
            for row in every
            if row.rates and row.several_devices and not row.scaling and SHARED_GPUS not in row.marks
        ),
        "predicted": predicted,
        "unpredicted": unpredicted,
        "trusted": TRUSTED,
        "verdicts": [answer.wrong(one) for answer in predicted for one in answer.predictions],
        "scenarios": [scenario_of(answer) for answer in predicted if answer.asked.scenario.stages == 1],
        "timed": timed,
        "step_charts": _drawn(for_charts(timed.rows), charts.step_times),
        "step_tables": by_network(timed.rows),
        "stage_colours": {part["name"]: part["marker"]["color"] for _, one in stage_charts for part in one["data"]},
        "layered": layered,
        "heat_maps": heat_maps(for_charts(layered.rows)),
        "roofline": lambda row: of_row(folder.path, row),
        "adapter_colours": shades([row for panel in panels for row in panel.rows]),
        "step_facts": step_facts,
        "gradient_bytes": gradient_bytes,
        "inputs": fed,
        "mode_colours": MODE_COLOURS,
        "read_colours": {mode: MODE_COLOURS[mode] for mode in ("memory", "disk")},
        "bottleneck": words,
        "reading": reading,
        "winners": winners,
        "best_plan": plan_of(winners, plan.name or "unknown", folder.own_networks()) if winners else "",
        "configuration": configuration,
        "remarks": remarks,
        "usual": USUAL,
        "lessons": lessons,
        "devices": devices,
        "device_charts": device_charts(devices, plan.name == ARTICLE) if devices else None,
        "networks": networks_of(folder, [row for _, one in devices.named for row in one.rows] if devices else []),
        "epochs": epochs_of(every),
        "exchanges": exchanged,
        "stragglers": slowed,
        "study": study_of(folder, every) if plan.name == STUDY else None,
        "proven": shown(row for row in every if row.processes),
        "trained": shown(row for row in every if row.answers),
        "most": SHOWN,
        "points": POINTS,
        "disqualifying": DISQUALIFYING,
        "noted": NOTED,
    }


def _title(folder: RunFolder, plan: facts.Plan) -> str:
    if folder.about.imported:
        return f"Imported: {', '.join(imported(folder).programs)}"
    return plan.title or plan.name or "A run of stagebench"


def _with_baselines(rows: list[Row], every: list[Row]) -> list[Row]:
    """The rows and those that they are scaled from, in the plan's order."""
    ids = {id_ for row in rows if row.scaling for id_ in (row.id, row.scaling.baseline_id)}
    return [row for row in every if row.id in ids]


def _drawn(panels: list[Panel], draw: Callable[[Panel], Figure | None]) -> list[Chart]:
    drawn = [(panel, draw(panel)) for panel in panels]
    return [(panel, figure) for panel, figure in drawn if figure is not None]


def scenario_of(answer: Answer) -> dict[str, Any]:
    """What model.js computes with, and what was measured, by devices."""
    asked = answer.asked
    scenario = {field.name: getattr(asked.scenario, field.name) for field in fields(asked.scenario)}
    scenario["layers"] = [asdict(layer) for layer in asked.scenario.layers]
    scenario["network"] = asdict(asked.scenario.network)
    jitter = asked.scenario.jitter
    scenario["jitter"] = {"values": jitter.values.tolist(), "cumulative": jitter.cumulative.tolist()}
    return {
        "label": asked.label,
        "scenario": scenario,
        "together": asked.together,
        "measured": [[devices, rate.value] for devices, rate in asked.measured.items()],
    }


def step_facts(row: Row) -> dict[str, float]:
    """The distribution of a row's native steps in numbers: seconds, and how many there are."""
    steps = charts.all_steps(row)
    low, middle, high = charts.quantiles(steps, (5, 50, 95))
    found = {"least": float(steps.min()), "p5": low, "median": middle, "p95": high, "most": float(steps.max())}
    return {**found, "steps": steps.size, "outliers": int(outliers(steps).sum())}


def gradient_bytes(row: Row) -> float | None:
    """Return what every device contributes to the exchange of a step, on average, as its ranks reported it."""
    reported = [process.gradient_bytes for process in row.measured if process.gradient_bytes]
    return float(reported[0]) if reported else None
