"""Fitting the model to a run: one that the model itself made is met exactly, and what is missing is named."""

import math

import pytest

from stagebench.suite.analysis.summary import summarise
from stagebench.suite.contracts.case import Placement
from stagebench.suite.errors import RequestError
from stagebench.suite.predict.collectives import KnownLink, Link, Network
from stagebench.suite.predict.from_run import MOST_ERROR, asked_of, beside_measured, fit, series_of
from stagebench.suite.predict.prediction import ASSUMED, Answer, predict
from stagebench.suite.predict.scenario import SCHEDULES, LayerCost, Scenario
from stagebench.workloads.networks.resnet import resnet50
from tests.reports.made_run import case_of, declared
from tests.support.errors import raising

LINK = Link(5e-2, 1e-9)  # makes every schedule differ from every other
SIZES = (4e5, 3e7, 2e6, 9e6)
LAYERS = tuple(LayerCost(f"layer{at}", 0.01 * at, 0.02 * at, size) for at, size in enumerate(SIZES, 1))
TRUTH = Scenario(8, LAYERS, Network(LINK), h2d=0.01, update=0.02)


def lasting(one, seconds):
    """Let every step of a pass take so long."""
    count = len(one["step_s"])
    one |= {"step_s": [seconds] * count, "wall_s": seconds * count}


def follow_the_model(run, schedule, ranks, timed=True):
    """A case whose records are what the model predicts; `timed`: its adapter times layers."""
    case = run.proven(case_of("caffempi", ranks=ranks, data="synthetic"))
    cost = TRUTH.network.all_reduce(ranks)
    stages = {"h2d": TRUTH.h2d, "forward": TRUTH.forward, "backward": TRUTH.backward, "update": TRUTH.update}
    whole = {"native": predict(TRUTH.but(schedule=schedule), ranks).iteration, "staged": 2 * TRUTH.own}
    whole |= {"compute_only": TRUTH.own, "comm_only": sum(cost.seconds(layer.bytes) for layer in LAYERS)}

    def exact(record):
        for rank in record["ranks"]:
            for name, one in rank["passes"].items():
                lasting(one, whole[name])
                if name in ("compute_only", "comm_only"):
                    one["pairs_s"] = [[whole["native"], whole[name]]] * 4
                one["io_s"] = one.get("io_s") and [0.0] * len(one["step_s"])
            steps = len(rank["passes"]["staged"]["step_s"])
            rank["passes"]["staged"]["stage_s"] = {name: [seconds] * steps for name, seconds in stages.items()}
            rank["layers"] = [
                {
                    "layer": layer.name,
                    "kind": "conv",
                    "forward_s": layer.forward,
                    "backward_s": layer.backward,
                    "communication_s": cost.seconds(layer.bytes) if timed else 0.0,
                    "bytes": int(layer.bytes),
                }
                for layer in LAYERS
            ]

    run.changed(case, exact)
    return case


def fitted(run, **options):
    """What the model is fitted to of the only series of a run."""
    (series,) = series_of(summarise(run.folder))
    return fit(run.folder, series, **options)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_run_that_follows_the_model_is_predicted_exactly(run, schedule):
    for ranks in (1, 2, 4):
        follow_the_model(run, schedule, ranks)
    asked = fitted(run)
    assert asked.fitted_to == 2
    assert sorted(asked.measured) == [1, 2, 4]
    assert vars(asked.scenario.network.between) == pytest.approx(vars(LINK))
    found = Answer(asked, [asked.scenario.schedule], [2, 4])
    assert [found.error(one) for one in found.predictions] == pytest.approx([0, 0], abs=1e-6)
    assert f"schedule: {schedule}, nearest to what 2 devices did" in asked.sources
    (beside,), refusals = beside_measured(run.folder, summarise(run.folder))
    (four,) = beside.predictions
    assert (four.ranks, beside.error(four), refusals) == (4, pytest.approx(0, abs=1e-6), [])


def test_without_layers_exchanges_all_of_comm_only_is_bandwidth(run):
    follow_the_model(run, "wfbp", 2, timed=False)
    asked = fitted(run)
    comm_only = sum(LINK.alpha * 2 + LINK.beta * layer.bytes for layer in LAYERS)
    assert asked.scenario.network.between.alpha == 0
    assert asked.scenario.network.between.beta == pytest.approx(comm_only / sum(layer.bytes for layer in LAYERS))
    assert asked.scenario.schedule == "wfbp"


