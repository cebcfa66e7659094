"""The times of each layer's forward and backward: a clock that adapters lap, and a walk over the graph for the others.

A framework that runs a network layer by layer laps a `LayerClock` as it goes. A framework that compiles the network, or
hides its backward, gives `Nodes`: one layer's forward, and its vector-Jacobian product. The walk then runs the graph
node by node and waits after each, so its layers add up to more than the stages: nothing is fused across a border,
values cross it in the framework's plain layout, and each call pays its dispatch.
"""

import time
from abc import ABC, abstractmethod
from statistics import median_high
from typing import Any, Dict, List, Optional, Sequence, Tuple

from stagebench.suite.worker.contract import Call, LayerTimes
from stagebench.workloads.graph import Graph, Layer

ROUNDS, LEAST_ROUNDS, LIMIT_S = 5, 2, 3.0  # no further round begins after LIMIT_S, but LEAST_ROUNDS are made
LOSS = "loss"  # the name of the row after the last layer


class LayerClock:
    """A clock that is lapped on the trainer's own time line; marks are read in `rows`, at the end.

    A layer is identified by its index in the graph; the losses have the index after the last layer's.
    """

    def __init__(self, trainer: Any, graph: Graph, in_order: bool = True) -> None:
        """`in_order`: the native backward runs layer by layer, so a gradient is complete when the laps so far are."""
        self._trainer = trainer
        self._graph = graph
        self._in_order = in_order
        self.forget()

    def forget(self) -> None:
        """Drop what was collected (warm-up)."""
        self._laps: Dict[Tuple[str, int], List[Tuple[Any, Any]]] = {}
        self._shared: Dict[int, List[float]] = {}
        self._start = self._last = None  # type: Any

    def begin(self) -> None:
        """Begin the forward or the backward."""
        self._start = self._last = self._trainer.mark()

    def forward(self, index: int) -> None:
        """End this layer's forward, and begin the next layer's."""
        self._lap("forward", index)

    def backward(self, index: int) -> None:
        """End this layer's backward, and begin that of the layer before it."""
        self._lap("backward", index)

    def ready(self, index: int) -> None:
        """Note that a gradient of this layer is complete, during the backward; the last call of a backward counts."""
        found = self._laps.setdefault(("ready", index), [])
        if found and found[-1][0] is self._start:
            found.pop()
        found.append((self._start, self._trainer.mark()))

    def exchanged(self, index: int, seconds: float) -> None:
        """Note this layer's share of an exchange."""
        self._shared.setdefault(index, []).append(seconds)

    def rows(self) -> List[LayerTimes]:
        """Return the medians, one row per layer in the graph's order, and one for the losses."""
        self._trainer.synchronize()
        itemsize = 8 if self._trainer.setup.precision == "float64" else 4
        known = [(layer.name, layer.kind, layer.gradient_bytes(itemsize)) for layer in self._graph.layers]
        ready = self._ready_s()
        return [
            LayerTimes(
                layer=name,
                kind=kind,
                forward_s=self._median("forward", index),
                backward_s=self._median("backward", index),
                communication_s=middle(self._shared.get(index, [])),
                bytes=size,
                ready_s=ready[index] if size else None,
            )
            for index, (name, kind, size) in enumerate(known + [(LOSS, "softmax_loss", 0)])
        ]

    def ready_s(self) -> List[float]:
        """Return the seconds from the start of the backward to the end of each layer's own, by the laps."""
        sofar = self._median("backward", len(self._graph.layers))
        found = []
        for index in range(len(self._graph.layers) - 1, -1, -1):
            sofar += self._median("backward", index)
            found.append(sofar)
        return found[::-1]

    def _ready_s(self) -> List[Optional[float]]:
        rows = range(len(self._graph.layers) + 1)
        if any(("ready", index) in self._laps for index in rows):
            return [self._median("ready", index) for index in rows]
        return [*self.ready_s(), None] if self._in_order else [None for _ in rows]

    def _lap(self, stage: str, index: int) -> None:
        now = self._trainer.mark()
        self._laps.setdefault((stage, index), []).append((self._last, now))
        self._last = now

    def _median(self, stage: str, index: int) -> float:
        return middle([self._trainer.elapsed(*lap) for lap in self._laps.get((stage, index), [])])


