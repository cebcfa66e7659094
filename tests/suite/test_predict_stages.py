"""Fitting the model of pipelines to a run: one that the model itself made is met exactly, and refusals name why."""

import json
import re
from dataclasses import replace
from itertools import pairwise

import pytest

from stagebench.adapters.pytorch import plugin as pytorch
from stagebench.reports.exports.write import charts_of
from stagebench.suite.analysis.summary import summarise
from stagebench.suite.contracts.case import Placement
from stagebench.suite.errors import RequestError
from stagebench.suite.predict.collectives import KnownLink, Link, Network
from stagebench.suite.predict.from_run import asked_of, beside_measured
from stagebench.suite.predict.prediction import Answer, predict
from stagebench.suite.predict.scenario import LayerCost, Scenario, activations, multiplications
from stagebench.suite.worker.pipeline_stages import stages
from stagebench.workloads.networks.alexnet import alexnet
from tests.reports.made_run import case_of, declared
from tests.support.errors import raising

GRAPH = alexnet()
BATCH = 8
SLOW = Link(0.0, 2e-8)  # 50 MB/s: crossing a cut is felt
SECONDS = 1e-10  # of a multiply-accumulate, for a batch of one device
KNOBS = {"schedule": "gpipe", "microbatches": 4, "stages": 2}


def layers_of(timed):
    """Layers as their multiply-accumulates; `timed`: each takes other times, which one device tells."""
    crossing = activations(GRAPH, BATCH)
    return tuple(
        LayerCost(
            layer.name,
            SECONDS * forward * (1 + timed * (number % 3)),
            SECONDS * backward * (1 + timed * (number % 4)),
            layer.gradient_bytes(),
            crossing[layer.name],
        )
        for number, (layer, (forward, backward)) in enumerate(zip(GRAPH.layers, multiplications(GRAPH), strict=True))
    )


def truth(held, microbatches, link=SLOW, timed=True, one_value=True):
    borders = tuple(each.begin for each in stages(GRAPH, held, one_value))
    own = {"h2d": 0.001, "update": 0.02, "stages": held, "microbatches": microbatches, "borders": borders}
    return Scenario(BATCH, layers_of(timed), Network(link), schedule="fused", **own)


def declaring(held, microbatches):
    stages = {"separable": ["io", "h2d", "forward", "backward", "update"]}
    return {**declared(), **stages, "model_parallel_size": held, "microbatches": microbatches}


def follow(run, scenario, ranks, strategy="pipeline", native=1.0, adapter="pytorch", **changes):
    """A case whose records are what the model predicts; its native step takes `native` times as long."""
    place = Placement(ranks_per_node=ranks) if adapter == "pytorch" else Placement(devices=ranks)
    knobs = {**KNOBS, "microbatches": scenario.microbatches, **changes.pop("knobs", {})}
    values = {"placement": place, "strategy": strategy, "data": "synthetic", "graph_digest": GRAPH.digest}
    case = case_of(adapter, "alexnet", ranks, **{**values, "knobs": knobs, "batch": BATCH, **changes})
    run.proven(case, declared=declaring(scenario.stages, scenario.microbatches))
    whole = {"native": native * predict(scenario, ranks).iteration, "staged": 9.0}

    def exact(record):
        for rank in record["ranks"]:
            rank["layers"] = None
            held = held_by(scenario, rank["rank"] % scenario.stages if place.devices == 1 else None)
            rank["passes"] = {name: one for name, one in rank["passes"].items() if name in whole}
            for name, one in rank["passes"].items():
                count = len(one["step_s"])
                one |= {"step_s": [whole[name]] * count, "wall_s": whole[name] * count, "io_s": [0.0] * count}
                one["samples"] = count * case.batch * place.devices
            staged = rank["passes"]["staged"]
            staged["stage_s"] = {name: [seconds] * len(staged["step_s"]) for name, seconds in held.items()}

    run.changed(case, exact)
    return case


def held_by(scenario, stage):
    """Seconds of a rank that holds a stage; of a process that holds all (None), the mean over its devices."""
    parts = [scenario.layers[begin:end] for begin, end in pairwise([*scenario.borders, len(scenario.layers)])]
    total = sum(layer.bytes for layer in scenario.layers)
    updates = [scenario.update * sum(layer.bytes for layer in part) / total for part in parts]
    if stage is None:
        own, update, waited = scenario.layers, max(updates), 1
    else:
        own, update, waited = parts[stage], updates[stage], scenario.stages
    return {
        "h2d": scenario.h2d * scenario.stages * (not stage),
        "forward": waited * sum(layer.forward for layer in own),
        "backward": waited * sum(layer.backward for layer in own),
        "update": update,
        "bubble": 0.3,
    }


