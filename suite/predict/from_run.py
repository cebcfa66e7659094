"""Scenarios fitted to what a run has measured: on its smallest placement of several devices, else on one device."""

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np

from stagebench.suite.analysis.links import fitted
from stagebench.suite.analysis.rows import Row
from stagebench.suite.analysis.scaling import shared
from stagebench.suite.analysis.summary import summarise
from stagebench.suite.contracts.case import Case
from stagebench.suite.errors import RequestError
from stagebench.suite.plan.networks import network_of
from stagebench.suite.predict.collectives import MOST_ERROR, Cost, KnownLink, Network, of_fit
from stagebench.suite.predict.fit_stages import fit_stages
from stagebench.suite.predict.prediction import ASSUMED, Answer, Asked, predict
from stagebench.suite.predict.scenario import (
    BACKWARD,
    EVEN,
    SCHEDULES,
    Jitter,
    LayerCost,
    Layers,
    Scenario,
    activations,
    by_arithmetic,
    joined,
)
from stagebench.suite.predict.series import Series, exchange_of, lacks, series_of, unlike
from stagebench.suite.results.run_folder import RunFolder
from stagebench.suite.worker.pass_kinds import COMPUTE_ONLY, NATIVE

SAME = 1e-3  # of an iteration: schedules that differ by less are equally near
MOST_INTERFERENCE = 1.0  # an exchange can stop computing, not more
UNFITTED = "nothing was measured of it on several devices that a model can be fitted to"
SMALL_JITTER = Jitter.normal(0.01)  # scaled up if steps show no jitter


def asked_of(folder: RunFolder, workload: str | None, link: KnownLink | None) -> tuple[list[Asked], list[str]]:
    """(every training of a run, or of this workload, as `fit` has it; why others have nothing to predict from).

    RequestError where that is so of all of them.
    """
    rows = summarise(folder)
    wanted = [row for row in rows if workload in (None, row.case.workload)]
    if not wanted:
        names = ", ".join(dict.fromkeys(row.case.workload for row in rows))
        raise RequestError(
            f"{folder.path} has no case of the workload {workload!r}; it has {names or 'no case at all'}"
        )
    found, refusals = _fitted(folder, rows, wanted, link)
    if not found:
        raise RequestError(f"{folder.path} has nothing to predict from. {' '.join(refusals)}")
    return found, refusals


def beside_measured(folder: RunFolder, rows: Sequence[Row]) -> tuple[list[Answer], list[str]]:
    """(What the smallest placement of several devices predicts of those larger, measured, too; why others do not).

    A training has an answer without a size where nothing larger was measured.
    """
    found, refusals = _fitted(folder, rows, [row for row in rows if row.several_devices and row.rate])
    answers = [
        Answer(asked, [asked.scenario.schedule], [size for size in asked.measured if size > asked.fitted_to])
        for asked in found
        if asked.fitted_to
    ]
    return answers, refusals


def _fitted(
    folder: RunFolder, rows: Sequence[Row], wanted: Sequence[Row], link: KnownLink | None = None
) -> tuple[list[Asked], list[str]]:
    """(Every training that has one of the rows that are wanted, as `fit` has it; why the others have none)."""
    every, found, ids = series_of(rows), [], {row.id for row in wanted}
    chosen = [series for series in every if any(row.id in ids for row in series.rows)]
    there = {row.id for series in chosen for row in series.rows}
    reasons = {row.case.label: unlike(row) or lacks(row) or UNFITTED for row in wanted if row.id not in there}
    for series in chosen:
        try:
            found.append(fit(folder, series, every, link))
        except RequestError as error:
            reasons[series.label] = str(error)
    refusals = []  # a sentence for each reason, with the first of those that it is true of
    for reason in dict.fromkeys(reasons.values()):
        first, *others = (label for label, why in reasons.items() if why == reason)
        more = f" and {len(others)} more" if others else ""
        refusals.append(f"{first}{more}: {reason}.")
    return found, refusals


