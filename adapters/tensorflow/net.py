"""A graph, or a part of one, as operations over one device's variables, in order."""

from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import tensorflow as tf

from adapters.tensorflow.lower import Operation, Style, lower
from suite.worker.dropout_masks import dropout_seed
from workloads.graph import Graph, Layer

COUNT = "iterations"  # the name of the variable that counts them, for the masks


class Net:
    """Runs a graph on one device; call it inside a tf.function."""

    def __init__(
        self,
        graph: Graph,
        variables: Dict[str, Any],
        style: Style,
        seed: Tuple[int, int],
        layers: Optional[Sequence[Layer]] = None,
    ) -> None:
        """`variables` by canonical name, on this device; `seed`: the setup's, and the device's number over all ranks.

        `layers`, where not all of them are run here.
        """
        layers = graph.layers if layers is None else layers
        self.graph, self._seed = graph, seed
        self._drops = style.training and any(layer.draws_random for layer in layers)
        self._count = variables[COUNT]
        # By layer; `trainable` in the graph's order.
        self.weights = {layer.name: [variables[each.name] for each in layer.parameters] for layer in layers}
        self.trainable = [variable for own in self.weights.values() for variable in own]
        self.operations: Dict[str, Operation] = {}
        self._inputs = {layer.name: layer.inputs for layer in layers}
        for layer in layers:
            own: Dict[str, Any] = {"masks": self._masks}
            for name in [parameter.name for parameter in layer.parameters] + [name for name, _ in layer.buffers]:
                own[name.rsplit(".", 1)[1]] = variables[name]
            self.operations[layer.name] = lower(layer, own, style)

    def run(self, values: Dict[str, Any]) -> None:
        """Add every layer's output by its name; what the layers read must be there."""
        if self._drops:
            self._count.assign_add(1)
        for name, operation in self.operations.items():
            values[name] = operation(*[values[each] for each in self._inputs[name]])

    def heads(self, images: Any) -> List[Any]:
        """Logits (samples, classes) of every head, the network's answer last."""
        values = {"input": images}
        self.run(values)
        return [values[head.layer] for head in self.graph.heads]

    def loss(self, images: Any, labels: Any) -> Tuple[Any, List[Any]]:
        """(sum over heads of weight x mean cross-entropy, logits of the heads)."""
        heads = self.heads(images)
        return joint_loss(self.graph, heads, labels), heads

    def _masks(self, layer: str) -> Any:
        """The seed of one layer's mask in this iteration: two numbers."""
        seed, device = self._seed
        return tf.stack([tf.constant(dropout_seed(seed, device, layer), tf.int64), self._count.read_value()])


def joint_loss(graph: Graph, heads: Sequence[Any], labels: Any) -> Any:
    """The sum over heads of weight x mean cross-entropy, from the logits of all of them."""
    total = None
    for logits, head in zip(heads, graph.heads):
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
        loss = loss if head.weight == 1.0 else loss * head.weight
        total = loss if total is None else total + loss
    return total


def differentiated(net: Net) -> Callable[..., Any]:
    """(images, labels) -> (loss, gradients in the order of the trainable variables)."""

    def run(images: Any, labels: Any) -> Tuple[Any, List[Any]]:
        with tf.GradientTape() as tape:
            loss, _ = net.loss(images, labels)
        return loss, tape.gradient(loss, net.trainable)

    return run


def compiled(function: Callable[..., Any], by_xla: bool = False) -> Any:
    """A tf.function; nothing here asks AutoGraph to rewrite it: control flow is Python's, unrolled at the trace."""
    return tf.function(function, autograph=False, jit_compile=by_xla or None)


def compiled_if(wanted: bool, function: Callable[..., Any]) -> Callable[..., Any]:
    """A part of another function, as a cluster of XLA's when wanted."""
    return compiled(function, by_xla=True) if wanted else function


def macs(graph: Any) -> int:
    """Multiply-accumulates of a TensorFlow graph's convolutions and matrix products, from their operands' shapes."""
    total = 0
    for operation in graph.get_operations():
        if operation.type == "Conv2D":
            height, width, inputs, _ = operation.inputs[1].shape
            total += operation.outputs[0].shape.num_elements() * height * width * inputs
        elif operation.type == "MatMul":
            inner = operation.inputs[0].shape[0 if operation.get_attr("transpose_a") else 1]
            total += operation.outputs[0].shape.num_elements() * inner
    return int(total)
