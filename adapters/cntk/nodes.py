"""One layer at a time: each layer a CNTK function of its own, over the network's parameters."""

from typing import Any, Dict, List, NamedTuple, Optional, Tuple

import numpy as np

from adapters.cntk.framework import cntk as C  # noqa: N812 - the name everybody gives it
from adapters.cntk.net import Net, joint_loss
from suite.worker.layers import Nodes
from workloads.graph import Layer


class Node(NamedTuple):
    """A function, its inputs, and those of them and of its parameters that get gradients."""

    function: Any
    inputs: List[Any]
    wanted: List[Any]


class FunctionNodes(Nodes):
    """Functions are made when first wanted; gradients are CNTK's own memory, so every round lets go of them."""

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
            logits = [self._variable((self._net.graph.classes,), True) for _ in heads]
            targets = self._variable((self._net.graph.classes,), False)
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
            return None  # it hands its input on
        return Node(function, inputs, [*(each for each, want in zip(inputs, wanted) if want), *function.parameters])

    def _variable(self, shape: Tuple[int, ...], want: bool) -> Any:
        return C.input_variable(shape, dtype=self._net.tensors.dtype.type, needs_gradient=want)