def middle(seconds: Sequence[float]) -> float:
    """Return the (upper) median; 0.0 for no values."""
    return median_high(seconds) if seconds else 0.0


def repeated(clock: LayerClock, once: Call) -> List[LayerTimes]:
    """Return the rows of some rounds of a forward and a backward, after one that does not count: it may compile."""
    once()
    clock.forget()
    began = time.perf_counter()
    for done in range(ROUNDS):
        if done >= LEAST_ROUNDS and time.perf_counter() - began > LIMIT_S:
            break
        once()
    return clock.rows()


class Nodes(ABC):
    """A network's layers, one at a time, on the rank's first device; values and gradients are the framework's own.

    Each call has finished its work when it returns, or `Trainer.synchronize` waits for it.
    """

    @abstractmethod
    def forward(self, layer: Layer, inputs: List[Any], wanted: List[bool]) -> Tuple[Any, Any]:
        """Return (the layer's output in training, the values that its `backward` needs).

        `wanted`: the inputs that need a gradient.
        """

    @abstractmethod
    def loss(self, heads: List[Any], labels: Any) -> Any:
        """Return the values that `backward` needs, for the joint loss of all heads' logits."""

    @abstractmethod
    def backward(self, kept: Any, gradient: Any) -> List[Any]:
        """Compute the parameters' gradients and return the inputs', None for an input that needs none.

        `gradient` is the output's; None for the loss.
        """

    def add(self, one: Any, other: Any) -> Any:
        """Return the sum of the gradients from two readers of a value."""
        return one + other


def node_by_node(
    trainer: Any, graph: Graph, nodes: Nodes, inputs: Any, labels: Any, in_order: bool = True
) -> List[LayerTimes]:
    """Walk the graph some rounds and return the rows; `inputs` and `labels` are the first device's.

    A layer's backward includes the sums of its inputs' gradients.
    """
    clock = LayerClock(trainer, graph, in_order)
    wanted = wanting(graph)
    return repeated(clock, lambda: walk(trainer, graph, nodes, inputs, labels, wanted, clock))


def walk(
    trainer: Any, graph: Graph, nodes: Nodes, inputs: Any, labels: Any, wanted: List[List[bool]], clock: LayerClock
) -> None:
    """Run one forward and one backward, and lap the clock after each layer."""
    heads = [head.layer for head in graph.heads]
    values = {"input": inputs}
    kept = []
    clock.begin()
    for index, layer in enumerate(graph.layers):
        inputs = [values[name] for name in layer.inputs]
        values[layer.name], own = nodes.forward(layer, inputs, wanted[index])
        kept.append(own)
        trainer.synchronize()
        clock.forward(index)
    kept.append(nodes.loss([values[name] for name in heads], labels))
    trainer.synchronize()
    clock.forward(len(graph.layers))
    values.clear()
    clock.begin()
    pending: Dict[str, Any] = {}  # by value: the sum of its readers' gradients so far

    def backward(names: Sequence[str], gradient: Any) -> None:
        for name, found in zip(names, nodes.backward(kept.pop(), gradient)):
            if found is not None:
                pending[name] = nodes.add(pending[name], found) if name in pending else found

    backward(heads, None)
    trainer.synchronize()
    clock.backward(len(graph.layers))
    for index in range(len(graph.layers) - 1, -1, -1):
        layer = graph.layers[index]
        gradient = pending.pop(layer.name, None)
        if gradient is not None and (layer.parameters or any(wanted[index])):
            backward(layer.inputs, gradient)
        else:
            kept.pop()
        trainer.synchronize()
        clock.backward(index)


def wanting(graph: Graph) -> List[List[bool]]:
    """Return which inputs of every layer need a gradient: those with a parameter before them."""
    needed = {"input": False}
    found = []
    for layer in graph.layers:
        found.append([needed[name] for name in layer.inputs])
        needed[layer.name] = bool(layer.parameters) or any(found[-1])
    return found
