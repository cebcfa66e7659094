"""A graph as one pure function, its tensors to and from the canonical layouts, its multiply-accumulates.

`JittedNodes` runs one layer at a time, by two programs per layer: its forward with `jax.vjp`, and the product.
"""

import json
from typing import Any, Callable, Dict, Iterator, List, Tuple

import jax
import jax.numpy as jnp
import numpy as np

from adapters.jax.lower import Operation, lower, lower_inference
from adapters.jax.precision import Choices, wide
from suite.worker.layers import Nodes
from workloads.graph import Graph, Layer, size

Array = Any  # jax.Array
Tensors = Dict[str, Array]  # by canonical name; HWIO, (in, out)


class Net:
    """The layers of a graph, without tensors."""

    def __init__(self, graph: Graph, choices: Choices) -> None:
        self.graph, self.choices = graph, choices
        self.draws_random = any(layer.draws_random for layer in graph.layers)
        self._operations = [lower(layer, choices) for layer in graph.layers]
        self._inference = {layer.name: lower_inference(layer) for layer in graph.layers if layer.differs_in_inference}

    def own(self, layer: Layer, params: Tensors) -> Tensors:
        """Return a layer's parameters by role."""
        return {parameter.name[len(layer.name) + 1 :]: params[parameter.name] for parameter in layer.parameters}

    def operation(self, layer: Layer) -> Operation:
        return self._operations[self.graph.layers.index(layer)]

    def forward(self, params: Tensors, stats: Tensors, images: Array, key: Any) -> Tuple[List[Array], Tensors]:
        """Return every head's logits for images (samples, height, width, channels), and the new running statistics.

        Without a key it is inference: nothing is dropped, running statistics normalise and stay.
        """
        values, stats = {"input": images}, dict(stats)
        for index, (layer, operation) in enumerate(zip(self.graph.layers, self._operations)):
            own = self.own(layer, params)
            inputs = [values[name] for name in layer.inputs]
            if key is None and layer.differs_in_inference:
                running = [stats[name] for name, _ in layer.buffers]
                made = self._inference[layer.name](own, inputs[0], running)
            elif layer.buffers:
                made, *batch = operation(own, inputs, None)
                stats.update(moved(layer, stats, batch))
            else:
                made = operation(own, inputs, jax.random.fold_in(key, index) if layer.draws_random else None)
            values[layer.name] = made
        return [values[head.layer] for head in self.graph.heads], stats

    def loss(
        self, params: Tensors, stats: Tensors, batch: Tuple[Array, Array], key: Any
    ) -> Tuple[Array, Tuple[Array, Tensors]]:
        """Return (sum over heads of weight x mean cross-entropy, (the last head's logits, new running statistics))."""
        images, labels = batch
        heads, stats = self.forward(params, stats, images, key)
        return self.joint_loss(heads, labels), (heads[-1], stats)

    def joint_loss(self, heads: List[Array], labels: Array) -> Array:
        total = 0.0
        for head, logits in zip(self.graph.heads, heads):
            right = jnp.take_along_axis(jax.nn.log_softmax(wide(logits), axis=-1), labels[:, None], axis=-1)
            total = total - head.weight * jnp.mean(right)
        return total

    def statistics(self) -> Dict[str, np.ndarray]:
        return {name: np.full(shape, name.endswith("_var"), np.float32) for name, shape in self.graph.buffers}


def moved(layer: Layer, stats: Tensors, batch: List[Any]) -> Tensors:
    """Return a layer's running statistics after a batch with these; momentum is the old value's share."""
    momentum = layer.attrs["momentum"]
    return {name: momentum * stats[name] + (1 - momentum) * value for (name, _), value in zip(layer.buffers, batch)}


def native(tensor: np.ndarray) -> np.ndarray:
    """Convert from the canonical layout: OIHW to HWIO, (out, in) to (in, out)."""
    orders = {4: (2, 3, 1, 0), 2: (1, 0)}
    return np.ascontiguousarray(tensor.transpose(orders[tensor.ndim])) if tensor.ndim in orders else tensor


def canonical(tensor: Any) -> np.ndarray:
    """Convert to the canonical layout; always a copy."""
    found = np.asarray(tensor)
    orders = {4: (3, 2, 0, 1), 2: (1, 0)}
    return np.array(found.transpose(orders.get(found.ndim, range(found.ndim))), order="C")


def macs_of(jaxpr: Any) -> int:
    """Count the multiply-accumulates of all convolutions and matrix products in a jaxpr, nested ones too."""
    total = 0
    for equation in jaxpr.eqns:
        shapes = [getattr(each.aval, "shape", ()) for each in equation.invars]
        if equation.primitive.name == "conv_general_dilated":
            # A number of the output takes one product for each number of the kernel that leads to its channel.
            out = equation.outvars[0].aval.shape
            channels = shapes[1][equation.params["dimension_numbers"].rhs_spec[0]]
            total += size(out) * (size(shapes[1]) // channels)
        elif equation.primitive.name == "dot_general":
            contracted = equation.params["dimension_numbers"][0][0]
            total += size(equation.outvars[0].aval.shape) * size(tuple(shapes[0][axis] for axis in contracted))
        else:
            total += sum(macs_of(inner) for inner in inside(equation.params))
    return total


def inside(params: Any) -> Iterator[Any]:
    """Yield the jaxprs that an equation calls."""
    for value in params.values():
        inner = getattr(value, "jaxpr", value)
        if hasattr(inner, "eqns"):
            yield inner


Program = Callable[..., Any]


class JittedNodes(Nodes):
    """Layers over one device's parameters; each call waits for its program."""

    def __init__(self, net: Net, params: Tensors, key: Any) -> None:
        """`params` are on the device that runs the layers."""
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
    """Return (parameters, inputs that need gradients, the others, key) -> (output, vector-Jacobian product)."""

    def run(own: Tensors, values: List[Any], others: List[Any], key: Any) -> Tuple[Any, Any]:
        def compute(own: Tensors, values: List[Any]) -> Any:
            needed, rest = iter(values), iter(others)
            made = operation(own, [next(needed) if want else next(rest) for want in wanted], key)
            return made[0] if isinstance(made, tuple) else made  # without batch statistics

        return jax.vjp(compute, own, values)

    return run
