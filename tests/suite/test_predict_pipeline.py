"""Pipelines and their replicas: the bubble that is known, the best cut, and a simulation by simpy of the same."""

import random
from dataclasses import replace
from itertools import combinations, pairwise

import pytest
import simpy

from stagebench.suite.errors import RequestError
from stagebench.suite.predict.collectives import Link, Network
from stagebench.suite.predict.pipeline import cut
from stagebench.suite.predict.prediction import helps, predict, timeline
from stagebench.suite.predict.scenario import Jitter, LayerCost, Scenario, Tied, tied
from stagebench.workloads.networks.gpt import gpt_char

FREE = Network(Link(0, 0))


def layers_of(seed, count=12):
    draw = random.Random(seed)
    return tuple(
        LayerCost(str(index), draw.uniform(1, 3) / 1e3, draw.uniform(2, 6) / 1e3, draw.choice([1e5, 8e6]), 4e5)
        for index in range(count)
    )


def even(stages, microbatches, **changes):
    layers = tuple(LayerCost(str(index), 0.01, 0.02, 1e6, 1e5) for index in range(stages))
    values = {"network": FREE, "schedule": "fused", "stages": stages, "microbatches": microbatches}
    return Scenario(8, layers, **{**values, **changes})


@pytest.mark.parametrize(("stages", "microbatches"), [(2, 1), (4, 1), (4, 8), (3, 7)])
def test_even_stages_have_the_bubble_that_is_known(stages, microbatches):
    found = predict(even(stages, microbatches), stages)
    assert found.bubble / found.stages == pytest.approx((stages - 1) / microbatches)
    assert found.exposed == pytest.approx(0)
    assert found.rate == pytest.approx(stages * 8 / found.iteration)


def test_replicas_exchange_cuts_are_crossed_and_a_stage_may_hold_up_the_others():
    sending = even(2, 4, network=Network(Link(1e-3, 0)))
    alone, twice = predict(sending, 2), predict(sending, 4)
    assert alone.exposed == pytest.approx(2e-3)  # the first microbatch on its way, and the last one's gradient
    assert alone.messages == 0
    assert twice.messages == 2
    assert twice.iteration == pytest.approx(alone.iteration + 2e-3)  # stage 0's, a ring of two
    sending = even(2, 4, network=Network(Link(1e-3, 0)), holds_back=True)
    alone, twice = predict(sending, 2), predict(sending, 4)
    assert alone.iteration == predict(sending.but(holds_back=False), 2).iteration
    assert twice.iteration == pytest.approx(alone.iteration + 4e-3)  # both stages', one after the other


def test_stages_sum_up_the_gradients_of_a_tied_weight_before_they_update():
    (weight,) = tied(gpt_char())
    assert weight == ((0, len(gpt_char().layers) - 1), 4 * 256 * 128)
    sending = even(2, 4, network=Network(Link(1e-3, 0)), update=0.01)
    whole, apart = (predict(sending.but(tied=(Tied(places, 8.0),)), 2) for places in ((0, 0), (0, 1)))
    assert whole == predict(sending, 2)
    assert apart.messages == 1
    assert apart.iteration == pytest.approx(whole.iteration + 2e-3)  # a ring of two, when stage 0 has ended
    assert "tied weights" in {span.lane for span in timeline(sending.but(tied=(Tied((0, 1), 8.0),)), 2).spans}


@pytest.mark.parametrize(
    ("ranks_per_node", "crossings", "two_replicas"),
    [
        (4, 2e-3, 2e-3),  # a node holds two replicas
        (2, 2e-3, 8e-3),  # ... one
        (1, 8e-3, 8e-3),  # ... one stage
    ],
)
def test_stages_and_replicas_inside_a_node_use_its_own_link(ranks_per_node, crossings, two_replicas):
    """It begins a message in 1 ms, and the one between nodes in 4; see the crossings above."""
    sending = even(2, 4, network=Network(Link(4e-3, 0), Link(1e-3, 0), ranks_per_node))
    alone, twice, four = (predict(sending, ranks) for ranks in (2, 4, 8))
    assert alone.exposed == pytest.approx(crossings)
    assert twice.iteration == pytest.approx(alone.iteration + two_replicas)
    assert four.iteration == pytest.approx(alone.iteration + 6 * 4e-3)  # a ring of four, over several nodes


@pytest.mark.parametrize(
    ("read", "iteration", "waited", "exposed"),
    [
        (0.40, 0.200, 0.125, 0.0),  # the input takes longer than all else
        (0.16, 0.083, 0.005, 0.003),  # ... longer than without sending
        (0.10, 0.083, 0.0, 0.008),  # ... less than that
    ],
)
def test_a_pipeline_waits_for_its_input(read, iteration, waited, exposed):
    """Two readers. Computing takes 60 ms and the bubble 15; sending, 4 ms on the way there and 4 on the way back."""
    found = predict(even(2, 4, network=Network(Link(4e-3, 0)), read=read, readers=2), 2)
    parts = (found.stages, found.bubble, found.input_wait, found.exposed, found.iteration)
    assert parts == pytest.approx((0.06, 0.015, waited, exposed, iteration))


