"""An iteration of synchronous SGD as the model sees it: what a device does, what lies between devices, and how sure.

Synchronous ranks wait for the slowest of them: `Jitter` says how much longer that one takes, by their number.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import NormalDist
from typing import Any, NamedTuple, Self

import numpy as np

from stagebench.suite.analysis.stats import Values
from stagebench.suite.errors import RequestError
from stagebench.suite.predict.collectives import Network, not_negative, positive
from stagebench.suite.text import known
from stagebench.suite.worker.pipeline_stages import crossing
from stagebench.workloads.graph import Graph, size

# Backward multiplies twice: for the gradient of the weights and for that of the input, which the first layer needs not.
BACKWARD = 2.0
ITEMSIZE = 4  # bytes of a number between layers
# The half width of the 95 % interval of a prediction's error where device and link are known, relative: Student's t
# times the root mean square of the errors in docs/validation. A test holds it to them.
MODEL_ERROR = 0.105
REACH, POINTS = 6.0, 1201  # standard deviations on either side, and the points of a normal distribution


@dataclass(frozen=True, eq=False)
class Jitter:
    """The distribution of an iteration's seconds on one rank: values, and the probability of not exceeding each."""

    values: Values  # ascending
    cumulative: Values

    @classmethod
    def measured(cls, seconds: Sequence[float] | Values) -> "Jitter":
        """Return the distribution of iterations that waited for no rank; it covers as many ranks as iterations."""
        return cls(np.sort(np.asarray(seconds, dtype=np.float64)), np.arange(1, len(seconds) + 1) / len(seconds))

    @classmethod
    def normal(cls, deviation: float) -> "Jitter":
        """Return a normal distribution with this standard deviation relative to the mean, and never below 0 seconds.

        RequestError below 0 and above 1.
        """
        not_negative("jitter", deviation, "(standard deviation over mean)")
        if deviation > 1:
            raise RequestError(f"the jitter is {deviation}; give the standard deviation over the mean, at most 1")
        points = np.linspace(-REACH, REACH, POINTS)
        middles = points + REACH / (POINTS - 1)  # each value stands for the interval about it
        return cls(np.maximum(1.0 + deviation * points, 0.0), np.array([NormalDist().cdf(one) for one in middles]))

    def stretched(self, factor: float) -> "Jitter":
        """Scale the deviations from the mean by `factor`."""
        return Jitter(self._mean + factor * (self.values - self._mean), self.cumulative)

    @cached_property
    def _mean(self) -> float:
        return self._largest(1)

    def slowest(self, ranks: int) -> float:
        """Return the mean of the slowest of `ranks` independent ranks, over the mean of one."""
        return self._largest(ranks) / self._mean

    def _largest(self, draws: int) -> float:
        return float(np.diff(self.cumulative**draws, prepend=0.0) @ self.values)


EVEN = Jitter.measured([1.0])  # every rank takes the same time

# How gradients leave. Those that overlap begin to send during backward.
SCHEDULES = {
    "sequential": "after backward, a message a layer",
    "fused": "after backward, all in one message",
    "wfbp": "during backward, a message a layer as soon as it is there (wait-free backpropagation)",
    "buckets": "during backward, in buckets: the first of 1 MiB, the others of 25",
    "merged": "during backward, neighbours merged so that the last one ends earliest (MG-WFBP's aim, met exactly)",
    "priority": "during backward and the next forward, what forward needs first goes first (P3, ByteScheduler)",
}


@dataclass(frozen=True)
class LayerCost:
    """The cost of one layer of the network on one device."""

    name: str
    forward: float  # seconds
    backward: float
    bytes: float  # of its gradients
    activations: float = 0.0  # bytes of a batch that cross a cut after it
    fixed: float = 0.0  # share of its seconds that another batch would not change

    def __post_init__(self) -> None:
        for part in ("forward", "backward", "bytes", "activations"):
            unit = "seconds" if part in ("forward", "backward") else "bytes"
            not_negative(f"{part} of layer {self.name!r}", getattr(self, part), unit)

    @property
    def seconds(self) -> float:
        return self.forward + self.backward


Layers = tuple[LayerCost, ...]


class Tied(NamedTuple):
    """A weight that several layers compute with; stages that have them sum up its gradients before they update."""

    places: tuple[int, ...]  # of the layers
    bytes: float


