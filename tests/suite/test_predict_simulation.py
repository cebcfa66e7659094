"""The model's timeline against a discrete-event simulation of the same training, by simpy."""

import random

import pytest
import simpy

from stagebench.suite.predict.collectives import Cost, Link, Network
from stagebench.suite.predict.data_parallel import OVERLAPPING, messages
from stagebench.suite.predict.prediction import timeline
from stagebench.suite.predict.scenario import SCHEDULES, Jitter, LayerCost, Scenario

ITERATIONS = 8
RANKS = 6


def scenario_of(seed, schedule, read):
    draw = random.Random(seed)
    layers = tuple(
        LayerCost(
            f"layer{i}", draw.expovariate(200), draw.expovariate(100), draw.choice([0, 1, 1]) * draw.expovariate(1e-6)
        )
        for i in range(draw.randint(1, 30))
    )
    network = Network(Link(draw.expovariate(1e4), draw.expovariate(1e9), draw.expovariate(1e10)))
    seconds = {"h2d": draw.expovariate(1000), "update": draw.expovariate(500), "read": read * draw.expovariate(5)}
    more = {"readers": 2, "compression": 2.0, "interference": 0.3, "jitter": Jitter.normal(0.05)}
    return Scenario(4, layers, network, schedule, **seconds, **more)


class Simulation:
    """One rank, the slowest in every iteration; its reader and its link work beside it."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario, self.env = scenario, simpy.Environment()
        self.slow = scenario.jitter.slowest(RANKS)
        self.link = simpy.PriorityResource(self.env)
        self.batches = simpy.Store(self.env, capacity=1)
        self.backward = list(range(len(scenario.layers)))[::-1]
        self.ends = []
        cost = scenario.network.all_reduce(RANKS)
        self.cost = Cost(cost.start, cost.per_byte / scenario.compression)
        self.messages = [
            [self.backward[index] for index in message]
            for message in messages(scenario.schedule, scenario.layers[::-1], self.cost)
        ]

    @property
    def lost(self) -> float:
        sizes = [sum(self.scenario.layers[index].bytes for index in message) for message in self.messages]
        return self.scenario.interference * sum(map(self.cost.seconds, sizes))

    def run(self) -> float:
        """Seconds of an iteration once they are all alike."""
        if self.scenario.input:
            self.env.process(self.read())
        self.env.process(self.by_priority() if self.scenario.schedule == "priority" else self.train())
        self.env.run()
        return self.ends[-1] - self.ends[-2]

    def read(self):
        for _ in range(ITERATIONS):
            yield self.env.timeout(self.scenario.input)
            yield self.batches.put(1)

    def work(self, seconds):
        return self.env.timeout(seconds * self.slow)

    def copy(self):
        if self.scenario.input:
            yield self.batches.get()
        yield self.work(self.scenario.h2d)

    def back(self):
        """Backward; returns the processes of its messages."""
        ready = {index: self.env.event() for index in self.backward}
        done = self.env.event()
        overlapping = self.scenario.schedule in OVERLAPPING
        sent = {
            message[-1]: self.env.process(self.send(message, number, ready[message[-1]] if overlapping else done))
            for number, message in enumerate(self.messages)
        }
        for index in self.backward:
            yield self.work(self.scenario.layers[index].backward)
            ready[index].succeed()
        done.succeed()
        return sent

    def send(self, message, number, ready):
        yield ready
        with self.link.request(priority=message[0] if self.scenario.schedule == "priority" else number) as mine:
            yield mine
            yield self.env.timeout(self.cost.seconds(sum(self.scenario.layers[index].bytes for index in message)))

    def train(self):
        for _ in range(ITERATIONS):
            yield from self.copy()
            for layer in self.scenario.layers:
                yield self.work(layer.forward)
            sent = yield from self.back()
            yield self.env.all_of(sent.values())
            yield self.env.timeout(self.lost)
            yield self.work(self.scenario.update)
            self.ends.append(self.env.now)

    def by_priority(self):
        sent, whole = {}, sum(layer.bytes for layer in self.scenario.layers) or 1.0
        for _ in range(ITERATIONS):
            yield from self.copy()
            for index, layer in enumerate(self.scenario.layers):
                if index in sent:
                    yield sent[index]
                yield self.work(layer.forward + self.scenario.update * layer.bytes / whole)
            yield self.env.timeout(self.lost)
            sent = yield from self.back()
            self.ends.append(self.env.now)


@pytest.mark.parametrize("read", [0, 1])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_an_iteration_takes_as_long_as_in_the_simulation(schedule, read):
    for seed in range(25):
        scenario = scenario_of(seed, schedule, read)
        assert timeline(scenario, RANKS).seconds == pytest.approx(Simulation(scenario).run(), rel=1e-9)