def test_exchanges_of_layers_that_lie_near_no_line_tell_nothing_of_the_link(run):
    """The last layer's goes first and may hold all of the wait for another rank."""

    def waited(record):
        for rank in record["ranks"]:
            for layer, seconds in zip(rank["layers"], (0.045, 0.03, 0.06, 0.005), strict=True):
                layer["communication_s"] = seconds

    run.changed(follow_the_model(run, "wfbp", 2), waited)
    asked = fitted(run)
    assert "link: comm_only on 2 devices, as if it had no latency" in asked.sources


REACH = 4.302653 / 3**0.5  # Student's t with 2 degrees of freedom, over the root of as many values


def scatter(run, case, name, by=0.1):
    """Of three processes one takes less in a pass and one more; the mean is then off by up to `by * REACH`."""
    for repeat, times in enumerate((1 - by, 1.0, 1 + by)):
        run.changed(case, taking(times, name), [repeat])


def test_a_link_is_as_uncertain_as_the_exchange_that_tells_it(run):
    case = follow_the_model(run, "sequential", 2, timed=False)
    sure = fitted(run).scenario
    scatter(run, case, "comm_only")
    unsure = fitted(run).scenario
    assert sure.link_error == pytest.approx(0, abs=1e-9)
    assert unsure.link_error == pytest.approx(0.1 * REACH, rel=1e-5)
    narrow, wide = predict(sure, 2), predict(unsure, 2)
    assert wide.iteration == pytest.approx(narrow.iteration)
    assert wide.low < predict(unsure.slower(link=0.8), 2).iteration < narrow.low
    assert narrow.high < predict(unsure.slower(link=1.2), 2).iteration < wide.high
    scatter(run, case, "comm_only", 0.9)
    assert fitted(run).scenario.link_error == MOST_ERROR, "it is never wholly unknown"


def test_networks_that_meet_the_same_link_tell_its_latency(run):
    for workload, size in (("alexnet", 240_000_000), ("resnet50", 100_000_000)):
        case = run.proven(case_of("caffempi", workload, 2))
        run.changed(case, lambda record, size=size: exchanging(record, size, 0.01 + 1e-9 * size))
        run.changed(case, without_times_of_exchanges)
    asked, *_ = asked_of(run.folder, None, None)[0]
    assert vars(asked.scenario.network.between) == pytest.approx({"alpha": 0.005, "beta": 1e-9, "gamma": 0.0})
    assert "link: comm_only of several networks on 2 devices" in asked.sources
    together, _ = asked_of(run.folder, None, None)
    (one,), _ = asked_of(run.folder, "alexnet", None)
    (same,) = (each for each in together if each.label == one.label)
    assert "link: comm_only of several networks on 2 devices" in one.sources
    assert (same.sources, same.scenario.network) == (one.sources, one.scenario.network)


def test_a_link_of_two_networks_is_as_uncertain_as_the_difference_of_their_exchanges(run):
    def even(record):
        """What is exposed does not scatter."""
        for rank in record["ranks"]:
            turns = rank["passes"]["compute_only"]["pairs_s"]
            rank["passes"]["compute_only"]["pairs_s"] = [[0.2, 0.1]] * len(turns)

    long, short = 0.25, 0.11
    for workload, size, seconds in (("alexnet", 240_000_000, long), ("resnet50", 100_000_000, short)):
        case = run.proven(case_of("caffempi", workload, 2))
        run.changed(case, lambda record, size=size, seconds=seconds: exchanging(record, size, seconds))
        run.changed(case, even)
        scatter(run, case, "comm_only")
    scenario = asked_of(run.folder, "alexnet", None)[0][0].scenario
    assert scenario.link_error == pytest.approx(0.1 * REACH * math.hypot(long, short) / (long - short), rel=1e-5)


def exchanging(record, size, seconds):
    for rank in record["ranks"]:
        one = rank["passes"]["comm_only"]
        lasting(one, seconds)
        one["pairs_s"] = [[0.2, seconds]] * len(rank["passes"]["compute_only"]["pairs_s"])
        rank["passes"]["native"]["gradient_bytes"] = size


