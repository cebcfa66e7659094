"""The scenario of a network held in stages, fitted to what a run has measured of one pipeline, or of several.

A stage computes for as long as its staged pass did without waiting for the others (`bubble`). What the native step took
beyond that is the crossing of cuts, unless other trainings of the run tell what a link takes: then the stages are
scaled to the native step.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from statistics import fmean

from stagebench.suite.analysis.rows import Row
from stagebench.suite.analysis.scaling import microbatches_per_stage
from stagebench.suite.errors import RequestError
from stagebench.suite.plan.networks import network_of
from stagebench.suite.predict.collectives import MOST_ERROR, KnownLink, Link, Network
from stagebench.suite.predict.pipeline import Pipelines, strategy_of
from stagebench.suite.predict.prediction import ASSUMED, Asked, timeline
from stagebench.suite.predict.scenario import LayerCost, Layers, Scenario, activations, multiplications, tied
from stagebench.suite.predict.series import Series
from stagebench.suite.results.run_folder import RunFolder
from stagebench.suite.worker.contract import Unsupported
from stagebench.suite.worker.pass_kinds import STAGED
from stagebench.workloads.graph import Graph

HALVINGS = 60  # of an interval in which a value is looked for: to the end of a float's digits
LEAST = 1e-6  # of a stage's own seconds: it computes all but nothing


def fit_stages(folder: RunFolder, series: Series, known: KnownLink | None) -> Asked:
    """`known`: the link, as other trainings of the run tell it.

    RequestError where the network is not here, and without a link for pipelines that exchange gradients.
    """
    base, strategy = series.base, strategy_of(series.base.case)
    graph = network_of(folder.path, base.case)
    assert base.declared
    assert strategy
    if graph is None:
        raise RequestError(
            f"its network {base.case.workload!r} is not what is installed here by that name, and nothing says "
            "where it was cut; predict with the version that measured it (run.json names it)"
        )
    if series.side_by_side and known is None:
        raise RequestError(
            f"nothing says how fast the link of {series.label} is, by which pipelines exchange gradients; give --alpha "
            "and --beta, or --comm with the folder of a `stagebench comm`, or measure 2 ranks by a strategy with a "
            "network on each, too, with the passes compute_only and comm_only"
        )
    stages = base.declared.model_parallel_size
    pieces = microbatches_per_stage(base) if series.by_stage else Fraction(base.declared.microbatches)
    pipelines = Pipelines(graph, strategy.cut, stages if series.side_by_side else None, pieces, series.by_stage)
    try:
        borders = replace(pipelines, stages=stages).borders(stages)
    except Unsupported as error:  # what is installed here cuts it in another way than what has measured it
        raise RequestError(f"{error}; predict with the version that measured it (run.json names it)") from None
    scenario, layers = _staged(folder, series, graph, borders)
    slowed = known.interference if known and series.side_by_side else 0.0
    scenario, sources = _matched(scenario.but(interference=slowed), series, known)
    believed = known is not None and known.source in sources
    if believed and slowed:
        sources.append(f"interference: {slowed:.2f} s for each second of that exchange")
    cut = f"cut: as {base.case.adapter}/{base.case.strategy} cuts it, {strategy.cut}"
    sources.append(layers)
    if series.together:
        sources.append(ASSUMED)
    return series.asked(scenario, [*sources, cut], pipelines=pipelines, link_known=believed)


def _staged(folder: RunFolder, series: Series, graph: Graph, borders: tuple[int, ...]) -> tuple[Scenario, str]:
    """(The scenario by the staged pass alone, over a link that takes no time; where its layers come from)."""
    declared, place = series.base.declared, series.base.case.placement
    assert declared
    held, ends = _held(folder, series.base), [*borders, len(graph.layers)]
    layers, source = _layers(series, graph, held, ends)
    # One device would update all parameters; the devices of a process do so at the same time.
    sizes = [sum(layer.bytes for layer in layers[begin:end]) for begin, end in pairwise(ends)]
    update, devices = 0.0, len(sizes) // len(held)
    for index, own in enumerate(held):
        of_rank = sizes[index * devices : (index + 1) * devices]
        update += own["update"] * sum(of_rank) / (max(of_rank) or 1.0)
    scenario = series.scenario(
        layers=layers,
        network=Network(ranks_per_node=place.devices_per_node if place.nodes > 1 else 1),
        schedule="fused",
        h2d=held[0]["h2d"] / len(borders),
        update=update,
        stages=len(borders),
        microbatches=declared.microbatches,
        # What has several pipelines is PyTorch's hybrid. DDP's last backward returns when its gradients are averaged.
        holds_back=series.side_by_side,
        borders=borders,
        tied=tied(graph),
    )
    return scenario, source


def _held(folder: RunFolder, base: Row) -> list[dict[str, float]]:
    """Seconds of a step by stage of the budget, waiting left out: of each rank of a pipeline, one after the other.

    They are means over steps, processes and pipelines. A process's are the mean over its devices (h2d and update: until
    all of them are done).
    """
    assert base.declared
    count = base.declared.model_parallel_size // base.case.placement.devices
    found: list[list[dict[str, float]]] = [[] for _ in range(count)]
    for record in folder.records([base.id]):
        for rank in record.ranks:
            staged = rank.passes.get(STAGED)
            if record.result == "ok" and staged and staged.stage_s:
                found[rank.rank % count].append({name: fmean(each) for name, each in staged.stage_s.items() if each})
    names = ("h2d", "forward", "backward", "update")
    return [{name: fmean([one.get(name, 0.0) for one in several]) for name in names} for several in found]


def _layers(series: Series, graph: Graph, held: Sequence[dict[str, float]], ends: Sequence[int]) -> tuple[Layers, str]:
    """Divide each rank's computing over its layers as one device timed them, else by multiply-accumulates.

    Seconds of a batch of one device; `ends`: of stages, and before the first.
    """
    stages = len(ends) - 1
    devices = stages // len(held)
    shares, source = multiplications(graph), "layers: each stage's time divided by multiply-accumulates"
    table = next((row.layers for row in series.rows if not row.several_devices and row.layers), None)
    if table:
        timed = {row.layer: (row.forward_s, row.backward_s) for row in table}
        shares = [timed.get(layer.name, (0.0, 0.0)) for layer in graph.layers]
        source = "layers: each stage's time divided as one device timed them"
    crossing = activations(graph, series.base.case.batch)
    costs = []
    for own, (begin, end) in zip(held, pairwise(ends[::devices]), strict=True):
        forward, backward = (sum(each) or 1.0 for each in zip(*shares[begin:end], strict=True))
        forward = own["forward"] * devices / stages / forward
        backward = own["backward"] * devices / stages / backward
        for layer, (one, other) in zip(graph.layers[begin:end], shares[begin:end], strict=True):
            seconds = (one * forward, other * backward)
            costs.append(LayerCost(layer.name, *seconds, layer.gradient_bytes(), crossing[layer.name]))
    return tuple(costs), source


def _matched(scenario: Scenario, series: Series, known: KnownLink | None) -> tuple[Scenario, list[str]]:
    """The scenario that takes as long as the native step, input aside; in words what was scaled, and the link."""
    wanted, ranks = series.fed, series.devices

    def seconds(one: Scenario) -> float:
        return timeline(one, ranks).trained

    def over(link: Link, within: Link | None = None) -> Scenario:
        return scenario.but(network=replace(scenario.network, between=link, within=within))

    error, sent, source = 0.0, scenario, "link: crossing a cut took no time that the step shows"
    if known and seconds((linked := over(known.link, known.within)).slower(compute=LEAST)) < wanted:
        error, sent, source = known.error, linked, known.source
    elif (unsent := seconds(scenario)) < wanted:
        beta = _solved(lambda beta: seconds(over(Link(0.0, beta))), wanted)
        link, error = Link(0.0, beta), series.speed_error * wanted / (wanted - unsent)
        source = f"link: what {ranks} devices took beyond computing and waiting, as if it had no latency"
        return over(link).but(link_error=min(MOST_ERROR, error)), [source]
    sent = sent.but(link_error=min(MOST_ERROR, error))
    times = _solved(lambda times: seconds(sent.slower(compute=max(times, LEAST))), wanted)
    return sent.slower(compute=times), [
        f"computing: {times:.2f} times the staged pass's, as the native step has it",
        source,
    ]


def _solved(rising: Callable[[float], float], wanted: float) -> float:
    """Return where a function that rises from less than `wanted` reaches it."""
    high = 1e-12
    while rising(high) < wanted:
        high *= 2
    low = 0.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if rising(middle) < wanted else (low, middle)
    return high
