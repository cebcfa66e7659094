"""Seconds of every layer, as `caffe time` gives them, and its share of the exchange."""

from typing import Any

from adapters.caffempi.arena import Arena, Group
from suite.worker.layers import LayerClock
from workloads.graph import Graph


class GroupClock(LayerClock):
    """Laps the net's layers; gradients leave in groups of them."""

    def __init__(self, trainer: Any, graph: Graph, arena: Arena) -> None:
        super().__init__(trainer, graph)
        self._spans = arena.spans

    def communication(self, group: Group, seconds: float) -> None:
        """A group has been exchanged: its layers share the time by their bytes."""
        whole = group.span.end - group.span.begin
        for layer in group.layers:
            self.exchanged(layer, seconds * (self._spans[layer].end - self._spans[layer].begin) / float(whole))