@dataclass(frozen=True)
class Scenario:
    """A training whose speed is asked for; RequestError for what cannot be. Seconds are one device's, an iteration."""

    batch: float  # samples per device
    layers: Layers  # in forward order
    network: Network
    schedule: str = "wfbp"
    h2d: float = 0.0
    update: float = 0.0
    read: float = 0.0  # for one reader to make a batch; 0: input is never waited for
    readers: int = 1
    compression: float = 1.0  # times fewer bytes on the link
    interference: float = 0.0  # seconds that computing loses by each second of exchange: it shares cores and memory
    stages: int = 1  # devices that hold one network together, as a pipeline; its schedule is fused
    microbatches: int = 1  # equal pieces in which a pipeline takes its batch
    holds_back: bool = False  # a stage exchanges before its last microbatch goes back, as within DDP's backward
    borders: tuple[int, ...] = ()  # the place of the layer that each stage begins with; (): where it is fastest
    tied: tuple["Tied", ...] = ()
    jitter: Jitter = EVEN
    compute_error: float = 0.0  # relative half width of the 95 % interval of a device's own seconds
    link_error: float = 0.0  # and of an exchange's
    model_error: float = 0.0  # and of what the model leaves out: of the iteration

    def __post_init__(self) -> None:
        if self.schedule not in SCHEDULES:
            raise RequestError(f"there is no schedule {self.schedule!r}; {known(self.schedule, SCHEDULES)}")
        positive("batch", self.batch)
        positive("number of readers", self.readers)
        positive("compression", self.compression)
        positive("number of stages", self.stages)
        positive("number of microbatches", self.microbatches)
        if self.microbatches > self.batch * self.stages:
            raise RequestError(
                f"{self.batch * self.stages:g} samples of {self.stages} stages cannot be cut into {self.microbatches} "
                "microbatches; ask for fewer"
            )
        if self.stages > 1 and self.schedule != "fused":
            raise RequestError(f"a pipeline's gradients leave after backward: schedule fused, not {self.schedule}")
        for name in ("h2d", "update", "read"):
            not_negative(name, getattr(self, name), "seconds")
        not_negative("interference", self.interference, "seconds a second")
        for name in ("compute_error", "link_error", "model_error"):
            if not 0 <= getattr(self, name) < 1:
                raise RequestError(f"the {name} is {getattr(self, name)}; give a share from 0 to below 1")
        positive("seconds of an iteration on one device", self.own)

    @property
    def own(self) -> float:
        """Seconds that a device computes, without any wait."""
        return self.h2d + self.forward + self.backward + self.update

    @cached_property
    def forward(self) -> float:
        return sum(layer.forward for layer in self.layers)

    @cached_property
    def backward(self) -> float:
        return sum(layer.backward for layer in self.layers)

    @property
    def input(self) -> float:
        """Seconds that all readers together take for a batch."""
        return self.read / self.readers

    def but(self, **changes: Any) -> Self:
        return replace(self, **changes)

    def slower(self, compute: float = 1.0, link: float = 1.0) -> Self:
        """Return the scenario with a device and links that take `compute` and `link` times as long."""
        layers = tuple(
            replace(layer, forward=layer.forward * compute, backward=layer.backward * compute) for layer in self.layers
        )
        h2d, update = self.h2d * compute, self.update * compute
        return self.but(layers=layers, h2d=h2d, update=update, network=self.network.scaled(link, link))

    def batched(self, times: float) -> Self:
        """Return the scenario with `times` as many samples; the fixed part of a layer and the update take as long."""
        layers = []
        for layer in self.layers:
            slower = layer.fixed + (1 - layer.fixed) * times
            forward, backward, crossing = layer.forward * slower, layer.backward * slower, layer.activations * times
            layers.append(LayerCost(layer.name, forward, backward, layer.bytes, crossing, layer.fixed / slower))
        h2d, read = self.h2d * times, self.read * times
        return self.but(layers=tuple(layers), batch=self.batch * times, h2d=h2d, read=read)


def joined(layers: Iterable[LayerCost]) -> Layers:
    """Return the layers that have gradients, each with the cost of those without that follow (the first: precede) it.

    Backward runs from the last layer to the first, so that every gradient is ready at the same time as before.
    """
    costs: list[LayerCost] = []
    for layer in layers:
        if not costs or (layer.bytes and costs[-1].bytes):
            costs.append(layer)
            continue
        last = costs.pop()
        costs.append(
            LayerCost(
                last.name if last.bytes else layer.name,
                last.forward + layer.forward,
                last.backward + layer.backward,
                last.bytes + layer.bytes,
                layer.activations,
                (last.fixed * last.seconds + layer.fixed * layer.seconds) / ((last.seconds + layer.seconds) or 1.0),
            )
        )
    return tuple(costs)


def by_arithmetic(graph: Graph, seconds: float, batch: int) -> Layers:
    """Divide the seconds of an iteration as the multiply-accumulates are; other layers cost nothing."""
    work = multiplications(graph)
    whole = sum(map(sum, work))
    if not whole:
        raise RequestError(
            f"the network {graph.name!r} has no convolution and no dense layer to divide the time by; give "
            "--set layers=FILE"
        )
    crossing_bytes = activations(graph, batch)
    costs = []
    for layer, (forward, backward) in zip(graph.layers, work, strict=True):
        own = (seconds * forward / whole, seconds * backward / whole)
        costs.append(LayerCost(layer.name, *own, layer.gradient_bytes(), crossing_bytes[layer.name]))
    return joined(costs)


def multiplications(graph: Graph) -> list[tuple[float, float]]:
    """Return the multiply-accumulates of each layer: (forward, backward)."""
    first = next((layer.name for layer in graph.layers if layer.macs), None)
    return [(layer.macs, layer.macs * (BACKWARD if layer.name != first else 1.0)) for layer in graph.layers]


def tied(graph: Graph) -> tuple[Tied, ...]:
    """Return the weights that several layers compute with."""
    layers = list(enumerate(graph.layers))
    found = [
        Tied(tuple(place for place, layer in layers if each.name in layer.roles.values()), ITEMSIZE * size(each.shape))
        for each in graph.parameters
    ]
    return tuple(each for each in found if len(each.places) > 1)


def activations(graph: Graph, batch: int) -> dict[str, float]:
    """Return, by layer, the bytes of a batch that cross a cut after it."""
    shapes = {"input": graph.input_shape, **{layer.name: layer.shape for layer in graph.layers}}
    return {
        layer.name: ITEMSIZE * batch * sum(size(shapes[name]) for name in crossing(graph, place))
        for place, layer in enumerate(graph.layers, 1)
    }
