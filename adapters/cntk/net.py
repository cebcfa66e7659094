"""A graph as one CNTK function: inputs, joint loss, logits; and each layer as a function, to time it."""

from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

import numpy as np

from stagebench.adapters.cntk.lower import Lowering, Tensors
from stagebench.adapters.cntk.machine import cntk as C  # noqa: N812 - the usual name
from stagebench.suite.worker.layers import Nodes
from stagebench.suite.worker.trainer import Arrays
from stagebench.workloads.graph import Graph, Layer


class Net:
    """The lowered graph. `loss` is each sample's, summed over heads by weight; CNTK sums it over the batch."""

    def __init__(
        self, graph: Graph, weights: Arrays, dtype: Any, samples: int, mask_seed: Callable[[str], int], fast: bool
    ) -> None:
        """Lower every layer, with these weights (canonical names); KeyError names a missing one."""
        self.graph, self.tensors = graph, Tensors(weights, dtype)
        self.lowering = Lowering(self.tensors, samples, mask_seed, fast)
        self.inputs = C.input_variable(graph.input_shape, dtype=dtype, needs_gradient=False, name="inputs")
        targets = (*graph.label_shape, graph.classes)
        self.labels = C.input_variable(targets, dtype=dtype, needs_gradient=False, name="labels")
        values: Dict[str, Any] = {"input": self.inputs}
        for layer in graph.layers:
            values[layer.name] = self.lowering.operation(layer, [values[name] for name in layer.inputs])
        self.logits = values[graph.heads[-1].layer]
        self.loss = joint_loss(graph, [values[head.layer] for head in graph.heads], self.labels)
        self.parameters = [held.tensor for held in self.tensors.parameters.values()]

    def arguments(self, batch: Any) -> Dict[Any, Any]:
        return {self.inputs: batch.inputs, self.labels: batch.labels}

    def predict(self, inputs: Any, device: Any) -> np.ndarray:
        """Return the logits: without a backward CNTK drops nothing and uses running statistics.

        Copied, since the next evaluation writes to the same memory.
        """
        return np.array(self.logits.eval({self.inputs: inputs}, device=device, as_numpy=False).asarray())

    def parameter_count(self) -> int:
        """Count the trainable numbers of CNTK's own graph."""
        return sum(int(np.prod(parameter.shape)) for parameter in self.loss.parameters)

    def macs(self) -> int:
        """Count one sample's multiply-accumulates, from CNTK's operations and shapes."""
        operations = C.logging.graph.depth_first_search(self.loss.root_function, arithmetic)
        return sum(macs_of(operation) for operation in operations)


def joint_loss(graph: Graph, heads: List[Any], labels: Any) -> Any:
    """Return the sum over heads of weight x cross-entropy, one number per sample: the mean over tokens with labels."""
    losses = []
    for head, logits in zip(graph.heads, heads):
        if graph.label_shape:
            # Composed: CNTK's own, of several rows, subtracts each row's logit from every row, and its logarithm of a
            # sum of exponentials takes three times as long.
            shifted = logits - C.stop_gradient(C.reduce_max(logits, axis=-1))
            chosen = C.reduce_sum(shifted * labels, axis=-1)
            entropy = C.reduce_mean(C.log(C.reduce_sum(C.exp(shifted), axis=-1)) - chosen)
        else:
            entropy = C.cross_entropy_with_softmax(logits, labels, axis=-1)
        losses.append(entropy if head.weight == 1.0 else entropy * logits.dtype(head.weight))
    return sum(losses[1:], losses[0])


def arithmetic(node: Any) -> bool:
    """Check for a product of parameters or of activations; LRN's band is a constant."""
    if not isinstance(node, C.Function) or node.op_name not in ("Convolution", "Times"):
        return False
    return not any(operand.is_constant for operand in node.inputs)


def macs_of(operation: Any) -> int:
    """Count one sample's products: each output is a sum over the axis that the operands share."""
    output = elements(operation.output.shape)
    if operation.op_name == "Convolution":
        [weight] = [operand for operand in operation.inputs if operand.is_parameter]
        return output * elements(weight.shape[1:])
    # left (a x shared) times right (shared x b) gives a x b
    left, right = (elements(operand.shape) for operand in operation.inputs)
    shared = int(round((left * right / float(output)) ** 0.5))
    return output * shared


def elements(shape: Any) -> int:
    return int(np.prod(shape, dtype=np.int64))


class Node(NamedTuple):
    """A function, its inputs, and the inputs and parameters that get gradients."""

    function: Any
    inputs: List[Any]
    wanted: List[Any]


class FunctionNodes(Nodes):
    """Layers as functions, each made at its first call; gradients are CNTK's memory, freed after every round."""

    def __init__(self, net: Net, device: Any) -> None:
        self._net, self._device = net, device
        self._made: Dict[str, Optional[Node]] = {}

    def forward(self, layer: Layer, inputs: List[Any], wanted: List[bool]) -> Tuple[Any, Any]:
        if layer.name not in self._made:
            self._made[layer.name] = self._layer(layer, wanted)
        node = self._made[layer.name]
        if node is None:
            return inputs[0], None
        return self._run(node, inputs, bool(node.wanted))

    def loss(self, heads: List[Any], labels: Any) -> Any:
        if "" not in self._made:
            logits = [self._variable(self._net.labels.shape, True) for _ in heads]
            targets = self._variable(self._net.labels.shape, False)
            self._made[""] = Node(joint_loss(self._net.graph, logits, targets), [*logits, targets], logits)
        _, kept = self._run(self._made[""], [*heads, labels], True)
        return kept

    def backward(self, kept: Any, gradient: Any) -> List[Any]:
        if kept is None:
            return [gradient]
        node, state, made = kept
        if gradient is None:
            gradient = np.ones(made.shape, self._net.tensors.dtype)
        found = node.function.backward(state, {node.function.output: gradient}, set(node.wanted), as_numpy=False)
        return [found.get(variable) for variable in node.inputs]

    def add(self, one: Any, other: Any) -> Any:
        return C.Value(C.NDArrayView.from_data(one.asarray() + other.asarray(), self._device))

    def _run(self, node: Any, values: List[Any], backward: bool) -> Tuple[Any, Any]:
        output = node.function.output
        state, found = node.function.forward(
            dict(zip(node.inputs, values)),
            outputs=[output],
            keep_for_backward={output} if backward else None,
            device=self._device,
            as_numpy=False,
        )
        return found[output], (node, state, found[output])

    def _layer(self, layer: Layer, wanted: List[bool]) -> Optional[Node]:
        inputs = [self._variable(shape, want) for shape, want in zip(layer.input_shapes, wanted)]
        function = self._net.lowering.operation(layer, inputs)
        if not isinstance(function, C.Function):
            return None  # the layer's output is its input
        return Node(function, inputs, [*(each for each, want in zip(inputs, wanted) if want), *function.parameters])

    def _variable(self, shape: Tuple[int, ...], want: bool) -> Any:
        return C.input_variable(shape, dtype=self._net.tensors.dtype.type, needs_gradient=want)
