"""A graph as Gluon blocks, network and loss; and each layer alone, by MXNet's imperative operators, to time it.

Network and loss are two cached graphs. As one they took 4 to 6 % longer on mnist_small and as long elsewhere: a segment
of a graph is ready as a whole, and the interpreter waits for the loss.
"""

import json
from typing import Any, Dict, List, Sequence, Set, Tuple

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon

from stagebench.adapters.mxnet.lower import Choices, lower
from stagebench.suite.worker.contract import Unsupported
from stagebench.suite.worker.layers import Nodes
from stagebench.suite.worker.trainer import Arrays
from stagebench.workloads.graph import Graph, Layer

SCORES, WEIGHTED = ("_contrib_interleaved_matmul_selfatt_" + product for product in ("qk", "valatt"))
# The place of the operand that says how many products an output costs.
COUNTED = {"Convolution": 1, "FullyConnected": 1, "batch_dot": 0, SCORES: 0, WEIGHTED: 1}


class Net(gluon.HybridBlock):
    """Runs a graph; a call gives the logits of every head, the network's answer last.

    MXNet's running variance takes the batch's biased variance, the graph's the unbiased
    one, v * n / (n - 1). Both are r <- m*r + (1 - m)*v, so the graph's is MXNet's times
    n / (n - 1) if MXNet's began at (n - 1) / n: it does, and `tensors` multiplies.
    """

    def __init__(
        self, graph: Graph, weights: Arrays, contexts: Sequence[Any], dtype: str, samples: int, choices: Choices
    ) -> None:
        """Place the weights on every context; batch statistics are over one device's `samples`.

        `samples` 0: it only infers, by the running statistics among the weights.
        """
        super().__init__(prefix="")
        first = choices.tuned and choices.precision == "float32"
        self.choices = choices._replace(positions_first=first, by_head=by_head(graph) if first else {})
        self.graph, self._answers = graph, not samples
        self._unbias: Dict[str, float] = {}
        for parameter in graph.parameters:
            values = self._turned(parameter.name, np.asarray(weights[parameter.name]), by_head=True)
            self._own(parameter.name, values, contexts, dtype, "write" if samples else "null")
        for layer in graph.layers:
            for name, shape in layer.buffers:
                start = self._first(layer, name, shape, samples) if samples else weights[name]
                self._own(name, start, contexts, dtype, "null")

    def hybrid_forward(self, F: Any, inputs: Any, **params: Any) -> List[Any]:  # noqa: N803 - Gluon's names
        """Trace the graph: called once, with symbols."""
        values: Dict[str, Any] = {"input": inputs}
        for layer in self.graph.layers:
            operands = [values[name] for name in layer.inputs]
            values[layer.name] = lower(F, layer, operands, params, self.choices)
        heads = [values[head.layer] for head in self.graph.heads]
        turned = self._answers and self.positions_first
        return [F.swapaxes(each, dim1=0, dim2=1) for each in heads] if turned else heads

    @property
    def positions_first(self) -> bool:
        """True if the heads are (positions, samples, classes)."""
        shapes = {layer.name: layer.shape for layer in self.graph.layers}
        return self.choices.positions_first and len(shapes[self.graph.heads[-1].layer]) == 2

    def trainable(self) -> List[Tuple[str, Any]]:
        """(canonical name, gluon.Parameter), in the graph's order."""
        return [(parameter.name, self.params[parameter.name]) for parameter in self.graph.parameters]

    def tensors(self, context: Any) -> Arrays:
        """Return one device's parameters and running statistics by canonical name."""
        tensors = {name: self.canonical(name, parameter.data(context)) for name, parameter in self.params.items()}
        for name, factor in self._unbias.items():
            tensors[name] = tensors[name] * tensors[name].dtype.type(factor)
        return tensors

    def predict(self, inputs: Any, context: Any) -> np.ndarray:
        """Return the last head's logits, by the graph's running statistics."""
        kept = {}
        for name, factor in self._unbias.items():
            array = self.params[name].data(context)
            kept[name] = array.copy()
            array *= factor
        with autograd.predict_mode():
            logits = self.logits(self(inputs))  # before the next call writes over it
        for name, values in kept.items():
            values.copyto(self.params[name].data(context))
        return logits

    def logits(self, heads: List[Any]) -> np.ndarray:
        """Return the last head's values, samples first."""
        found: np.ndarray = heads[-1].asnumpy()
        return found.swapaxes(0, 1) if self.positions_first else found

    def canonical(self, name: str, own: Any) -> np.ndarray:
        """Return an array of a parameter's shape, or of a statistic's, with its rows in the canonical order."""
        return self._turned(name, own.asnumpy(), by_head=False)

    def macs(self) -> int:
        """Count one sample's multiply-accumulates on MXNet's own graph.

        Each output of a convolution or dense layer costs the products of one filter: the weight's shape, as MXNet
        infers it, without its first extent; each of a batched product, or of attention's, those of a row of an operand.
        """
        symbol = mx.sym.Group(list(self(mx.sym.var("data"))))
        internals = symbol.get_internals()
        _, shapes, _ = internals.infer_shape(data=(1,) + tuple(self.graph.input_shape))
        by_name = dict(zip(internals.list_outputs(), shapes))
        nodes = json.loads(symbol.tojson())["nodes"]
        total = 0
        for node in nodes:
            if node["op"] in COUNTED:
                operand = nodes[node["inputs"][COUNTED[node["op"]]][0]]
                name = operand["name"] if operand["op"] == "null" else f"{operand['name']}_output"
                row = by_name[name][-1:] if node["op"] in ("batch_dot", WEIGHTED) else by_name[name][1:]
                if node["op"] == SCORES:
                    row = (by_name[name][-1] // 3 // int(node["attrs"]["heads"]),)
                total += int(np.prod(by_name[f"{node['name']}_output"])) * int(np.prod(row))
        return total

    def _first(self, layer: Layer, name: str, shape: Sequence[int], samples: int) -> np.ndarray:
        """Return a running statistic's first value; note the variance's factor."""
        if not name.endswith(".running_var"):
            return np.zeros(shape)
        count = samples * int(np.prod(layer.shape[1:]))
        if count == 1:
            raise Unsupported(f"layer {layer.name!r} normalises over one number; ask for a larger batch")
        self._unbias[name] = count / (count - 1.0)
        return np.full(shape, 1.0 / self._unbias[name])

    def _turned(self, name: str, values: np.ndarray, by_head: bool) -> np.ndarray:
        """Turn the rows of a `qkv` layer from (3, heads, d) to (heads, 3, d), or back."""
        heads = self.choices.by_head.get(name.rpartition(".")[0])
        if heads is None:
            return values
        rows = values.reshape(3 if by_head else heads, heads if by_head else 3, -1, *values.shape[1:])
        return rows.swapaxes(0, 1).reshape(values.shape)

    def _own(self, name: str, values: np.ndarray, contexts: Sequence[Any], dtype: str, grad_req: str) -> None:
        parameter = self.params.get(
            name, shape=values.shape, dtype=dtype, grad_req=grad_req, differentiable=grad_req != "null"
        )
        setattr(self, name, parameter)  # becomes an argument of hybrid_forward
        parameter.initialize(mx.init.Zero(), ctx=list(contexts))
        parameter.set_data(mx.nd.array(values, ctx=mx.cpu(), dtype=dtype))


def by_head(graph: Graph) -> Dict[str, int]:
    """Return the heads of each `qkv` layer that attention alone reads.

    With rows by head, as attention's products take them, gpt_char takes 0.95 of the time.
    """
    readers: Dict[str, Set[Any]] = {layer.name: set() for layer in graph.layers if layer.kind == "qkv"}
    for layer in graph.layers:
        for name in readers.keys() & set(layer.inputs):
            readers[name].add(layer.attrs["heads"] if layer.kind == "attention" else None)
    return {name: heads.pop() for name, heads in readers.items() if len(heads) == 1 and None not in heads}


class JointLoss(gluon.HybridBlock):
    """The sum over heads of share x softmax cross-entropy, per sample: MXNet's backward sums over samples."""

    def __init__(self, shares: Sequence[float], positions_first: bool) -> None:
        """`shares` are the heads' weights, in order; labels are (samples,), or (samples, positions)."""
        super().__init__(prefix="loss_")
        self._shares, self._positions_first = list(shares), positions_first
        self.cross_entropy = gluon.loss.SoftmaxCrossEntropyLoss(
            axis=-1, sparse_label=True, from_logits=False, weight=None, batch_axis=int(positions_first)
        )

    def hybrid_forward(self, F: Any, labels: Any, *heads: Any) -> Any:  # noqa: N803
        total, labels = None, F.transpose(labels) if self._positions_first else labels
        for share, logits in zip(self._shares, heads):
            loss = self.cross_entropy(logits, labels)
            loss = loss if share == 1.0 else loss * share
            total = loss if total is None else total + loss
        return total


class ImperativeNodes(Nodes):
    """Layers over one device's parameters; gradients are written to the trainer's arrays."""

    def __init__(self, params: Dict[str, Any], joint: Any, choices: Choices) -> None:
        """`params` and running statistics by canonical name, on the device; `joint` is the loss's block."""
        self._params, self._joint, self._choices = params, joint, choices
        self._room: Dict[Tuple[str, int], Any] = {}  # the inputs' gradients, reused in every round

    def forward(self, layer: Layer, inputs: List[Any], wanted: List[bool]) -> Tuple[Any, Any]:
        values = [self._marked(layer.name, place, *both) for place, both in enumerate(zip(inputs, wanted))]
        with autograd.record(train_mode=True):
            made = lower(mx.nd, layer, values, dict(self._params), self._choices)
        return made.detach(), (made, values, wanted)

    def loss(self, heads: List[Any], labels: Any) -> Any:
        values = [self._marked("", place, value, True) for place, value in enumerate(heads)]
        with autograd.record(train_mode=True):
            made = self._joint(labels, *values)
        return made, values, [True] * len(values)

    def backward(self, kept: Any, gradient: Any) -> List[Any]:
        made, values, wanted = kept
        made.backward(gradient)
        return [value.grad if want else None for value, want in zip(values, wanted)]

    def _marked(self, name: str, place: int, value: Any, want: bool) -> Any:
        """Return the value as a leaf of a new graph."""
        leaf = value.detach()
        if want:
            if (name, place) not in self._room:
                self._room[name, place] = mx.nd.zeros_like(leaf)
            autograd.mark_variables([leaf], [self._room[name, place]])
        return leaf
