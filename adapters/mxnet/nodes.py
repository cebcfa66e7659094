"""One layer at a time, by MXNet's imperative operators under autograd."""

from typing import Any, Dict, List, Tuple

import mxnet as mx
from mxnet import autograd

from adapters.mxnet.lower import Choices, lower
from suite.worker.layers import Nodes
from workloads.graph import Layer


class ImperativeNodes(Nodes):
    """Over one device's parameters, whose gradients go where the trainer's do."""

    def __init__(self, params: Dict[str, Any], joint: Any, choices: Choices) -> None:
        """`params` and running statistics by canonical name, on the device; `joint` is the loss's block."""
        self._params, self._joint, self._choices = params, joint, choices
        self._room: Dict[Tuple[str, int], Any] = {}  # for the inputs' gradients, used again every round

    def forward(self, layer: Layer, inputs: List[Any], wanted: List[bool]) -> Tuple[Any, Any]:
        values = [self._marked(layer.name, place, *both) for place, both in enumerate(zip(inputs, wanted))]
        with autograd.record(train_mode=True):
            made = lower(mx.nd, layer, values, self._params, self._choices)
        return made.detach(), (made, values, wanted)

    def loss(self, heads: List[Any], labels: Any) -> Any:
        values = [self._marked("", place, value, True) for place, value in enumerate(heads)]
        with autograd.record(train_mode=True):
            made = self._joint(labels, *values)
        return made, values, [True] * len(values)

    def backward(self, kept: Any, gradient: Any) -> List[Any]:
        made, values, wanted = kept
        made.backward(gradient)
        return [value.grad if want else None for value, want in zip(values, wanted)]

    def _marked(self, name: str, place: int, value: Any, want: bool) -> Any:
        """The value as a leaf of a graph of its own."""
        leaf = value.detach()
        if want:
            if (name, place) not in self._room:
                self._room[name, place] = mx.nd.zeros_like(leaf)
            autograd.mark_variables([leaf], [self._room[name, place]])
        return leaf