def one_device(run, adapter="pytorch", batch=BATCH):
    """The same network on one device, which times its layers."""

    def timed(record):
        record["ranks"][0]["layers"] = [
            {"layer": layer.name, "kind": "conv", "bytes": int(layer.bytes), "communication_s": 0.0}
            | {"forward_s": 3 * layer.forward, "backward_s": 3 * layer.backward}
            for layer in layers_of(True)
        ]

    case = case_of(adapter, "alexnet", batch=batch, data="synthetic", graph_digest=GRAPH.digest, knobs={})
    run.changed(run.proven(case), timed)


def data_parallel(run, link):
    """Its exchange tells the link: twice half of all bytes over a ring of two. A step takes half as long again."""
    case = case_of("pytorch", "alexnet", 2, batch=BATCH, data="synthetic", graph_digest=GRAPH.digest, knobs={})
    seconds = link.beta * GRAPH.gradient_bytes()

    def exchanging(record):
        for rank in record["ranks"]:
            alone = rank["passes"]["comm_only"]
            count = len(alone["step_s"])
            alone |= {"step_s": [seconds] * count, "wall_s": seconds * count}
            native, own = rank["passes"]["native"], 0.4
            step = own + 1.5 * seconds
            native |= {"step_s": [step] * len(native["step_s"]), "wall_s": step * len(native["step_s"])}
            native["gradient_bytes"] = GRAPH.gradient_bytes()
            rank["passes"]["compute_only"]["pairs_s"] = [[step, own]] * 4
            alone["pairs_s"] = [[step, seconds]] * 4

    run.changed(run.proven(case), exchanging)


def of(run, strategy):
    """(what larger sizes of a strategy are predicted, beside what was measured; why others are not)."""
    answers, refusals = beside_measured(run.folder, summarise(run.folder))
    return [one for one in answers if f"/{strategy} " in one.asked.label], refusals


def source(answer, name):
    (found,) = [one for one in answer.asked.sources if one.startswith(f"{name}: ")]
    return found


@pytest.mark.parametrize("timed", [True, False], ids=["layers timed", "by arithmetic"])
@pytest.mark.parametrize("pieces", [(2, 4), (4, 4)], ids=["1 a stage", "4 everywhere"])
def test_four_stages_are_predicted_exactly_from_two(run, timed, pieces):
    if timed:
        one_device(run)
    for held, microbatches in zip((2, 4), pieces, strict=True):
        follow(run, truth(held, microbatches, timed=timed), held)
    (answer,), _ = of(run, "pipeline")
    (four,) = answer.predictions
    assert (answer.asked.fitted_to, four.ranks) == (2, 4)
    assert answer.error(four) == pytest.approx(0, abs=1e-6)
    assert four.bubble == pytest.approx(predict(truth(4, pieces[1], timed=timed), 4).bubble)
    assert answer.asked.scenario.network.between.beta == pytest.approx(SLOW.beta)
    assert source(answer, "link") == "link: what 2 devices took beyond computing and waiting, as if it had no latency"
    assert ("timed" in source(answer, "layers")) == timed
    words = "1 microbatch a stage" if pieces == (2, 4) else "4 microbatches"
    assert answer.asked.label.endswith(f", {words}, gpipe")


def test_a_native_step_that_is_quicker_than_its_stages_scales_them(run):
    one_device(run)
    for held in (2, 4):
        follow(run, truth(held, held, Link(0, 0)), held, native=0.8)
    (answer,), _ = of(run, "pipeline")
    assert answer.error(answer.predictions[0]) == pytest.approx(0, abs=1e-6)
    assert source(answer, "computing").startswith("computing: 0.80 times the staged pass's")
    assert "no time" in source(answer, "link")


def test_an_exchange_of_gradients_tells_the_link_and_the_rest_is_computing(run):
    """What crosses takes as long as before, and only computing takes 1.5 times what the staged pass did."""
    one_device(run)
    data_parallel(run, SLOW)
    for held in (2, 4):
        found = truth(held, held)
        longer = predict(found.slower(compute=1.5), held).iteration / predict(found, held).iteration
        follow(run, found, held, native=longer)
    (answer,), _ = of(run, "pipeline")
    assert answer.error(answer.predictions[0]) == pytest.approx(0, abs=1e-6)
    assert source(answer, "link").startswith("link: comm_only on 2 devices, as if it had no latency, of pytorch/ddp ")
    assert source(answer, "computing").startswith("computing: 1.50 times")