def without_times_of_exchanges(record):
    for rank in record["ranks"]:
        for layer in rank["layers"] or ():
            layer["communication_s"] = 0.0


def taking(times, *names):
    """A change to a record: these passes take so many times as long."""

    def change(record):
        for passes in (rank["passes"] for rank in record["ranks"]):
            for one in (passes[name] for name in names):
                one |= {"step_s": [times * each for each in one["step_s"]], "wall_s": times * one["wall_s"]}
                if one.get("pairs_s"):
                    one["pairs_s"] = [[native, times * other] for native, other in one["pairs_s"]]
            if "native" in names:
                alone = passes["compute_only"]
                alone["pairs_s"] = [[times * native, own] for native, own in alone["pairs_s"]]

    return change


def test_ranks_that_wait_for_each_other_are_not_charged_to_the_exchange(run):
    """Else a start-up that grows with the number of ranks would multiply it."""
    run.changed(follow_the_model(run, "sequential", 2), taking(3.0, "native"))
    (series,) = series_of(summarise(run.folder))
    asked = fit(run.folder, series)
    scenario = asked.scenario
    assert scenario.interference == 1.0
    assert predict(scenario, 2).iteration == pytest.approx(series.budget.native)
    two, many = (predict(scenario, ranks) for ranks in (2, 64))
    assert two.stragglers < many.stragglers < 6 * two.stragglers
    assert asked.sources[-1].startswith("stragglers: ")


