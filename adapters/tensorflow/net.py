"""A graph, or a part of one, over one device's variables; weights between the workload's layouts and TensorFlow's.

Convolutions: OIHW in the workload, HWIO in TensorFlow. Dense layers: (out, in) and (in, out). The graph flattens in
C, H, W order; if activations are NHWC, the rows of the dense layers that read a flattened image are put in H, W, C
order once, so that no step has to transpose. Tables of embeddings: (vocabulary, width) in both.
"""

from typing import Any, Callable, Dict, FrozenSet, List, Optional, Sequence, Set, Tuple

import numpy as np
import tensorflow as tf

from stagebench.adapters.tensorflow.lower import Inputs, Labels, Operation, Style, Tensor, lower
from stagebench.suite.worker.contract import dropout_seed
from stagebench.suite.worker.layers import Nodes
from stagebench.workloads.graph import Graph, Layer

COUNT = "iterations"  # the name of the variable that counts iterations, for the masks


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
        """`variables` by canonical name, on this device; `layers` are those that run here, by default all.

        `seed`: the setup's, and the device's number over all ranks.
        """
        layers = graph.layers if layers is None else layers
        self.graph, self._seed = graph, seed
        self._drops = style.training and any(layer.draws_random for layer in layers)
        self._count: Any = variables.get(COUNT)  # only where it trains
        # `weights` by the layers that compute with them, `trainable` in the graph's order.
        self.weights = {layer.name: [variables[name] for name in layer.roles.values()] for layer in layers}
        self.trainable = [variables[each.name] for layer in layers for each in layer.parameters]
        self.operations: Dict[str, Operation] = {}
        self._inputs = {layer.name: layer.inputs for layer in layers}
        for layer in layers:
            own: Dict[str, Any] = {"masks": self._masks}
            own.update((role, variables[name]) for role, name in layer.roles.items())
            own.update((name.rsplit(".", 1)[1], variables[name]) for name, _ in layer.buffers)
            self.operations[layer.name] = lower(layer, own, style)

    def run(self, values: Dict[str, Any]) -> None:
        """Add every layer's output by its name; the inputs must be in `values`."""
        if self._drops:
            self._count.assign_add(1)
        for name, operation in self.operations.items():
            values[name] = operation(*[values[each] for each in self._inputs[name]])

    def heads(self, inputs: Inputs) -> List[Tensor]:
        """Return every head's logits, (samples, classes) or (samples, positions, classes), the answer last."""
        values = {"input": inputs}
        self.run(values)
        return [values[head.layer] for head in self.graph.heads]

    def loss(self, inputs: Inputs, labels: Labels) -> Tuple[Any, List[Any]]:
        """Return (sum over heads of weight x mean cross-entropy, the heads' logits)."""
        heads = self.heads(inputs)
        return joint_loss(self.graph, heads, labels), heads

    def _masks(self, layer: str) -> Any:
        """Return the seed of a layer's mask in this iteration: two numbers."""
        seed, device = self._seed
        return tf.stack([tf.constant(dropout_seed(seed, device, layer), tf.int64), self._count.read_value()])


def joint_loss(graph: Graph, heads: Sequence[Any], labels: Any) -> Any:
    """Return the sum over heads of weight x mean cross-entropy."""
    total = None
    for logits, head in zip(heads, graph.heads):
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
        loss = loss if head.weight == 1.0 else loss * head.weight
        total = loss if total is None else total + loss
    return total


def differentiated(net: Net) -> Callable[..., Any]:
    """Return a function (inputs, labels) -> (loss, gradients in the order of the trainable variables)."""

    def run(inputs: Inputs, labels: Labels) -> Tuple[Tensor, List[Tensor]]:
        with tf.GradientTape() as tape:
            loss, _ = net.loss(inputs, labels)
        return loss, tape.gradient(loss, net.trainable)

    return run


def compiled(function: Callable[..., Any], by_xla: bool = False) -> Any:
    """Return a tf.function without AutoGraph: control flow is Python's, unrolled at the trace."""
    return tf.function(function, autograph=False, jit_compile=by_xla or None)