def test_a_link_that_alone_takes_longer_than_the_step_is_not_believed(run):
    data_parallel(run, Link(0, 1e-5))
    follow(run, truth(2, 2, timed=False), 2)
    follow(run, truth(4, 4, timed=False), 4)
    (answer,), _ = of(run, "pipeline")
    assert "beyond computing" in source(answer, "link")
    assert answer.error(answer.predictions[0]) == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize(("strategy", "fewer"), [("hybrid", 2), ("pipeline", 2), ("hybrid", 4)])
def test_twice_the_pipelines_side_by_side_are_predicted_exactly(run, strategy, fewer):
    """From one: a hybrid on as many ranks as stages, or a pipeline, which trains alike; from two, which exchange."""
    one_device(run)
    data_parallel(run, SLOW)
    (fitted,), _ = asked_of(run.folder, None, None)
    interference = fitted.scenario.interference
    assert interference == pytest.approx(0.5, abs=0.1)
    pipeline = truth(2, 4).but(holds_back=True, interference=interference)
    follow(run, pipeline, fewer, strategy)
    case = follow(run, pipeline, 2 * fewer, "hybrid")
    (answer,), refusals = of(run, "hybrid")
    (more,) = answer.predictions
    assert (answer.asked.fitted_to, more.ranks, more.messages) == (fewer, 2 * fewer, 2)
    assert answer.error(more) == pytest.approx(0, abs=1e-6)
    assert case.id in answer.asked.cases
    assert answer.asked.label.endswith(", 2 stages, 4 microbatches, gpipe")
    assert f"pytorch/{strategy} " in source(answer, "stages")
    if fewer == 2:
        assert f" {interference:.2f} s for each second of that exchange" in source(answer, "interference")
    assert not any("hybrid" in why for why in refusals)


def test_pipelines_side_by_side_want_a_link_for_their_gradients(run):
    """What crosses between stages is too little to tell: where it hides, gradients would be exchanged in no time."""
    pipeline = truth(2, 4, timed=False).but(holds_back=True)
    for ranks in (2, 4):
        follow(run, pipeline, ranks, "hybrid")
    (answers, (why,)) = of(run, "hybrid")
    assert answers == []
    assert "nothing says how fast the link of pytorch/hybrid" in why
    assert "by a strategy with a network on each" in why
    (asked,), _ = asked_of(run.folder, None, KnownLink(SLOW, 0.0, "link: as given"))
    assert predict(asked.on(4, "fused"), 4).iteration == pytest.approx(predict(pipeline, 4).iteration)


def test_a_process_that_holds_all_stages_is_divided_over_its_devices(run):
    one_device(run, "tensorflow")
    for held in (2, 4):
        follow(run, truth(held, 4, one_value=False), held, "model_parallel", adapter="tensorflow")
    (answer,), _ = of(run, "model_parallel")
    assert answer.error(answer.predictions[0]) == pytest.approx(0, abs=1e-6)
    assert answer.asked.scenario.update == pytest.approx(0.02)


def test_sizes_of_a_training_take_as_many_microbatches_else_as_many_a_stage(run):
    for held, microbatches in ((2, 2), (2, 8), (4, 4), (4, 8), (4, 16)):
        follow(run, truth(held, microbatches), held)
    follow(run, truth(4, 4), 4, knobs={"schedule": "1f1b"})
    answers, _ = of(run, "pipeline")
    sizes = {one.asked.label.partition(", ")[2]: sorted(one.asked.measured) for one in answers}
    assert sizes == {
        "8 microbatches, gpipe": [2, 4],
        "1 microbatch a stage, gpipe": [2, 4],
        "16 microbatches, gpipe": [4],
        "4 microbatches, 1f1b": [4],
    }


def test_microbatches_that_there_cannot_be_are_refused_with_the_remedy(run):
    one_device(run)
    for held, microbatches in ((2, 1), (4, 2)):
        follow(run, truth(held, microbatches), held)
    (answer,), _ = of(run, "pipeline")
    assert answer.asked.refusal(3) == "3 stages would take 1.5 microbatches, 1/2 a stage; ask for a multiple of 2"
    assert answer.asked.refusal(6) is None
    same = replace(answer.asked, pipelines=replace(answer.asked.pipelines, microbatches=16, by_stage=False))
    assert "24 samples of 3 stages do not divide into 16 microbatches" in same.refusal(3)


