"""The parts of the performance model: what an exchange costs, what travels together, who waits, what comes out."""

import itertools
import math
import random

import numpy as np
import pytest

from stagebench.suite.analysis.links import fitted
from stagebench.suite.errors import RequestError
from stagebench.suite.predict.collectives import ALGORITHMS, Cost, Link, Network, of_fit
from stagebench.suite.predict.data_parallel import BUCKET, FIRST_BUCKET, messages
from stagebench.suite.predict.prediction import helps, predict, timeline
from stagebench.suite.predict.scenario import SCHEDULES, Jitter, LayerCost, Scenario, by_arithmetic, joined
from stagebench.workloads.networks.resnet import resnet50

LINK_OF_TEN_GBIT = Link(50e-6, 0.8e-9, 0.1e-9)


def scenario_of(count=6, seed=0, **changes):
    draw = random.Random(seed)
    layers = tuple(
        LayerCost(f"layer{i}", draw.uniform(1e-3, 5e-3), draw.uniform(1e-3, 9e-3), draw.choice([2e4, 3e5, 8e6]))
        for i in range(count)
    )
    return Scenario(**{"batch": 8, "layers": layers, "network": Network(LINK_OF_TEN_GBIT), **changes})


@pytest.mark.parametrize(
    ("algorithm", "ranks", "alphas", "betas", "gammas"),
    [
        ("ring", 2, 2, 1, 0.5),
        ("ring", 8, 14, 1.75, 0.875),
        ("tree", 8, 6, 2, 1),
        ("tree", 5, 6, 2, 1),
        ("doubling", 8, 3, 3, 3),
        ("doubling", 6, 4, 4, 3),
        ("halving", 8, 6, 1.75, 0.875),
        ("halving", 6, 6, 3.5, 1.75),
        ("server", 8, 2, 16, 8),
    ],
)
def test_an_all_reduce_costs_what_the_literature_says(algorithm, ranks, alphas, betas, gammas):
    link = LINK_OF_TEN_GBIT
    cost = Network(link, algorithm=algorithm).all_reduce(ranks)
    assert cost.start == pytest.approx(alphas * link.alpha)
    assert cost.per_byte == pytest.approx(betas * link.beta + gammas * link.gamma)


def test_servers_share_the_load_and_a_hierarchy_crosses_nodes_with_one_copy():
    costs = [Network(Link(0, 1), algorithm="server", servers=count).all_reduce(8).per_byte for count in (1, 4, 8, 16)]
    assert costs == [16, 4, 2, 2]
    within, between = Link(1e-6, 1e-11), Link(1e-4, 1e-9)
    network = Network(between, within, ranks_per_node=4, algorithm="hierarchical")
    one, four = network.all_reduce(4), network.all_reduce(16)
    assert (one.start, one.per_byte) == pytest.approx((6e-6, 1.5e-11))
    assert (four.start, four.per_byte) == pytest.approx((6e-6 + 6e-4, 1.5e-11 + 1.5e-9))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_link_is_found_again_in_what_it_costs(algorithm):
    network = Network(Link(3e-5, 2e-9), algorithm=algorithm)
    assert vars(network.link_of(6, network.all_reduce(6))) == pytest.approx(vars(network.between))


def end_of(layers, groups, cost):
    """When the last message of these groups has arrived."""
    end = 0.0
    for group in groups:
        ready = sum(layer.backward for layer in layers[: group[-1] + 1])
        end = max(end, ready) + cost.seconds(sum(layers[index].bytes for index in group))
    return end


def every_cut(count):
    for cuts in itertools.product([False, True], repeat=count - 1):
        ends = [index + 1 for index, cut in enumerate(cuts) if cut] + [count]
        yield [tuple(range(begin, end)) for begin, end in zip([0, *ends], ends, strict=False)]


@pytest.mark.parametrize("seed", range(20))
def test_no_way_to_merge_messages_ends_earlier(seed):
    layers = scenario_of(9, seed).layers
    cost = Cost(random.Random(seed).uniform(0, 5e-3), random.Random(-seed).uniform(1e-10, 2e-9))
    found = messages("merged", layers, cost)
    assert [index for group in found for index in group] == list(range(9))
    best = min(end_of(layers, cut, cost) for cut in every_cut(9))
    assert end_of(layers, found, cost) == pytest.approx(best, rel=1e-12)


def test_buckets_are_filled_as_ddp_fills_them_and_an_interval_holds_slower_and_faster_rates():
    sizes = [FIRST_BUCKET - 4, 8, BUCKET, 4, 4]
    layers = [LayerCost(str(index), 0, 1, size) for index, size in enumerate(sizes)]
    assert messages("buckets", layers, Cost(0, 0)) == [(0, 1), (2,), (3, 4)]
    sure, unsure = predict(scenario_of(), 8), predict(scenario_of(compute_error=0.05, link_error=0.1), 8)
    assert sure.low == sure.iteration == sure.high
    slower = predict(scenario_of().slower(compute=1.05), 8).iteration
    assert unsure.low < sure.iteration < slower <= unsure.high
    assert unsure.rates[0] < unsure.rate < unsure.rates[1]
    device = predict(scenario_of(compute_error=0.05), 8)
    whole = predict(scenario_of(compute_error=0.05, model_error=0.1), 8)
    apart = [math.hypot(end - device.iteration, 0.1 * device.iteration) for end in (device.low, device.high)]
    assert [whole.iteration - whole.low, whole.high - whole.iteration] == pytest.approx(apart), "in quadrature"