def test_the_slowest_rank_takes_as_much_longer_as_was_waited_for_it(run):
    def waited(record):
        """The ranks take turns to come last: one waits for 1 ms in the mean, the other for 2."""
        for rank, barrier in zip(record["ranks"], ([0.002, 0.0], [0.0, 0.004]), strict=True):
            staged = rank["passes"]["staged"]
            staged["stage_s"]["skew"] = barrier * (len(staged["step_s"]) // 2)

    case = follow_the_model(run, "sequential", 2)
    run.changed(case, waited)
    run.changed(case, scattering)
    (series,) = series_of(summarise(run.folder))
    asked = fit(run.folder, series)
    assert "jitter: ranks wait 1 ms for the last one" in asked.sources
    assert (asked.scenario.jitter.slowest(2) - 1) * series.compute == pytest.approx(1e-3)
    assert asked.scenario.jitter.slowest(8) > asked.scenario.jitter.slowest(2)


def scattering(record):
    """Steps that wait for no other rank, with the same mean."""
    for rank in record["ranks"]:
        alone = rank["passes"]["compute_only"]
        alone["step_s"] = [
            seconds * (1.1 if number % 2 else 0.9)
            for number, seconds in enumerate(alone["step_s"][: len(alone["step_s"]) // 2 * 2])
        ]


def test_what_a_run_took_beyond_its_exchange_grows_with_it(run):
    case = follow_the_model(run, "sequential", 2)
    run.changed(case, taking(1.2, "native"))
    scenario = fitted(run).scenario
    assert scenario.schedule == "sequential"
    exact, found = predict(TRUTH.but(schedule="sequential"), 2), predict(scenario, 2)
    assert found.iteration == pytest.approx(1.2 * exact.iteration)
    assert scenario.interference == pytest.approx(0.2 * exact.iteration / exact.exchanging)
    on_eight = predict(scenario, 8)
    assert on_eight.exposed == pytest.approx((1 + scenario.interference) * on_eight.exchanging)
    assert on_eight.exchanging > found.exchanging


def test_one_device_wants_a_link(run):
    follow_the_model(run, "wfbp", 1)
    with pytest.raises(RequestError, match=r"--alpha.*--beta.*--comm"):
        fitted(run)
    asked = fitted(run, link=KnownLink(LINK, 0.0, "link: as given"))
    assert predict(asked.scenario, 8).iteration == pytest.approx(predict(TRUTH, 8).iteration)


def of_resnet50(ranks, **changes):
    return case_of("pytorch", "resnet50", ranks, graph_digest=resnet50().digest, **changes)


def test_layers_without_times_are_divided_by_arithmetic(run):
    case = run.proven(of_resnet50(2))
    asked = fitted(run)
    assert "layers: no times; divided by multiply-accumulates" in asked.sources
    assert sum(layer.bytes for layer in asked.scenario.layers) == 4 * 25_557_032
    assert asked.scenario.batch == case.batch
    assert asked.scenario.read > 0
    assert asked.scenario.jitter.slowest(4) > 1.0
    assert 0 < asked.scenario.compute_error < 0.1


def test_another_network_than_the_run_s_or_of_its_name_is_refused(run):
    run.proven(case_of("pytorch", "resnet50", 2))
    with raising(RequestError, "resnet50"):
        fitted(run)
    with raising(RequestError, "alexnet"):
        asked_of(run.folder, "alexnet", None)


@pytest.mark.parametrize(
    ("other", "named"),
    [
        ({"synchronous": False}, "asynchronous"),
        ({"model_parallel_size": 2}, "hold one network together"),
        ({"separable": ["forward", "backward"]}, "its exchange is a part of another stage"),
    ],
)
def test_what_the_model_does_not_describe_is_refused(run, other, named):
    run.proven(of_resnet50(2), declared={**declared(), **other})
    with pytest.raises(RequestError, match=named):
        asked_of(run.folder, None, None)


def test_forward_and_backward_that_are_one_are_divided(run):
    case = run.proven(of_resnet50(1))

    def together(record):
        stages = record["ranks"][0]["passes"]["staged"]["stage_s"]
        stages["forward"] = [0.0] * len(stages["forward"])

    run.changed(case, together)
    scenario = fitted(run, link=KnownLink(LINK, 0.0, "")).scenario
    assert scenario.forward > 0.3 * scenario.backward > 0


def test_a_larger_size_needs_no_breakdown_and_nodes_are_a_series_of_their_own(run):
    for ranks in (2, 4):
        run.proven(of_resnet50(ranks))
    run.changed(of_resnet50(4), without("staged"))
    placement = Placement(nodes=2, ranks_per_node=2, launcher="local")
    run.proven(of_resnet50(4, placement=placement))
    one_node, nodes = series_of(summarise(run.folder))
    assert (one_node.devices, sorted(one_node.measured)) == (2, [2, 4])
    assert (nodes.devices, sorted(nodes.measured)) == (4, [4])
    assert "2 ranks a node" in nodes.label


def without(name):
    return lambda record: [rank["passes"].pop(name) for rank in record["ranks"]]


@pytest.mark.parametrize("name", ["staged", "compute_only"])
def test_a_run_without_the_passes_is_refused_by_their_names(run, name):
    case = run.proven(case_of("pytorch", "resnet50", 2))
    run.changed(case, without(name))
    with pytest.raises(RequestError, match=f"the pass `{name}`"):
        asked_of(run.folder, None, None)


@pytest.mark.parametrize("mark", ["proof failed", "non-finite loss"])
def test_nothing_is_learnt_from_a_training_that_went_wrong(run, monkeypatch, mark):
    run.proven(case_of("pytorch", "resnet50", 2))
    rows = summarise(run.folder)
    rows[0].marks.append(mark)
    monkeypatch.setattr("stagebench.suite.predict.from_run.summarise", lambda folder: rows)
    with raising(RequestError, mark):
        asked_of(run.folder, None, None)


def test_what_cannot_be_predicted_is_said_beside_what_can_and_alone_refused(run):
    run.refuse(case_of("pytorch", "resnet50", 2), "unavailable", "there is no PyTorch here")
    with pytest.raises(RequestError, match=r"not measured.*no PyTorch"):
        asked_of(run.folder, None, None)
    run.proven(case_of("caffempi", "alexnet", 2))
    for ranks in (2, 4):
        run.changed(run.proven(case_of("caffempi", "resnet50", ranks)), without("staged"))
    found, refusals = asked_of(run.folder, None, None)
    assert [one.label.split()[1] for one in found] == ["alexnet"]
    assert any(" and 1 more: it lacks the pass `staged`" in refusal for refusal in refusals)


def test_without_a_larger_size_nothing_stands_beside_and_without_a_link_it_is_said_why(run):
    run.proven(of_resnet50(1))
    assert beside_measured(run.folder, summarise(run.folder)) == ([], [])
    run.proven(of_resnet50(2))
    (found,), _ = beside_measured(run.folder, summarise(run.folder))
    assert (found.asked.fitted_to, found.predictions) == (2, [])
    run.proven(of_resnet50(4))
    (found,), _ = beside_measured(run.folder, summarise(run.folder))
    assert [one.ranks for one in found.predictions] == [4]
    run.changed(of_resnet50(2), without("comm_only"))
    answers, (why,) = beside_measured(run.folder, summarise(run.folder))
    assert answers == []
    assert "nothing says how fast the link of pytorch/ddp resnet50" in why


def test_strong_scaling_is_a_series_whose_ranks_share_the_batch(run):
    run.proven(of_resnet50(1, batch=32))
    for ranks in (2, 4):
        run.proven(of_resnet50(ranks, batch=32 // ranks, scaling="strong"))
    (series,) = series_of(summarise(run.folder))
    assert (series.devices, series.together, sorted(series.measured)) == (2, 32, [1, 2, 4])
    assert "batch 32 of all devices together" in series.label
    asked = fit(run.folder, series)
    assert asked.scenario.batch == 16
    assert ASSUMED in asked.sources
    assert asked.on(2, "wfbp") == asked.scenario.but(schedule="wfbp")
    half, whole = asked.on(4, "wfbp"), asked.on(1, "wfbp")
    assert (half.batch, half.update) == (8, asked.scenario.update)
    assert half.forward == pytest.approx(asked.scenario.forward / 2)
    two, four = Answer(asked, ["wfbp"], [2, 4]).predictions
    assert four.rate == pytest.approx(predict(half, 4).rate)
    assert four.efficiency == pytest.approx(four.rate / 4 / predict(whole, 1).rate)
    assert four.iteration < two.iteration
    with pytest.raises(RequestError, match="on 64 ranks: there are only 32 samples; ask for 32 at most"):
        asked.on(64, "wfbp")


@pytest.mark.parametrize("other", [8, 64])
def test_two_batches_tell_how_a_layer_s_seconds_depend_on_the_batch(run, other):
    """In strong scaling, each layer takes a + b x batch, as another batch on as many devices shows."""

    def timed(batch):
        def change(record):
            for rank in record["ranks"]:
                for name, share in (("native", 3), ("compute_only", 3), ("staged", 3), ("comm_only", 0.1)):
                    one, seconds = rank["passes"][name], share * (0.02 + 0.001 * batch)
                    lasting(one, seconds)
                    if name in ("compute_only", "comm_only"):
                        one["pairs_s"] = [[3 * (0.02 + 0.001 * batch), seconds]] * 4
                stages = {"forward": 0.02 + 0.001 * batch, "backward": 0.04 + 0.002 * batch}
                steps = len(rank["passes"]["staged"]["step_s"])
                rank["passes"]["staged"]["stage_s"] = {name: [value] * steps for name, value in stages.items()}
                rank.pop("layers", None)

        return change

    for ranks, batch, scaling in ((2, 16, "strong"), (2, other, "weak")):
        case = of_resnet50(ranks, batch=batch, scaling=scaling, data="synthetic")
        run.changed(run.proven(case), timed(batch))
    asked = next(one for one in asked_of(run.folder, None, None)[0] if one.together)
    assert any(source.startswith("batch: 56% of forward and backward do not change") for source in asked.sources)
    for ranks in (2, 4, 32):
        scenario, batch = asked.on(ranks, "wfbp"), 32 / ranks
        assert scenario.forward + scenario.backward == pytest.approx(0.06 + 0.003 * batch)


def test_a_node_s_own_link_is_what_the_run_measured_on_one_node(run):
    def of_nodes(nodes):
        return of_resnet50(2 * nodes, placement=Placement(nodes=nodes, ranks_per_node=2, launcher="local"))

    size = 4 * 25_557_032
    for case, seconds in ((of_resnet50(2), 0.01), (of_nodes(2), 0.09)):
        made = run.proven(case)
        run.changed(made, lambda record, seconds=seconds: exchanging(record, size, seconds))
    asked, _ = asked_of(run.folder, None, None)
    one_node, nodes = (each.scenario.network for each in asked)
    assert (one_node.within, one_node.ranks_per_node) == (None, 1)
    assert nodes.ranks_per_node == 2
    assert nodes.within == one_node.between
    assert nodes.between.beta > nodes.within.beta
    assert any(source.startswith("within a node, link: ") for source in asked[1].sources)
