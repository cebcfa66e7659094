"""One layer at a time, eager: its operations under a tape of their own, and the tape's gradient."""

from typing import Any, List, Sequence, Tuple

import tensorflow as tf

from adapters.tensorflow.net import Net, joint_loss
from suite.worker.layers import Nodes
from workloads.graph import Layer


class EagerNodes(Nodes):
    """Over one device's network."""

    def __init__(self, net: Net, device: str) -> None:
        self._net, self._device = net, device

    def forward(self, layer: Layer, inputs: List[Any], wanted: List[bool]) -> Tuple[Any, Any]:
        watched = [value if want else None for value, want in zip(inputs, wanted)]
        with tf.device(self._device), tf.GradientTape() as tape:
            tape.watch(present(watched))
            made = self._net.operations[layer.name](*inputs)
        return made, (tape, made, watched, self._net.weights[layer.name])

    def loss(self, heads: List[Any], labels: Any) -> Any:
        with tf.device(self._device), tf.GradientTape() as tape:
            tape.watch(heads)
            made = joint_loss(self._net.graph, heads, labels)
        return tape, made, heads, []

    def backward(self, kept: Any, gradient: Any) -> List[Any]:
        tape, made, watched, weights = kept
        with tf.device(self._device):
            found = tape.gradient(made, [*present(watched), *weights], output_gradients=gradient)
        answers = iter(found)
        return [None if value is None else next(answers) for value in watched]


def present(values: Sequence[Any]) -> List[Any]:
    return [value for value in values if value is not None]
