"""A graph as one pure function, its tensors to and from the canonical layouts, its multiply-accumulates."""

from typing import Any, Dict, Iterator, List, Tuple

import jax
import jax.numpy as jnp
import numpy as np

from adapters.jax.lower import Operation, lower, lower_inference
from adapters.jax.precision import wide
from adapters.jax.ways import Ways
from workloads.graph import Graph, Layer, size

Tensors = Dict[str, Any]  # by canonical name


class Net:
    """Knows the layers; holds no tensor."""

    def __init__(self, graph: Graph, ways: Ways) -> None:
        self.graph, self.ways = graph, ways
        self.drops = any(layer.draws_random for layer in graph.layers)
        self._operations = [lower(layer, ways) for layer in graph.layers]
        self._inference = {layer.name: lower_inference(layer) for layer in graph.layers if layer.differs_in_inference}

    def own(self, layer: Layer, params: Tensors) -> Tensors:
        """A layer's parameters by role."""
        return {parameter.name[len(layer.name) + 1 :]: params[parameter.name] for parameter in layer.parameters}

    def operation(self, layer: Layer) -> Operation:
        return self._operations[self.graph.layers.index(layer)]

    def forward(self, params: Tensors, stats: Tensors, images: Any, key: Any) -> Tuple[List[Any], Tensors]:
        """Logits of every head for images (samples, height, width, channels), and the new running statistics.

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

    def loss(self, params: Tensors, stats: Tensors, batch: Any, key: Any) -> Tuple[Any, Tuple[Any, Tensors]]:
        """(sum over heads of weight x mean cross-entropy, (the last head's logits, new running statistics))."""
        images, labels = batch
        heads, stats = self.forward(params, stats, images, key)
        return self.joint_loss(heads, labels), (heads[-1], stats)

    def joint_loss(self, heads: List[Any], labels: Any) -> Any:
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
    """OIHW to HWIO, (out, in) to (in, out); everything else stays."""
    orders = {4: (2, 3, 1, 0), 2: (1, 0)}
    return np.ascontiguousarray(tensor.transpose(orders[tensor.ndim])) if tensor.ndim in orders else tensor


def canonical(tensor: Any) -> np.ndarray:
    """The way back, as a NumPy array of its own."""
    found = np.asarray(tensor)
    orders = {4: (3, 2, 0, 1), 2: (1, 0)}
    return np.array(found.transpose(orders.get(found.ndim, range(found.ndim))), order="C")


def macs_of(jaxpr: Any) -> int:
    """Multiply-accumulates of every convolution and every product of matrices in a jaxpr, wherever in it."""
    total = 0
    for equation in jaxpr.eqns:
        shapes = [getattr(each.aval, "shape", ()) for each in equation.invars]
        if equation.primitive.name == "conv_general_dilated":
            # A cell of the output takes one product for each number of the kernel that leads to its channel.
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
    """The jaxprs that an equation calls."""
    for value in params.values():
        inner = getattr(value, "jaxpr", value)
        if hasattr(inner, "eqns"):
            yield inner
