"""A graph as one CNTK function: inputs, joint loss, logits."""

from typing import Any, Callable, Dict, List

import numpy as np

from adapters.cntk.framework import cntk as C  # noqa: N812 - the name everybody gives it
from adapters.cntk.lower import Lowering
from adapters.cntk.tensors import Tensors
from workloads.graph import Graph


class Net:
    """The lowered graph. `loss` is each sample's, summed over heads by weight; CNTK sums it over the batch."""

    def __init__(
        self,
        graph: Graph,
        weights: Dict[str, np.ndarray],
        dtype: Any,
        samples: int,
        mask_seed: Callable[[str], int],
        fast: bool,
    ) -> None:
        """Lower every layer, with these weights (canonical names); KeyError names a missing one."""
        self.graph, self.tensors = graph, Tensors(weights, dtype)
        self.lowering = Lowering(self.tensors, samples, mask_seed, fast)
        self.images = C.input_variable(graph.input_shape, dtype=dtype, needs_gradient=False, name="images")
        self.labels = C.input_variable((graph.classes,), dtype=dtype, needs_gradient=False, name="labels")
        values: Dict[str, Any] = {"input": self.images}
        for layer in graph.layers:
            values[layer.name] = self.lowering.operation(layer, [values[name] for name in layer.inputs])
        self.logits = values[graph.heads[-1].layer]
        self.loss = joint_loss(graph, [values[head.layer] for head in graph.heads], self.labels)
        self.parameters = [held.tensor for held in self.tensors.parameters.values()]

    def arguments(self, batch: Any) -> Dict[Any, Any]:
        return {self.images: batch.images, self.labels: batch.labels}

    def parameter_count(self) -> int:
        """Trainable numbers of CNTK's own graph."""
        return sum(int(np.prod(parameter.shape)) for parameter in self.loss.parameters)

    def macs(self) -> int:
        """Multiply-accumulates of one sample with parameters, from the operations and shapes that CNTK reports."""
        found = C.logging.graph.depth_first_search(self.loss.root_function, arithmetic)
        return sum(macs_of(operation) for operation in found)


def joint_loss(graph: Graph, heads: List[Any], labels: Any) -> Any:
    """The sum over heads of weight x cross-entropy, a number a sample."""
    losses = []
    for head, logits in zip(graph.heads, heads):
        entropy = C.cross_entropy_with_softmax(logits, labels, axis=-1)
        losses.append(entropy if head.weight == 1.0 else entropy * logits.dtype(head.weight))
    return sum(losses[1:], losses[0])


def arithmetic(node: Any) -> bool:
    """Whether it is a product with a parameter; LRN's band is a constant."""
    if not isinstance(node, C.Function) or node.op_name not in ("Convolution", "Times"):
        return False
    return any(operand.is_parameter for operand in node.inputs)


def macs_of(operation: Any) -> int:
    """Of one sample: each output is a sum over as many products as the operands share."""
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