def test_the_slowest_of_ranks_is_known_by_distribution_and_by_measured_iterations():
    assert Jitter.normal(0.1).slowest(2) == pytest.approx(1 + 0.1 / math.sqrt(math.pi), abs=1e-4)
    assert Jitter.normal(0.1).slowest(1) == pytest.approx(1)
    jitter = Jitter.measured([1.0, 1.0, 1.0, 2.0])
    assert jitter.slowest(2) == pytest.approx((9 / 16 * 1 + 7 / 16 * 2) / 1.25)
    assert jitter.slowest(4096) == pytest.approx(2 / 1.25)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_parts_of_an_iteration_sum_to_it_and_one_rank_exchanges_nothing(schedule):
    found = predict(scenario_of(schedule=schedule, read=1.0, update=1e-3, jitter=Jitter.normal(0.02)), 16)
    assert found.stages + found.stragglers + found.exposed + found.input_wait == pytest.approx(found.iteration)
    assert min(found.stragglers, found.exposed, found.input_wait) >= 0
    assert found.efficiency == pytest.approx(1.0 / found.iteration)  # one rank waits for its input, too
    scenario = scenario_of(schedule=schedule, update=1e-3)
    alone = predict(scenario, 1)
    assert (alone.iteration, alone.efficiency) == pytest.approx((scenario.own, 1))
    assert (alone.messages, alone.exchanging, alone.exposed) == (0, 0, pytest.approx(0))
    line = timeline(scenario, 8)
    path = line.critical_path
    assert (path[0].begin, path[-1].end) == (0, line.seconds)
    assert all(one.end == after.begin for one, after in itertools.pairwise(path))


def test_the_critical_path_in_words_and_a_link_busy_with_one_message_at_a_time():
    layers = (LayerCost("conv", 0.01, 0.02, 1e6), LayerCost("fc", 0.005, 0.01, 5e7))
    words = timeline(Scenario(8, layers, Network(Link(0, 1e-9))), 2).words
    assert words == "forward 15 ms, then backward of fc 10 ms, then 2 messages of fc to conv 51 ms"
    spans = timeline(scenario_of(seed=3), 8).messages
    assert all(one.end <= after.begin for one, after in itertools.pairwise(spans))


def test_arithmetic_divides_an_iteration_and_layers_without_gradients_join_the_one_before():
    layers = by_arithmetic(resnet50(), 0.25, 8)
    assert sum(layer.forward + layer.backward for layer in layers) == pytest.approx(0.25)
    assert sum(layer.bytes for layer in layers) == 4 * 25_557_032
    by_name = {layer.name: layer for layer in layers}
    assert by_name["fc"].backward == pytest.approx(2 * by_name["fc"].forward)
    assert by_name["conv1"].backward == pytest.approx(by_name["conv1"].forward)
    relu = LayerCost("relu", 1, 2, 0)
    found = joined((relu, LayerCost("conv", 10, 20, 5), relu, relu, LayerCost("fc", 3, 4, 6)))
    assert found == (LayerCost("conv", 13, 26, 5), LayerCost("fc", 3, 4, 6))


@pytest.mark.parametrize(("sizes", "times"), [(3, 12.7062), (4, 4.3027), (12, 2.2281)])
def test_a_fitted_link_is_as_uncertain_as_the_fewness_of_its_sizes(sizes, times):
    noise = np.random.default_rng(1)
    size = 1e5 * np.arange(1, sizes + 1)
    found = fitted(size, (1e-3 + 1e-8 * size) * noise.uniform(0.99, 1.01, sizes))
    error = of_fit(found, 2, Network(Link(0.0, 0.0)), "measured").error
    assert error == pytest.approx(times * found.beta_error / found.beta, rel=1e-4)


def test_another_batch_leaves_a_layer_its_fixed_seconds():
    """Seconds of a layer are a + b x batch, whatever the batch was before."""
    layer = LayerCost("fc", 0.01, 0.02, 5e7, fixed=0.4)
    scenario = Scenario(8, (layer,), Network(Link(0.0, 0.0)), h2d=0.001, update=0.002)
    for batch in (1, 8, 32):
        found = scenario.batched(2).batched(batch / 16)
        assert found.forward + found.backward == pytest.approx(0.012 + 0.018 * batch / 8)
        assert (found.batch, found.update, found.h2d) == pytest.approx((batch, 0.002, 0.001 * batch / 8))


