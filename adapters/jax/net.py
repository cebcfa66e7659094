"""A graph as one pure function, and the way of its tensors to and from the canonical layouts.

Oldest Python: 3.11, JAX's own.
"""

from typing import Any, Dict, List, Tuple

import jax
import jax.numpy as jnp
import numpy as np

from adapters.jax.lower import lower
from workloads.graph import Graph

Tensors = Dict[str, Any]  # by canonical name


class Net:
    """Knows the layers; holds no tensor."""

    def __init__(self, graph: Graph, tuned: bool) -> None:
        """Lower every layer."""
        self.graph = graph
        self._operations = [lower(layer, tuned) for layer in graph.layers]

    def forward(self, params: Tensors, stats: Tensors, images: Any, key: Any) -> Tuple[List[Any], Tensors]:
        """Logits of every head for images (samples, height, width, channels), and the new running statistics."""
        values, stats = {"input": images}, dict(stats)
        for index, (layer, operation) in enumerate(zip(self.graph.layers, self._operations)):
            own = {parameter.name[len(layer.name) + 1 :]: params[parameter.name] for parameter in layer.parameters}
            inputs = [values[name] for name in layer.inputs]
            made = operation(own, inputs, jax.random.fold_in(key, index) if layer.kind == "dropout" else None)
            if layer.kind == "batch_norm":
                made, *found = made
                for role, value in zip(("running_mean", "running_var"), found):
                    name, momentum = layer.name + "." + role, layer.attrs["momentum"]
                    stats[name] = momentum * stats[name] + (1 - momentum) * value
            values[layer.name] = made
        return [values[head.layer] for head in self.graph.heads], stats

    def loss(self, params: Tensors, stats: Tensors, batch: Any, key: Any) -> Tuple[Any, Tuple[Any, Tensors]]:
        """(sum over heads of weight x mean cross-entropy, (the last head's logits, new running statistics))."""
        images, labels = batch
        heads, stats = self.forward(params, stats, images, key)
        total = 0.0
        for head, logits in zip(self.graph.heads, heads):
            right = jnp.take_along_axis(jax.nn.log_softmax(logits, axis=-1), labels[:, None], axis=-1)
            total = total - head.weight * jnp.mean(right)
        return total, (heads[-1], stats)

    def statistics(self) -> Dict[str, np.ndarray]:
        """Running means 0 and variances 1."""
        return {name: np.full(shape, name.endswith("_var"), np.float32) for name, shape in self.graph.buffers}


def native(tensor: np.ndarray) -> np.ndarray:
    """OIHW to HWIO, (out, in) to (in, out); everything else stays."""
    orders = {4: (2, 3, 1, 0), 2: (1, 0)}
    return np.ascontiguousarray(tensor.transpose(orders[tensor.ndim])) if tensor.ndim in orders else tensor


def canonical(tensor: Any) -> np.ndarray:
    """The way back, as a NumPy array of its own."""
    found = np.asarray(tensor)
    orders = {4: (3, 2, 0, 1), 2: (1, 0)}
    return np.array(found.transpose(orders.get(found.ndim, range(found.ndim))), order="C")
