"""Layers by themselves: the walk computes what the network does, and a clock reads its marks when all is over."""

import numpy as np
import toy

from stagebench.adapters.reference.lower import Network, cross_entropy
from stagebench.suite.worker.feed import synthetic
from stagebench.suite.worker.layers import LayerClock, Nodes, node_by_node, walk, wanting
from stagebench.workloads import weights
from tests.support import networks, trainers


class ReferenceNodes(Nodes):
    """The oracle's own layers, which keep their gradients."""

    def __init__(self, network):
        self._layers = {each.node.name: each for each in network.layers}
        self._heads = network.graph.heads
        self.asked = []

    def forward(self, layer, inputs, wanted):
        made, kept = self._layers[layer.name].forward(inputs)
        return made, (layer.name, kept)

    def loss(self, heads, labels):
        return "loss", [head.weight * cross_entropy(logits, labels)[1] for head, logits in zip(self._heads, heads)]

    def backward(self, kept, gradient):
        name, rest = kept
        self.asked.append(name)
        return rest if name == "loss" else self._layers[name].backward(rest, gradient)


def test_the_walk_gives_the_network_s_own_gradients():
    graph = networks.two_heads().without_dropout()
    batch = synthetic(graph, 4, 1)
    images, initial = batch.inputs.astype(np.float64), dict(weights.initial(graph))
    whole, apart = Network(graph, initial), Network(graph, initial)
    whole.backward(whole.forward(images, batch.labels, observe=False), 1.0)
    toy_trainer = toy.ToyTrainer(trainers.setup())
    clock = LayerClock(toy_trainer, graph)
    walk(toy_trainer, graph, ReferenceNodes(apart), images, batch.labels, wanting(graph), clock)
    wanted, found = whole.named("gradients"), apart.named("gradients")
    assert set(found) == set(wanted) == {parameter.name for parameter in graph.parameters}
    for name in wanted:
        np.testing.assert_allclose(found[name], wanted[name], rtol=1e-12, atol=1e-15)
    rows = clock.rows()
    assert [row.layer for row in rows] == [layer.name for layer in graph.layers] + ["loss"]
    assert all(row.forward_s > 0 for row in rows)


def test_layers_that_lead_to_no_parameter_have_no_backward():
    b = networks.Builder("b", (1, 4, 4), 3)
    b.head(b.dense("fc", b.flatten("flat", b.max_pool("pool", "input", 2, 2)), 3))
    nodes = ReferenceNodes(Network(b.graph, dict(weights.initial(b.graph))))
    batch = synthetic(b.graph, 4, 1)
    rows = node_by_node(toy.ToyTrainer(trainers.setup()), b.graph, nodes, batch.inputs.astype(np.float64), batch.labels)
    assert set(nodes.asked) == {"loss", "fc"}
    assert [row.ready_s is not None for row in rows] == [False, False, True, False]


class Device(toy.ToyTrainer):
    """Marks are places on a line of the device's own; reading one before `synchronize` is an error."""

    def __init__(self, setup):
        super().__init__(setup)
        self.now, self.done = 0, -1

    def mark(self):
        self.now += 1
        return self.now

    def synchronize(self):
        self.done = self.now

    def elapsed(self, begin, end):
        assert end <= self.done, "it has not happened yet"
        return float(end - begin)


def test_a_clock_reads_its_marks_when_all_is_over_and_gradients_may_be_complete_in_any_order():
    b = networks.Builder("b", (4,), 3)
    b.head(b.dense("fc2", b.dense("fc1", "input", 5), 3))
    clock = LayerClock(Device(trainers.setup()), b.graph)
    for _ in range(3):
        clock.begin()
        for row in range(3):
            clock.forward(row)
        clock.begin()
        clock.ready(0)
        clock.ready(1)
        clock.ready(1)  # its bias: the last one counts
        for row in (2, 1, 0):
            clock.backward(row)
    assert [row.ready_s for row in clock.rows()] == [1.0, 3.0, None]
    assert [row.backward_s for row in clock.rows()] == [1.0, 1.0, 4.0]