def test_what_would_help_most_comes_first_and_on_one_rank_the_device():
    bound = scenario_of(schedule="fused", network=Network(Link(0, 1e-7)))
    gains = helps(bound, 8)
    assert gains == sorted(gains, key=lambda each: -each.gain)
    by_change = {gain.change: gain.gain for gain in gains}
    assert by_change["twice the bandwidth"] > 0.9
    assert by_change["half the latency"] == pytest.approx(0)
    starving = helps(scenario_of(read=10.0), 2)[0]
    assert (starving.change, starving.gain) == ("twice the readers", pytest.approx(1, abs=0.01))
    faster = {gain.change: gain.gain for gain in helps(scenario_of(), 1)}
    assert faster["a device twice as fast"] == pytest.approx(1)
    assert faster["twice the bandwidth"] == pytest.approx(0)


def gains_of(scenario, ranks=8):
    return {gain.change: gain.gain for gain in helps(scenario, ranks)}


def exchanged(per_byte, **network):
    """(One message without a start-up; seconds that a device computes; seconds of its gradients on the link, once)."""
    scenario = scenario_of(schedule="fused", network=Network(Link(0, per_byte), **network))
    return scenario, scenario.own, per_byte * sum(layer.bytes for layer in scenario.layers)


def test_halved_bytes_more_servers_and_even_ranks_gain_what_they_save():
    scenario, own, moved = exchanged(1e-8)
    gains = gains_of(scenario)
    ring = 1.75 * moved
    expected = pytest.approx((own + ring) / (own + ring / 2) - 1)
    assert gains["twice the bandwidth"] == expected
    assert gains["half the bytes, as gradients of 16 bits (compressing costs nothing here)"] == expected
    scenario, own, moved = exchanged(1e-8, algorithm="server", servers=2)
    expected = (own + 8 * moved) / (own + 4 * moved) - 1  # each has what 4 of the 8 ranks send and get, then 2
    assert gains_of(scenario)["twice the parameter servers"] == pytest.approx(expected)
    assert "twice the parameter servers" not in gains_of(exchanged(1e-8)[0])
    words, jitter = "ranks that all take the same time", Jitter.normal(0.1)
    free = scenario_of(network=Network(Link(0, 0)))
    assert gains_of(free.but(jitter=jitter))[words] == pytest.approx(jitter.slowest(8) - 1)
    assert words not in gains_of(free)


@pytest.mark.parametrize(
    ("link", "best", "steps"), [(Link(1e-2, 0), "doubling", 14 / 3), (Link(0, 1e-7), "halving", 1.0)]
)
def test_of_flat_algorithms_only_the_best_is_named(link, best, steps):
    """Of a ring of 8: 14 start-ups, or the fewest bytes that there are."""
    scenario = scenario_of(schedule="fused", network=Network(link))
    (named,) = [gain for gain in helps(scenario, 8) if gain.change.startswith("all-reduce by ")]
    ring = predict(scenario, 8).exposed
    assert named.change == f"all-reduce by {best}"
    assert named.gain == pytest.approx((scenario.own + ring) / (scenario.own + ring / steps) - 1)


@pytest.mark.parametrize("own", SCHEDULES)
def test_of_other_schedules_only_the_best_is_named(own):
    scenario = scenario_of(schedule=own, network=Network(Link(2e-4, 1e-9)))
    rates = {name: predict(scenario.but(schedule=name), 8).rate for name in SCHEDULES}
    (named,) = [gain for gain in helps(scenario, 8) if gain.change.startswith("schedule ")]
    assert named.change != f"schedule {own}"
    assert named.gain == pytest.approx(rates[named.change.removeprefix("schedule ")] / rates[own] - 1)
    assert named.gain == pytest.approx(max(rate for name, rate in rates.items() if name != own) / rates[own] - 1)


@pytest.mark.parametrize(("ranks", "advised"), [(16, True), (18, False)])
def test_a_hierarchy_is_advised_only_where_the_ranks_fill_the_nodes(ranks, advised):
    slow_between = scenario_of(schedule="fused", network=Network(Link(0, 1e-7), Link(0, 1e-10), 4))
    assert ("all-reduce by hierarchical" in {gain.change for gain in helps(slow_between, ranks)}) is advised


@pytest.mark.parametrize(
    ("nonsense", "named"),
    [
        (lambda: Link(0, math.nan), "beta of a link is nan"),
        (lambda: Network(Link(0, 0), ranks_per_node=0), "ranks per node is 0"),
        (lambda: Network(Link(0, 0)).link_of(1, Cost(0, 1)), "measure two"),
        (lambda: scenario_of(batch=0), "batch is 0"),
        (lambda: scenario_of(layers=()), "seconds of an iteration on one device is 0"),
        (lambda: scenario_of(compute_error=1.5), "compute_error is 1.5"),
        (lambda: LayerCost("fc", -1, 0, 0), "forward of layer 'fc' is -1"),
        (lambda: Jitter.normal(-0.1), "jitter is -0.1"),
        (lambda: predict(scenario_of(), 0), "0 ranks"),
    ],
)
def test_nonsense_is_refused_by_name(nonsense, named):
    with pytest.raises(RequestError, match=named):
        nonsense()