def fit(folder: RunFolder, series: Series, every: Sequence[Series] = (), link: KnownLink | None = None) -> Asked:
    """Fit the scenario of a series; RequestError if the speed of its link is unknown.

    The link is what the run, `every` series of it, has measured of an exchange by a ring, or else `link`. The schedule
    is the one that comes nearest to the run. Time beyond it is charged to the exchange, which slows down computing at
    the same time; the rest, to ranks that waited for each other.
    """
    if series.in_parts:
        known = _other_link(folder, series, every) or (link if series.side_by_side else None)
        return fit_stages(folder, series, known)
    layers, layers_source = _layers(folder, series)
    layers, by_batch = _by_batch(folder, series, layers, every)
    link = _measured_link(series, layers, every) or link
    network, inside = _network(folder, series, every)
    if link is None:
        raise RequestError(
            f"nothing says how fast the link of {series.label} is; give --alpha and --beta, or --comm with the folder "
            "of a `stagebench comm`, or measure the case on 2 ranks with the passes compute_only and comm_only"
        )
    sources = [layers_source, *([by_batch] if by_batch else []), link.source, *inside]
    whole = _stage_seconds(series)
    scenario = series.scenario(
        layers=layers,
        network=replace(network, between=link.link),
        h2d=whole["h2d"],
        update=whole["update"],
        jitter=_jitter(folder, series),
        link_error=min(MOST_ERROR, link.error),
    )
    devices, budget = series.devices, series.budget
    if devices > 1:
        if budget.waiting:
            sources.append(f"jitter: ranks wait {1000 * budget.waiting.value:.3g} ms for the last one")
        # Seconds that the iteration took longer than each schedule predicts.
        predicted = {name: predict(scenario.but(schedule=name), devices) for name in SCHEDULES}
        off = {name: budget.native - one.iteration for name, one in predicted.items()}
        equal = SAME * budget.native
        below = {name: seconds for name, seconds in off.items() if seconds >= -equal} or off
        least = min(map(abs, below.values()))
        nearest = [name for name, seconds in below.items() if abs(seconds) <= least + equal]
        scenario = scenario.but(schedule=nearest[0])
        sources.append(f"schedule: {' or '.join(nearest)}, nearest to what {devices} devices did")
        beyond, exchanging = off[nearest[0]], predicted[nearest[0]].exchanging
        if beyond > equal and exchanging:
            scenario = scenario.but(interference=min(beyond / exchanging, MOST_INTERFERENCE))
            sources.append(f"interference: {scenario.interference:.2f} s for each second of exchange")
        waited = beyond - scenario.interference * exchanging
        if waited > equal:
            scenario = scenario.but(jitter=_waiting(scenario, devices, waited))
            sources.append(f"stragglers: {1000 * waited:.3g} ms more than the steps of single ranks differ by")
    return series.asked(scenario, sources)


def _waiting(scenario: Scenario, ranks: int, seconds: float) -> Jitter:
    """Return the jitter with which the slowest of `ranks` ranks takes `seconds` longer."""
    jitter = scenario.jitter if scenario.jitter.slowest(ranks) - 1 > SAME else SMALL_JITTER
    already, base = ((each.slowest(ranks) - 1) * scenario.own for each in (scenario.jitter, jitter))
    return jitter.stretched((already + seconds) / base)


def _stage_seconds(series: Series) -> dict[str, float]:
    """Return the staged pass's stages, scaled so that they sum to the native step's computing.

    A common time of forward and backward is divided one to two, as their multiply-accumulates are.
    """
    stages = {name: getattr(series.budget, name) or 0.0 for name in ("h2d", "forward", "backward", "update")}
    if not stages["forward"] or not stages["backward"]:
        both = stages["forward"] + stages["backward"] or 1.0
        stages |= {"forward": both / (1 + BACKWARD), "backward": both * BACKWARD / (1 + BACKWARD)}
    return {name: seconds * series.compute / sum(stages.values()) for name, seconds in stages.items()}


def _layers(folder: RunFolder, series: Series) -> tuple[Layers, str]:
    """Each layer's share of forward and backward: as it was timed, else as its multiply-accumulates are."""
    whole, table, case = _stage_seconds(series), series.base.layers, series.base.case
    graph = network_of(folder.path, case)
    if not table:
        if graph is None:
            raise RequestError(
                f"{folder.path} has no times of layers, and its network {case.workload!r} is not what is installed "
                "here by that name; predict with the version that measured it (run.json names it)"
            )
        costs = by_arithmetic(graph, whole["forward"] + whole["backward"], case.batch)
        return costs, "layers: no times; divided by multiply-accumulates"
    forward, backward = (sum(getattr(row, name) for row in table) or 1.0 for name in ("forward_s", "backward_s"))
    crossing_bytes = activations(graph, case.batch) if graph else {}
    costs = tuple(
        LayerCost(
            row.layer,
            row.forward_s * whole["forward"] / forward,
            row.backward_s * whole["backward"] / backward,
            row.bytes,
            crossing_bytes.get(row.layer, 0.0),
        )
        for row in table
    )
    return joined(costs), "layers: timed one by one"


def _by_batch(folder: RunFolder, series: Series, layers: Layers, every: Sequence[Series]) -> tuple[Layers, str | None]:
    """Fit a + b x batch to each layer's seconds at two batches of one training on as many devices; in words, if it did.

    The other batch is the one furthest from the series' own.
    """
    own = series.base.case

    def held(case: Case) -> tuple[object, ...]:
        return shared(case.on(batch=own.batch)), case.strategy, case.placement

    rows = [row for one in every for row in one.rows if held(row.case) == held(own) and not lacks(row)]
    row = max(rows, key=lambda row: abs(math.log(row.case.batch / own.batch)), default=series.base)
    times = row.case.batch / own.batch
    other = _layers(folder, Series(row, (row,)))[0] if times != 1 else ()
    if [layer.name for layer in other] != [layer.name for layer in layers]:
        return layers, ASSUMED if series.together else None
    fitted_layers = []
    for layer, changed in zip(layers, other, strict=True):
        fixed = (times - changed.seconds / layer.seconds) / (times - 1) if layer.seconds else 0.0
        fitted_layers.append(replace(layer, fixed=min(max(fixed, 0.0), 1.0)))
    share = sum(layer.fixed * layer.seconds for layer in fitted_layers) / sum(layer.seconds for layer in layers)
    words = f"{share:.0%} of forward and backward do not change with it, by batches {own.batch} and {row.case.batch}"
    return tuple(fitted_layers), f"batch: {words}"


