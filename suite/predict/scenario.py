"""One iteration of synchronous SGD as a model sees it: what a device does, what lies between devices, and how sure."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

from suite.errors import RequestError
from suite.predict.collectives import Network, not_negative, positive
from suite.predict.stragglers import EVEN, Jitter
from suite.suggest import known

# How gradients leave. Those that overlap begin to send during backward.
SCHEDULES = {
    "sequential": "after backward, a message a layer",
    "fused": "after backward, all in one message",
    "wfbp": "during backward, a message a layer as soon as it is there (wait-free backpropagation)",
    "buckets": "during backward, in buckets: the first of 1 MiB, the others of 25",
    "merged": "during backward, neighbours merged so that the last one ends earliest (MG-WFBP's aim, met exactly)",
    "priority": "during backward and the next forward, what forward needs first goes first (P3, ByteScheduler)",
}
COUNTS = {
    "batch": "batch",
    "readers": "number of readers",
    "compression": "compression",
    "stages": "number of stages",
    "microbatches": "number of microbatches",
}
_UNITS = (("forward", "seconds"), ("backward", "seconds"), ("bytes", "bytes"), ("activations", "bytes"))


@dataclass(frozen=True)
class LayerCost:
    """What one layer of the network costs one device."""

    name: str
    forward: float  # seconds
    backward: float
    bytes: float  # of its gradients
    activations: float = 0.0  # bytes of a batch that cross a cut after it

    def __post_init__(self) -> None:
        for part, unit in _UNITS:
            not_negative(f"{part} of layer {self.name!r}", getattr(self, part), unit)


@dataclass(frozen=True)
class Scenario:
    """A training whose speed is asked for; RequestError for what cannot be. Seconds are one device's, an iteration."""

    batch: float  # samples per device
    layers: tuple[LayerCost, ...]  # in forward order
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
    jitter: Jitter = EVEN
    compute_error: float = 0.0  # relative half width of the 95 % interval of a device's own seconds
    link_error: float = 0.0  # and of an exchange's

    def __post_init__(self) -> None:
        if self.schedule not in SCHEDULES:
            raise RequestError(f"there is no schedule {self.schedule!r}; {known(self.schedule, SCHEDULES)}")
        for name, words in COUNTS.items():
            positive(words, getattr(self, name))
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
        for name in ("compute_error", "link_error"):
            if not 0 <= getattr(self, name) < 1:
                raise RequestError(f"the {name} is {getattr(self, name)}; give a share from 0 to below 1")
        positive("seconds of an iteration on one device", self.own)

    @property
    def own(self) -> float:
        """Seconds that a device computes, without waiting for anybody."""
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
        """The same with a device and its links that take so many times as long."""
        layers = tuple(
            replace(layer, forward=layer.forward * compute, backward=layer.backward * compute) for layer in self.layers
        )
        h2d, update = self.h2d * compute, self.update * compute
        return self.but(layers=layers, h2d=h2d, update=update, network=self.network.scaled(link, link))

    def batched(self, times: float) -> Self:
        """The same with so many times the samples, each in the same time. The update is the parameters': it stays."""
        slower = self.slower(compute=times)
        layers = tuple(replace(layer, activations=layer.activations * times) for layer in slower.layers)
        network, batch, read = self.network, self.batch * times, self.read * times
        return slower.but(layers=layers, network=network, batch=batch, update=self.update, read=read)


def joined(layers: tuple[LayerCost, ...]) -> tuple[LayerCost, ...]:
    """The layers that have gradients; what the others cost goes to the one before them (the first: to the one after).

    Backward runs from the last to the first, so that a gradient is ready when it was before.
    """
    found: list[LayerCost] = []
    for layer in layers:
        if found and (not layer.bytes or not found[-1].bytes):
            last = found.pop()
            name = last.name if last.bytes else layer.name
            merged = LayerCost(
                name,
                last.forward + layer.forward,
                last.backward + layer.backward,
                last.bytes + layer.bytes,
                layer.activations,
            )
            found.append(merged)
        else:
            found.append(layer)
    return tuple(found)