@pytest.mark.parametrize("seed", range(20))
def test_no_other_cut_has_a_faster_slowest_stage(seed):
    draw = random.Random(seed)
    layers = tuple(replace(layer, activations=draw.choice([4e5, 6e6])) for layer in layers_of(seed, 9))

    def slowest(parts):
        crossing = [1e-9 * part[-1].activations for part in parts[:-1]] + [0]
        return max(
            max(count / 5 * sum(layer.forward for layer in part), count / 5 * cross)
            + max(count / 5 * sum(layer.backward for layer in part), count / 5 * cross)
            for part, cross in zip(parts, crossing, strict=True)
        )

    for count in (2, 3, 4):
        borders = ([0, *inner, 9] for inner in combinations(range(1, 9), count - 1))
        best = min(slowest([layers[a:b] for a, b in pairwise(each)]) for each in borders)
        found = cut(Scenario(8, layers, Network(Link(0, 1e-9)), "fused", stages=count, microbatches=5))
        assert sum(found, ()) == layers
        assert slowest(found) == pytest.approx(best)


class Simulation:
    """One replica: a process for every stage and for each direction of every link."""

    def __init__(self, scenario: Scenario, ranks: int) -> None:
        self.scenario, self.env, self.slow = scenario, simpy.Environment(), scenario.jitter.slowest(ranks)
        self.parts = cut(scenario)
        self.piece = scenario.stages / scenario.microbatches
        self.cost = scenario.network.all_reduce(ranks // scenario.stages)
        # What each stage has received and what it sends, forward and backward.
        boxes = {name: [simpy.Store(self.env) for _ in self.parts] for name in ("in+", "out+", "in-", "out-")}
        for stage, part in enumerate(self.parts):
            self.env.process(self.device(stage, part, {name: box[stage] for name, box in boxes.items()}))
        for stage, (part, _) in enumerate(pairwise(self.parts)):
            self.env.process(self.crossing(boxes["out+"][stage], boxes["in+"][stage + 1], part))
            self.env.process(self.crossing(boxes["out-"][stage + 1], boxes["in-"][stage], part))

    def run(self) -> float:
        self.env.run()
        return self.env.now

    def crossing(self, source, target, part):
        link = self.scenario.network.between
        for _ in range(self.scenario.microbatches):
            yield source.get()
            yield self.env.timeout(link.alpha + link.beta * part[-1].activations * self.piece)
            target.put(1)

    def device(self, stage, part, box):
        scenario = self.scenario
        yield self.env.timeout(scenario.h2d * scenario.stages * self.slow if stage == 0 else 0.0)
        yield from self.computing("forward", part, stage > 0 and box["in+"], box["out+"])
        yield from self.computing("backward", part, stage + 1 < len(self.parts) and box["in-"], box["out-"])
        size = sum(layer.bytes for layer in part)
        update = scenario.update * size / sum(layer.bytes for layer in scenario.layers)
        yield self.env.timeout(self.cost.seconds(size / scenario.compression) + update * self.slow)

    def computing(self, task, part, arriving, sent):
        for _ in range(self.scenario.microbatches):
            if arriving:
                yield arriving.get()
            yield self.env.timeout(sum(getattr(layer, task) for layer in part) * self.piece * self.slow)
            sent.put(1)


@pytest.mark.parametrize("seed", range(20))
def test_an_iteration_takes_as_long_as_in_the_simulation(seed):
    draw = random.Random(seed)
    network = Network(Link(draw.uniform(0, 2e-3), draw.uniform(0, 2e-8)))
    more = {"stages": draw.randint(2, 6), "microbatches": draw.randint(1, 8), "jitter": Jitter.normal(0.05)}
    scenario = Scenario(4, layers_of(seed), network, "fused", h2d=1e-3, update=5e-3, **more)
    ranks = 3 * scenario.stages
    assert timeline(scenario, ranks).seconds == pytest.approx(Simulation(scenario, ranks).run(), rel=1e-9)


def test_larger_batches_and_more_microbatches_help_a_pipeline_as_far_as_there_are_samples():
    slow = even(2, 1, network=Network(Link(0, 1e-5)))
    gains = {each.change: each.gain for each in helps(slow, 2)}
    assert gains["twice the batch, at the same seconds a sample"] == pytest.approx(0)
    some = even(4, 16)  # 32 samples
    most = some.but(microbatches=32)
    advised = [{each.change for each in helps(one, 4)} for one in (some, most)]
    assert ["twice the microbatches" in changes for changes in advised] == [True, False]
    gains = {each.change: each.gain for each in helps(even(8, 1), 8)}
    assert gains["twice the microbatches"] == pytest.approx(8 / 4.5 - 1)  # eight stages: 8 against 4.5 of one's seconds


@pytest.mark.parametrize(
    ("nonsense", "named"),
    [
        (lambda: predict(even(4, 2), 6), "6 ranks are no whole number of pipelines of 4 stages"),
        (lambda: predict(even(4, 2).but(stages=5), 5), "4 layers .* cannot be cut into 5 stages"),
        (lambda: even(4, 2, schedule="wfbp"), "schedule fused, not wfbp"),
        (lambda: even(4, 0), "microbatches is 0"),
        (lambda: predict(Scenario(8, (LayerCost("fc", 1, 2, 8),) * 2, FREE, "fused", stages=2), 2), "cross a cut"),
    ],
)
def test_nonsense_is_refused_by_name(nonsense, named):
    with pytest.raises(RequestError, match=named):
        nonsense()