def compiled_if(wanted: bool, function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a part of another function by XLA, if wanted."""
    return compiled(function, by_xla=True) if wanted else function


def over_tokens(graph: Graph) -> bool:
    """Return whether it is a transformer, which XLA computes faster as a whole; convolutions are slower by XLA."""
    return any(len(layer.shape) == 2 for layer in graph.layers)


def macs(graph: Any) -> int:
    """Count multiply-accumulates of a TensorFlow graph's convolutions and matrix products, by shapes."""
    total = 0
    for operation in graph.get_operations():
        if operation.type == "Conv2D":
            height, width, inputs, _ = operation.inputs[1].shape
            total += operation.outputs[0].shape.num_elements() * height * width * inputs
        elif operation.type == "MatMul":
            inner = operation.inputs[0].shape[0 if operation.get_attr("transpose_a") else 1]
            total += operation.outputs[0].shape.num_elements() * inner
        elif operation.type == "BatchMatMulV2":
            total += operation.outputs[0].shape.num_elements() * operation.inputs[0].shape[-1]
    return int(total)


Shape = Tuple[int, ...]


class Layout:
    """Translates a graph's parameters; those with one axis, and tables, are equal in both layouts."""

    def __init__(self, graph: Graph, images: str) -> None:
        """`images` is "NHWC" or "NCHW"."""
        read, unfoldable = readers_of_flat(graph)
        folding = images == "NHWC"
        self.folded: FrozenSet[str] = frozenset(set(read.values()) - unfoldable) if folding else frozenset()
        shapes = {layer.name: layer.input_shapes[0] for layer in graph.layers}
        self._rows = {dense: shapes[flat] for dense, flat in read.items() if flat in self.folded}
        self._tables = {layer.name for layer in graph.layers if layer.takes_numbers}

    def native(self, name: str, tensor: np.ndarray) -> np.ndarray:
        layer = name.rsplit(".", 1)[0]
        if tensor.ndim == 4:
            return tensor.transpose(2, 3, 1, 0)
        if tensor.ndim == 2 and layer in self._rows:
            split = tensor.reshape((len(tensor),) + self._rows[layer])
            return split.transpose(2, 3, 1, 0).reshape(-1, len(tensor))
        return tensor.T if tensor.ndim == 2 and layer not in self._tables else tensor

    def canonical(self, name: str, tensor: np.ndarray) -> np.ndarray:
        """Convert to the workload's layout; contiguous."""
        layer = name.rsplit(".", 1)[0]
        if tensor.ndim == 4:
            tensor = tensor.transpose(3, 2, 0, 1)
        elif tensor.ndim == 2 and layer in self._rows:
            channels, height, width = self._rows[layer]
            out = tensor.shape[1]
            tensor = tensor.reshape(height, width, channels, out).transpose(3, 2, 0, 1).reshape(out, -1)
        elif tensor.ndim == 2 and layer not in self._tables:
            tensor = tensor.T
        return np.ascontiguousarray(tensor)


def readers_of_flat(graph: Graph) -> Tuple[Dict[str, str], Set[str]]:
    """Return ({dense layer: the flatten of an image that it reads}, flattens of an image with other readers).

    Layers that work element by element may be between them.
    """
    origin: Dict[str, str] = {}
    read: Dict[str, str] = {}
    otherwise: Set[str] = set()
    for layer in graph.layers:
        origins = [origin[name] for name in layer.inputs if name in origin]
        if layer.kind == "flatten" and len(layer.input_shapes[0]) == 3:
            origin[layer.name] = layer.name
        elif layer.kind == "dense" and origins:
            read[layer.name] = origins[0]
        elif layer.elementwise and origins:
            origin[layer.name] = origins[0]
        else:
            otherwise.update(origins)
    otherwise.update(origin[head.layer] for head in graph.heads if head.layer in origin)
    return read, otherwise


class EagerNodes(Nodes):
    """Layers over one device's network, eager: each under its own tape."""

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
