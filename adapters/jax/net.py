"""A graph as one pure function, its tensors to and from the canonical layouts, its multiply-accumulates.

`JittedNodes` runs one layer at a time, by two programs per layer: its forward with `jax.vjp`, and the product.
"""

import json
from functools import partial
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import jax
import jax.numpy as jnp
import numpy as np

from stagebench.adapters.jax.lower import Array, Inputs, Key, Operation, Roles, lower, lower_inference
from stagebench.adapters.jax.machine import Choices, wide
from stagebench.suite.worker.layers import Nodes
from stagebench.suite.worker.pipeline_stages import Stage, stages
from stagebench.suite.worker.trainer import Arrays
from stagebench.workloads.graph import Graph, Layer, size

Tensors = Dict[str, Array]  # by canonical name; HWIO, (in, out), (vocabulary, width)
Logits = Array  # (samples, classes), or (samples, positions, classes)
Heads = List[Logits]  # the network's answer last
# images (samples, height, width, channels), or tokens, int32 (samples, positions); labels int32 (samples,), or
# (samples, positions)
Batch = Tuple[Array, Array]


class Net:
    """The layers of a graph, without tensors."""

    def __init__(self, graph: Graph, choices: Choices) -> None:
        self.graph = graph
        self.choices = choices
        self.draws_random = any(layer.draws_random for layer in graph.layers)
        self._stages = stages(graph, choices.segments, one_value=True)
        self._operations = [lower(layer, choices) for layer in graph.layers]
        self._tables = {name for layer in graph.layers if layer.takes_numbers for name in layer.roles.values()}
        self._inference = {layer.name: lower_inference(layer) for layer in graph.layers if layer.differs_in_inference}

    def own(self, layer: Layer, params: Tensors) -> Roles:
        """Return the parameters with which a layer computes."""
        return {role: params[name] for role, name in layer.roles.items()}

    def operation(self, layer: Layer) -> Operation:
        return self._operations[self.graph.layers.index(layer)]

    def arrange(self, images: Array) -> Array:
        """Convert (samples, channels, height, width) to the network's layout and type."""
        return jnp.transpose(images, (0, 2, 3, 1)).astype(self.choices.arithmetic.stored)

    def forward(self, params: Tensors, stats: Tensors, inputs: Array, key: Optional[Key]) -> Tuple[Heads, Tensors]:
        """Return every head's logits for images or tokens as in `Batch`, and the new running statistics.

        Without a key it is inference: nothing is dropped, running statistics normalise and stay.
        """
        values = {"input": inputs}
        for stage in self._stages:
            run = partial(self._run, stage)
            if key is not None and stage is not self._stages[-1]:
                run = jax.checkpoint(run)  # activation checkpointing (Chen 2016)
            values, stats = run(params, stats, values, key)
        return [values[head.layer] for head in self.graph.heads], stats

    def _run(
        self, stage: Stage, params: Tensors, stats: Tensors, values: Dict[str, Array], key: Optional[Key]
    ) -> Tuple[Dict[str, Array], Tensors]:
        """Return what leaves a stage, and the new running statistics."""
        values, stats = dict(values), dict(stats)
        for index in range(stage.begin, stage.end):
            layer, operation = self.graph.layers[index], self._operations[index]
            own = self.own(layer, params)
            inputs = [values[name] for name in layer.inputs]
            running = [name for name, _ in layer.buffers]
            if key is None and layer.differs_in_inference:
                made = self._inference[layer.name](own, inputs[0], [stats[name] for name in running])
            elif running:
                made, *batch = operation(own, inputs, None)
                momentum = layer.attrs["momentum"]  # the old value's share
                for name, value in zip(running, batch):
                    stats[name] = momentum * stats[name] + (1 - momentum) * value
            else:
                made = operation(own, inputs, jax.random.fold_in(key, index) if layer.draws_random else None)
            values[layer.name] = made
        return {name: values[name] for name in stage.leaving}, stats

    def loss(self, params: Tensors, stats: Tensors, batch: Batch, key: Key) -> Tuple[Array, Tuple[Logits, Tensors]]:
        """Return (the joint loss, (the last head's logits, new running statistics))."""
        inputs, labels = batch
        heads, stats = self.forward(params, stats, inputs, key)
        return self.joint_loss(heads, labels), (heads[-1], stats)

    def joint_loss(self, heads: Heads, labels: Array) -> Array:
        """Sum over heads of weight x mean cross-entropy."""
        total = 0.0
        for head, logits in zip(self.graph.heads, heads):
            right = jnp.take_along_axis(jax.nn.log_softmax(wide(logits), axis=-1), labels[..., None], axis=-1)
            total = total - head.weight * jnp.mean(right)
        return total

    def native(self, name: str, tensor: np.ndarray) -> np.ndarray:
        """Convert from the canonical layout: OIHW to HWIO, (out, in) to (in, out); tables stay (vocabulary, width)."""
        order = {4: (2, 3, 1, 0), 2: (1, 0)}.get(tensor.ndim)
        return tensor if order is None or name in self._tables else np.ascontiguousarray(tensor.transpose(order))

    def canonical(self, name: str, tensor: Array) -> np.ndarray:
        """Convert to the canonical layout; always a copy."""
        found = np.asarray(tensor)
        order = {4: (3, 2, 0, 1), 2: (1, 0)}.get(found.ndim)
        return np.array(found if order is None or name in self._tables else found.transpose(order), order="C")

    def statistics(self) -> Arrays:
        return {name: np.full(shape, name.endswith("_var"), np.float32) for name, shape in self.graph.buffers}