def _network(folder: RunFolder, series: Series, every: Sequence[Series]) -> tuple[Network, list[str]]:
    """(The network without its link between nodes, where its link within a node comes from).

    Over nodes of several devices each, exchanges that the run has measured on one of them tell what its own link is.
    """
    place = series.base.case.placement
    if place.nodes == 1 or place.devices_per_node == 1:
        return Network(), []
    network = Network(ranks_per_node=place.devices_per_node)
    for one in every:
        base = one.base.case
        if base.placement.nodes == 1 and exchange_of(base) == exchange_of(series.base.case):
            link = None
            with suppress(RequestError):  # its network is another one today: that says nothing of this training
                link = _measured_link(one, _layers(folder, one)[0], every)
            if link:
                return replace(network, within=link.link), [f"within a node, {link.source}"]
    return network, []


def _other_link(folder: RunFolder, series: Series, every: Sequence[Series]) -> KnownLink | None:
    """The link between stages, as the same adapter's exchange of gradients over such a link has it; None without."""
    for one in every:
        if not one.in_parts and one.devices > 1 and one.between_stages == series.between_stages:
            with suppress(RequestError):  # it cannot be fitted: its network may be another one today
                asked = fit(folder, one, every)
                source = next(each for each in asked.sources if each.startswith("link: "))
                scenario, network = asked.scenario, asked.scenario.network
                words = f"{source}, of {one.label}"
                return KnownLink(network.between, scenario.link_error, words, network.within, scenario.interference)
    return None


def _measured_link(series: Series, layers: Sequence[LayerCost], every: Sequence[Series]) -> KnownLink | None:
    """From `comm_only`, else from the layers' own exchanges of the staged pass; None where the run has neither.

    `comm_only` of one network does not tell latency from bandwidth: the layers' exchanges do, where they lie near a
    line. They need not, since a layer's may hold the wait for another rank.
    """
    devices, network = series.devices, Network()
    if devices < 2:
        return None
    if line := _of_networks(series, every):
        return line
    sent = [layer for layer in series.base.layers or () if layer.bytes and layer.communication_s > 0]
    found = fitted([layer.bytes for layer in sent], [layer.communication_s for layer in sent])
    if found and found.beta and found.describes:
        return of_fit(found, devices, network, f"link: each layer's exchange on {devices} devices")
    whole, size = series.budget.comm_only, sum(layer.bytes for layer in layers)
    if not whole or not size:
        return None
    source = f"link: comm_only on {devices} devices, as if it had no latency"
    return KnownLink(network.link_of(devices, Cost(0.0, whole / size)), series.comm_only_error / whole, source)


def _of_networks(series: Series, every: Sequence[Series]) -> KnownLink | None:
    """The line through `comm_only` of the smallest and of the largest network that met the same link; None without."""
    known = sorted(
        (one.gradient_bytes, one.budget.comm_only, one.comm_only_error)
        for one in every
        if one.link == series.link and one.gradient_bytes and one.budget.comm_only
    )
    if not known or known[0][0] == known[-1][0]:
        return None
    (small, short, short_error), (large, long, long_error) = known[0], known[-1]
    per_byte = (long - short) / (large - small)
    cost = Cost(short - per_byte * small, per_byte)
    if cost.start < 0 or cost.per_byte <= 0:
        return None
    source = f"link: comm_only of several networks on {series.devices} devices"
    error = math.hypot(long_error, short_error) / (long - short)
    return KnownLink(Network().link_of(series.devices, cost), error, source)


def _jitter(folder: RunFolder, series: Series) -> Jitter:
    """How iterations differ that wait for no other rank: of `compute_only`, on one rank of `native`.

    It is stretched so that the slowest rank takes as much longer as the staged pass waited for the last one, if that
    was measured. Ranks that wait for no other differ by more: a delay in one step is made up for in the next.
    """
    base, measured = series.base, series.budget.waiting
    name = COMPUTE_ONLY if base.case.placement.ranks > 1 else NATIVE
    steps = []
    for record in folder.records([base.id]):
        for rank in record.ranks if record.result == "ok" else ():
            timed = rank.passes.get(name)
            if timed and sum(timed.step_s) > 0:
                steps.append(np.asarray(timed.step_s) / np.mean(timed.step_s))
    jitter = Jitter.measured(np.concatenate(steps)) if steps else EVEN
    apart = (jitter.slowest(series.devices) - 1) * series.compute
    return jitter.stretched(max(measured.value, 0.0) / apart) if measured and apart > 0 else jitter
