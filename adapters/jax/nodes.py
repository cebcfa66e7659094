"""One layer at a time: two programs a layer, its forward with `jax.vjp` and the product; layers alike share them."""

import json
from typing import Any, Callable, Dict, List, Tuple

import jax
import jax.numpy as jnp

from adapters.jax.net import Net, Tensors
from suite.worker.layers import Nodes
from workloads.graph import Layer

Program = Callable[..., Any]


class JittedNodes(Nodes):
    """Over one device's parameters; each program is waited for."""

    def __init__(self, net: Net, params: Tensors, key: Any) -> None:
        """`params` on the device where the layers are to run."""
        self._net, self._params, self._key = net, params, key
        self._programs: Dict[str, Program] = {}
        self._backward = jax.jit(lambda pull, gradient: pull(gradient))
        self._loss = jax.jit(lambda heads, labels: jax.vjp(lambda logits: net.joint_loss(logits, labels), heads))

    def forward(self, layer: Layer, inputs: List[Any], wanted: List[bool]) -> Tuple[Any, Any]:
        own = self._net.own(layer, self._params)
        values = [value for value, want in zip(inputs, wanted) if want]
        others = [value for value, want in zip(inputs, wanted) if not want]
        alike = json.dumps([layer.kind, layer.attrs, layer.input_shapes, wanted], sort_keys=True)
        if alike not in self._programs:
            self._programs[alike] = jax.jit(differentiable(self._net.operation(layer), wanted))
        made, pull = jax.block_until_ready(self._programs[alike](own, values, others, self._key))
        return made, (pull, wanted)

    def loss(self, heads: List[Any], labels: Any) -> Any:
        _, pull = jax.block_until_ready(self._loss(heads, labels))
        return pull, None

    def backward(self, kept: Any, gradient: Any) -> List[Any]:
        pull, wanted = kept
        if wanted is None:
            (found,) = jax.block_until_ready(self._backward(pull, jnp.ones(())))
            return list(found)
        _, found = jax.block_until_ready(self._backward(pull, gradient))
        answers = iter(found)
        return [next(answers) if want else None for want in wanted]


def differentiable(operation: Any, wanted: List[bool]) -> Program:
    """(own parameters, inputs that need gradients, the others, key) -> (output, its vector-Jacobian product)."""

    def run(own: Tensors, values: List[Any], others: List[Any], key: Any) -> Tuple[Any, Any]:
        def compute(own: Tensors, values: List[Any]) -> Any:
            needed, rest = iter(values), iter(others)
            made = operation(own, [next(needed) if want else next(rest) for want in wanted], key)
            return made[0] if isinstance(made, tuple) else made  # batch statistics are not wanted here

        return jax.vjp(compute, own, values)

    return run