def test_in_strong_scaling_stages_share_the_batch(run):
    """A microbatch has as many samples on four devices as on two."""
    one_device(run, batch=2 * BATCH)
    for held in (2, 4):
        follow(run, truth(held, 4).batched(2 / held), held, scaling="strong", batch=2 * BATCH // held)
    (answer,), _ = of(run, "pipeline")
    (four,) = answer.predictions
    assert answer.error(four) == pytest.approx(0, abs=1e-6)
    assert answer.scenario_of(four).batch == BATCH / 2
    alone = predict(answer.asked.alone("fused"), 1)
    fitted = answer.asked.scenario
    assert alone.iteration == pytest.approx(2 * (fitted.own - fitted.update) + fitted.update)
    assert four.efficiency == pytest.approx(four.rate / 4 / alone.rate)


def test_in_strong_scaling_a_pipeline_of_fewer_devices_takes_more_samples_each(run):
    """Two of two devices' samples make no eight microbatches until all are shared out."""
    follow(run, truth(4, 8, timed=False).but(batch=2), 4, scaling="strong", batch=2)
    (asked,), _ = asked_of(run.folder, None, None)
    assert asked.refusal(2) is None
    assert asked.on(2, "fused").microbatches == asked.on(2, "fused").batch * 2 == 8


def test_a_pipeline_is_held_against_one_device_that_has_the_whole_network_and_reads_its_own_input(run):
    follow(run, truth(2, 2, timed=False), 2)
    (asked,), _ = asked_of(run.folder, None, None)
    one, two = Answer(asked, ["fused"], [1, 2]).predictions
    assert one.iteration == pytest.approx(asked.scenario.own)
    assert two.efficiency == pytest.approx(two.rate / (2 * one.rate))
    reading = replace(asked, scenario=asked.scenario.but(read=2 * 0.8 * asked.scenario.own))
    (four,) = Answer(reading, ["fused"], [4]).predictions
    assert four.input_wait > 0
    assert four.efficiency == pytest.approx(asked.scenario.own / four.iteration)


def test_a_knob_of_the_same_name_does_not_join_what_is_not_held_in_parts(run):
    """DDP that takes its batch in pieces is held against one device that does so, too."""
    for pieces in (2, 8):
        knobs = {"microbatches": pieces}
        run.proven(case_of("pytorch", "alexnet", 1, strategy="accumulate", knobs=knobs), slower=pieces)
        run.proven(case_of("pytorch", "alexnet", 2, strategy="accumulate", knobs=knobs), slower=pieces)
    follow(run, truth(2, 2), 2)
    rows = summarise(run.folder)
    baselines = {row.case.knobs["microbatches"]: row.scaling.baseline_id for row in rows if row.scaling}
    alone = {row.case.knobs["microbatches"]: row.id for row in rows if not row.several_devices}
    assert baselines == alone


def test_one_device_is_still_predicted_where_the_others_hold_one_network(run):
    one_device(run)
    follow(run, truth(2, 2), 2)
    found, _ = asked_of(run.folder, None, KnownLink(SLOW, 0.0, "link: as given"))
    assert [one.label.split()[0] for one in found] == ["pytorch/single", "pytorch/pipeline"]


@pytest.mark.parametrize(
    ("strategy", "adapter", "knobs", "named"),
    [
        ("tensor_parallel", "pytorch", {}, "pytorch/tensor_parallel .*no model of one whose layers are"),
        ("branch_parallel", "pytorch", {}, "pytorch/branch_parallel .*whose branches are distributed"),
        ("pipeline", "pytorch", {"schedule": "interleaved"}, "several stages each, in turns"),
        ("pipeline", "elsewhere", {}, "nothing installed here says how elsewhere cuts it"),
    ],
)
def test_networks_held_otherwise_are_refused_by_what_is_cut(run, strategy, adapter, knobs, named):
    follow(run, truth(2, 2, one_value=adapter == "pytorch"), 2, strategy, adapter=adapter, knobs=knobs)
    with pytest.raises(RequestError, match=named):
        asked_of(run.folder, None, None)


def test_another_network_of_the_same_name_is_refused(run):
    case = case_of("pytorch", "alexnet", 2, strategy="pipeline", knobs=KNOBS)
    run.proven(case, declared=declaring(2, 4))
    with raising(RequestError, "alexnet"):
        asked_of(run.folder, None, None)


def test_a_pipeline_without_its_stages_says_so(run):
    one_device(run)
    case = follow(run, truth(2, 2), 2)
    run.changed(case, lambda record: [rank["passes"].pop("staged") for rank in record["ranks"]])
    with pytest.raises(RequestError, match=r"pytorch/pipeline .*lacks the pass `staged`"):
        asked_of(run.folder, None, None)


def test_the_pages_show_stages_beside_their_prediction(run):
    one_device(run)
    for held in (2, 4):
        follow(run, truth(held, held), held)
        follow(run, truth(held, 4 * held).slower(compute=1.3), held)
    follow(run, truth(2, 2), 2, "tensor_parallel")
    charts = [chart for name, chart in charts_of(run.folder) if name.startswith("scaling-")]
    dashed = [line for chart in charts for line in chart.lines if line.kind.startswith("predicted")]
    assert [list(line.x) for line in dashed] == [[2, 4], [2, 4]]
    series = [list(line.x) for chart in charts for line in chart.lines if line.kind == "lead"]
    assert sorted(series) == [[1, 2], [1, 2, 4], [1, 2, 4]]


def test_a_faster_device_a_faster_link_and_more_microbatches_help(run):
    one_device(run)
    for held in (2, 4):
        follow(run, truth(held, held), held)
    (answer,), _ = of(run, "pipeline")
    gains = {gain.change: gain.gain for gain in answer.gains}
    assert gains["a device twice as fast"] > gains["twice the bandwidth"] > 0.01
    assert gains["twice the microbatches"] > 0.1
    now, more = answer.scenario_of(answer.largest), truth(4, 8)
    assert gains["twice the microbatches"] == pytest.approx(predict(more, 4).rate / predict(now, 4).rate - 1)


def asked_by_command(stagebench, run, *options):
    done = stagebench("predict", str(run.folder.path), *options, "--json")
    assert done.code == 0, done.error
    return json.loads(done.stdout), done.out


def test_the_command_asks_about_other_pipelines_and_says_what_it_does_not_predict(stagebench, toys, run):
    toys.manager.register(pytorch)
    for held in (2, 4):
        follow(run, truth(held, held, timed=False), held)
    (found,), rest = asked_by_command(stagebench, run, "--ranks", "2,4,16", "--schedule", "all")
    assert [(one["ranks"], one["schedule"]) for one in found["predictions"]] == [(2, "fused"), (4, "fused")]
    assert found["predictions"][1]["error"] == pytest.approx(0, abs=1e-6)
    assert re.search("16 ranks: alexnet can be cut into 8 stages at most.*ask for fewer", rest)

    words = "--ranks 3,6 --set stages=2 --set microbatches=4 --alpha 0 --beta 1e-9"
    (other,), rest = asked_by_command(stagebench, run, *words.split())
    assert other["measured"] == {}
    assert [one["ranks"] for one in other["predictions"]] == [6]
    assert "on 3 ranks: they are no whole number of pipelines of 2 stages; ask for a multiple of 2" in rest
    asked = predict(truth(2, 4, Link(0, 1e-9), timed=False).but(holds_back=True), 6)
    assert other["predictions"][0]["iteration"] == pytest.approx(asked.iteration)

    error = str(stagebench("predict", str(run.folder.path), "--ranks", "4", "--schedule", "wfbp").error)
    assert "its gradients leave after backward, fused" in error


def test_pipelines_side_by_side_of_one_whose_link_nothing_tells_are_refused(stagebench, toys, run):
    toys.manager.register(pytorch)
    follow(run, truth(2, 4, timed=False), 2)
    words = ("predict", str(run.folder.path), "--ranks", "4", "--set", "stages=2")
    assert "the link by which pipelines of pytorch/pipeline" in str(stagebench(*words).error)
    (found,), _ = asked_by_command(stagebench, run, *words[2:], "--alpha", "0", "--beta", "1e-9")
    assert "changed: pipelines of 2 stages and 4 microbatches" in found["sources"]
    none = stagebench(*words, "--set", "microbatches=0", "--alpha", "0", "--beta", "1e-9")
    assert "the number of microbatches is 0.0; give a finite number above 0" in str(none.error)