def macs_of(jaxpr: Any) -> int:
    """Count the multiply-accumulates of all convolutions and matrix products in a jaxpr, nested ones too."""
    total = 0
    for equation in jaxpr.eqns:
        shapes = [getattr(variable.aval, "shape", ()) for variable in equation.invars]
        if equation.primitive.name == "conv_general_dilated":
            # A number of the output takes one product for each number of the kernel that leads to its channel.
            channels = shapes[1][equation.params["dimension_numbers"].rhs_spec[0]]
            total += size(equation.outvars[0].aval.shape) * (size(shapes[1]) // channels)
        elif equation.primitive.name == "dot_general":
            contracted = equation.params["dimension_numbers"][0][0]
            total += size(equation.outvars[0].aval.shape) * size(tuple(shapes[0][axis] for axis in contracted))
        else:
            total += sum(macs_of(inner) for inner in inside(equation.params))
    return total


def inside(params: Dict[str, Any]) -> Iterator[Any]:
    """Yield the jaxprs that an equation calls."""
    for value in params.values():
        inner = getattr(value, "jaxpr", value)
        if hasattr(inner, "eqns"):
            yield inner


class JittedNodes(Nodes):
    """Layers over one device's parameters; each call waits for its program."""

    def __init__(self, net: Net, params: Tensors, key: Key) -> None:
        """`params` are on the device that runs the layers."""
        self._net = net
        self._params = params
        self._key = key
        self._programs: Dict[str, Callable[..., Any]] = {}
        self._backward = jax.jit(lambda pull, gradient: pull(gradient))
        self._loss = jax.jit(lambda heads, labels: jax.vjp(lambda logits: net.joint_loss(logits, labels), heads))

    def forward(self, layer: Layer, inputs: Inputs, wanted: List[bool]) -> Tuple[Array, Any]:
        own = self._net.own(layer, self._params)
        values = [value for value, want in zip(inputs, wanted) if want]
        others = [value for value, want in zip(inputs, wanted) if not want]
        alike = json.dumps([layer.kind, layer.attrs, layer.input_shapes, wanted], sort_keys=True)
        if alike not in self._programs:
            operation = self._net.operation(layer)

            def run(own: Roles, values: Inputs, others: Inputs, key: Key) -> Tuple[Array, Any]:
                def compute(own: Roles, values: Inputs) -> Array:
                    needed = iter(values)
                    rest = iter(others)
                    made = operation(own, [next(needed) if want else next(rest) for want in wanted], key)
                    return made[0] if isinstance(made, tuple) else made  # without batch statistics

                return jax.vjp(compute, own, values)

            self._programs[alike] = jax.jit(run)
        made, pull = jax.block_until_ready(self._programs[alike](own, values, others, self._key))
        return made, (pull, wanted)

    def loss(self, heads: Heads, labels: Array) -> Any:
        _, pull = jax.block_until_ready(self._loss(heads, labels))
        return pull, None

    def backward(self, kept: Any, gradient: Array) -> List[Any]:
        pull, wanted = kept
        if wanted is None:
            (found,) = jax.block_until_ready(self._backward(pull, jnp.ones(())))
            return list(found)
        _, found = jax.block_until_ready(self._backward(pull, gradient))
        answers = iter(found)
        return [next(answers) if want else None for want in wanted]
