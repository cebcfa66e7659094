"""Seconds of every layer, as `caffe time` tells them."""

import time
from typing import Dict, List

from adapters.caffempi.arena import Group
from adapters.caffempi.net import Net
from suite.worker.contract import LayerTimes


class LayerClock:
    """Collects the staged pass's laps; the losses are the row after the last layer."""

    def __init__(self, net: Net) -> None:
        self._net = net
        self._seconds: Dict[str, List[List[float]]] = {}
        self._last = 0.0
        self.forget()

    def forget(self) -> None:
        rows = len(self._net.slots) + 1
        self._seconds = {stage: [[] for _ in range(rows)] for stage in ("forward", "backward", "communication")}

    def begin(self) -> None:
        self._last = time.perf_counter()

    def forward(self, index: int) -> None:
        self._lap("forward", index)

    def backward(self, index: int) -> None:
        self._lap("backward", index)

    def communication(self, group: Group, seconds: float) -> None:
        """A group has been exchanged: its layers share the time by their bytes."""
        spans = self._net.arena.spans
        whole = group.span.end - group.span.begin
        for layer in group.layers:
            share = (spans[layer].end - spans[layer].begin) / float(whole)
            self._seconds["communication"][layer].append(seconds * share)

    def _lap(self, stage: str, index: int) -> None:
        now = time.perf_counter()
        self._seconds[stage][index].append(now - self._last)
        self._last = now

    def ready_s(self) -> List[float]:
        """Median seconds after backward began at which each layer's gradient is complete, by layer."""
        sofar = self._median("backward", len(self._net.slots))
        ready: List[float] = []
        for index in range(len(self._net.slots) - 1, -1, -1):
            sofar += self._median("backward", index)
            ready.append(sofar)
        return ready[::-1]

    def rows(self) -> List[LayerTimes]:
        """Medians, a row a layer and one for the losses."""
        names = [(slot.layer.name, slot.layer.kind) for slot in self._net.slots] + [("loss", "softmax_loss")]
        itemsize = self._net.arena.gradients.element_size()
        sizes = [slot.layer.node.gradient_bytes(itemsize) for slot in self._net.slots] + [0]
        return [
            LayerTimes(
                layer=name,
                kind=kind,
                forward_s=self._median("forward", index),
                backward_s=self._median("backward", index),
                communication_s=self._median("communication", index),
                bytes=nbytes,
            )
            for index, ((name, kind), nbytes) in enumerate(zip(names, sizes))
        ]

    def _median(self, stage: str, index: int) -> float:
        ordered = sorted(self._seconds[stage][index])
        return ordered[len(ordered) // 2] if ordered else 0.0
