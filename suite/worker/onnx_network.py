"""A layer graph as an ONNX model for inference: what a network computes once it is trained.

A window that begins beyond the input is not left to `ceil_mode`, which runtimes read in different ways: the input is
padded to what the last window needs. Weights keep their canonical names and shapes.

NumPy, and the package onnx.
"""

import math
from typing import Any, Dict, List, Mapping, Optional, Sequence, Type

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from stagebench.suite.worker.contract import Unsupported
from stagebench.suite.worker.inference_graph import for_inference
from stagebench.workloads.graph import Graph, Layer

OPSET, IR = 20, 9  # of ONNX 1.15: Gelu by tanh is younger than opset 17 with LayerNormalization
Arrays = Mapping[str, np.ndarray]


def trained(graph: Graph, tensors: Arrays, kind: "Optional[Type[Writer]]" = None) -> bytes:
    """Return the serialised model of a trained network's answer, by a kind of writer.

    Batch normalisations stay: runtimes fold them into convolutions. Unsupported for a layer that cannot be written.
    """
    own, found = for_inference(graph, dict(tensors), fold=False)
    try:
        return model(own, found, found, kind).SerializeToString()
    except ValueError as error:
        raise Unsupported(str(error))


def model(graph: Graph, weights: Arrays, statistics: Arrays, kind: "Optional[Type[Writer]]" = None) -> onnx.ModelProto:
    """Return the checked model: from `input`, float32 or int64 tokens, to `logits`; the first axis is the samples.

    `weights` are by canonical name; running statistics that `statistics` lacks are those of a new network, mean 0 and
    variance 1. ValueError for a layer that ONNX has no exact operators for.
    """
    writer = (kind or Writer)(weights, statistics)
    for layer in graph.layers:
        writer.write(layer)
    answer = graph.heads[-1].layer
    if answer != "logits":
        if any(layer.name == "logits" for layer in graph.layers):
            raise ValueError(f"layer 'logits' bears the name of the model's output, which {answer!r} writes; rename it")
        writer.nodes.append(helper.make_node("Identity", [answer], ["logits"]))
    numbers = TensorProto.INT64 if graph.vocabulary else TensorProto.FLOAT
    given = helper.make_tensor_value_info("input", numbers, ["samples", *graph.input_shape])
    made = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["samples", *graph.label_shape, graph.classes])
    whole = helper.make_graph(writer.nodes, graph.name, [given], [made], list(writer.constants.values()))
    opset = helper.make_opsetid("", writer.opset)
    found = helper.make_model(whole, opset_imports=[opset], ir_version=writer.ir, producer_name="stagebench")
    onnx.checker.check_model(found, full_check=True)
    return found


class Writer:
    """The nodes and constants of a model; the method that bears a kind's name writes a layer of it."""

    opset, ir = OPSET, IR

    def __init__(self, weights: Arrays, statistics: Arrays) -> None:
        self.nodes: List[onnx.NodeProto] = []
        self.constants: Dict[str, onnx.TensorProto] = {}
        self._weights, self._statistics = weights, statistics

    def write(self, layer: Layer) -> None:
        method = getattr(self, layer.kind, None)
        if method is None:
            raise ValueError(f"layer {layer.name!r} has the kind {layer.kind!r}, which is not written as ONNX")
        method(layer, *layer.inputs)

    # --- parts -----------------------------------------------------------------

    def _node(self, operator: str, inputs: Sequence[str], output: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(operator, list(inputs), [output], output, **attributes))
        return output

    def _constant(self, name: str, value: Any) -> str:
        self.constants[name] = numpy_helper.from_array(np.asarray(value), name)
        return name

    def _weight(self, layer: Layer, role: str) -> str:
        name = layer.roles[role]
        return name if name in self.constants else self._constant(name, self._weights[name].astype(np.float32))

    def _reshaped(self, layer: Layer, x: str, output: str, *shape: int) -> str:
        return self._node("Reshape", [x, self._constant(f"{output}.shape", np.array(shape))], output)

    # --- kinds -----------------------------------------------------------------

    def conv(self, layer: Layer, x: str) -> None:
        attrs = layer.attrs
        tensors = [self._weight(layer, role) for role in layer.roles]
        window = {name: [attrs[name]] * 2 for name in ("kernel", "stride")}
        self._node(
            "Conv",
            [x, *tensors],
            layer.name,
            kernel_shape=window["kernel"],
            strides=window["stride"],
            pads=[attrs["pad"]] * 4,
            dilations=[1, 1],
            group=attrs["groups"],
        )

    def dense(self, layer: Layer, x: str) -> None:
        if len(layer.shape) == 1:
            tensors = [self._weight(layer, role) for role in layer.roles]
            self._node("Gemm", [x, *tensors], layer.name, transB=1)
            return
        biased = "bias" in layer.roles
        turned = self._node("Transpose", [self._weight(layer, "weight")], f"{layer.name}.turned", perm=[1, 0])
        y = self._node("MatMul", [x, turned], f"{layer.name}.product" if biased else layer.name)
        if biased:
            self._node("Add", [y, self._weight(layer, "bias")], layer.name)

    qkv = tied = dense

    def relu(self, layer: Layer, x: str) -> None:
        self._node("Relu", [x], layer.name)

    def gelu(self, layer: Layer, x: str) -> None:
        self._node("Gelu", [x], layer.name, approximate="tanh")

    def dropout(self, layer: Layer, x: str) -> None:
        self._node("Identity", [x], layer.name)

    def max_pool(self, layer: Layer, x: str) -> None:
        self._node("MaxPool", [x], layer.name, **window_of(layer), dilations=[1, 1])

    def avg_pool(self, layer: Layer, x: str) -> None:
        window, counted = window_of(layer), layer.attrs["count_padding"]
        beyond = window["pads"] != [layer.attrs["pad"]] * 4
        if not (counted and beyond):
            self._node("AveragePool", [x], layer.name, **window, count_include_pad=int(counted))
            return
        # A window that leaves even the padding is divided by what lies within.
        whole = self._node("AveragePool", [x], f"{layer.name}.whole", **window, count_include_pad=1)
        self._node("Mul", [whole, self._constant(f"{layer.name}.shares", shares_within(layer))], layer.name)

    def lrn(self, layer: Layer, x: str) -> None:
        attrs = layer.attrs
        if attrs["size"] % 2 == 0:
            raise ValueError(
                f"layer {layer.name!r} normalises over {attrs['size']} channels; runtimes of ONNX want an odd number"
            )
        size, alpha, beta, k = (attrs[name] for name in ("size", "alpha", "beta", "k"))
        if k == int(k):
            self._node("LRN", [x], layer.name, size=size, alpha=alpha, beta=beta, bias=k)
            return
        # OpenVINO cuts `bias` to a whole number.
        y = self._node("LRN", [x], f"{layer.name}.by_k", size=size, alpha=alpha / k, beta=beta, bias=1.0)
        self._node("Mul", [y, self._constant(f"{layer.name}.scale", np.float32(k**-beta))], layer.name)

    def batch_norm(self, layer: Layer, x: str) -> None:
        tensors = [self._weight(layer, role) for role in ("weight", "bias")]
        for name, shape in layer.buffers:
            begin = np.ones(shape) if name.endswith("running_var") else np.zeros(shape)
            tensors.append(self._constant(name, np.asarray(self._statistics.get(name, begin), np.float32)))
        self._node("BatchNormalization", [x, *tensors], layer.name, epsilon=layer.attrs["eps"])

    def concat(self, layer: Layer, *xs: str) -> None:
        self._node("Concat", xs, layer.name, axis=1)

    def add(self, layer: Layer, *xs: str) -> None:
        self._node("Sum", xs, layer.name)

    def flatten(self, layer: Layer, x: str) -> None:
        self._node("Flatten", [x], layer.name, axis=1)

    def tokens(self, layer: Layer, x: str) -> None:
        (channels, height, width), patch = layer.input_shapes[0], layer.attrs["patch"]
        cut = (0, channels, height // patch, patch, width // patch, patch)
        y = self._reshaped(layer, x, f"{layer.name}.cut", *cut)
        y = self._node("Transpose", [y], f"{layer.name}.patches", perm=[0, 2, 4, 1, 3, 5])
        self._reshaped(layer, y, layer.name, 0, *layer.shape)

    def embedding(self, layer: Layer, x: str) -> None:
        self._node("Gather", [self._weight(layer, "weight"), x], layer.name, axis=0)

    def class_token(self, layer: Layer, x: str) -> None:
        samples = self._node("Shape", [x], f"{layer.name}.samples", end=1)
        rest = self._constant(f"{layer.name}.rest", np.array([1, layer.shape[1]]))
        shape = self._node("Concat", [samples, rest], f"{layer.name}.all", axis=0)
        first = self._node("Expand", [self._weight(layer, "weight"), shape], f"{layer.name}.first")
        self._node("Concat", [first, x], layer.name, axis=1)

    def positions(self, layer: Layer, x: str) -> None:
        table, positions = self._weight(layer, "weight"), layer.shape[0]
        if positions < layer.parameters[0].shape[1]:
            places = (("begin", 0), ("end", positions), ("axis", 1))
            limits = [self._constant(f"{layer.name}.{name}", np.array([place])) for name, place in places]
            table = self._node("Slice", [table, *limits], f"{layer.name}.first")
        self._node("Add", [x, table], layer.name)

    def layer_norm(self, layer: Layer, x: str) -> None:
        tensors = [self._weight(layer, role) for role in ("weight", "bias")]
        self._node("LayerNormalization", [x, *tensors], layer.name, axis=-1, epsilon=layer.attrs["eps"])

    def attention(self, layer: Layer, x: str) -> None:
        """Write it by products and a softmax: ONNX's own is of opset 23."""
        (positions, width), heads, name = layer.shape, layer.attrs["heads"], layer.name
        apart = self._reshaped(layer, x, f"{name}.apart", 0, positions, 3, heads, width // heads)
        turned = self._node("Transpose", [apart], f"{name}.by_part", perm=[2, 0, 3, 1, 4])
        q, k, v = (
            self._node("Gather", [turned, self._constant(f"{name}.{part}", place)], f"{name}.{part}s", axis=0)
            for place, part in enumerate(("query", "key", "value"))
        )
        scale = self._constant(f"{name}.scale", np.float32(1.0 / math.sqrt(width // heads)))
        scaled = self._node("Mul", [q, scale], f"{name}.scaled")
        scores = self._node(
            "MatMul", [scaled, self._node("Transpose", [k], f"{name}.k_t", perm=[0, 1, 3, 2])], f"{name}.qk"
        )
        if layer.attrs["causal"]:
            after = np.triu(np.full((positions, positions), -np.inf, np.float32), 1)
            scores = self._node("Add", [scores, self._constant(f"{name}.after", after)], f"{name}.masked")
        shares = self._node("Softmax", [scores], f"{name}.shares", axis=-1)
        y = self._node("MatMul", [shares, v], f"{name}.by_head")
        y = self._node("Transpose", [y], f"{name}.by_token", perm=[0, 2, 1, 3])
        self._reshaped(layer, y, name, 0, positions, width)

    def select(self, layer: Layer, x: str) -> None:
        place = self._constant(f"{layer.name}.position", layer.attrs["position"])
        self._node("Gather", [x, place], layer.name, axis=1)

    def mean(self, layer: Layer, x: str) -> None:
        self._node("ReduceMean", [x, self._constant(f"{layer.name}.axes", np.array([1]))], layer.name, keepdims=0)


def window_of(layer: Layer) -> Dict[str, List[int]]:
    """Return a pooling's kernel, stride and padding, which is larger at the end where its last window needs that."""
    kernel, stride, pad = (layer.attrs[name] for name in ("kernel", "stride", "pad"))
    ends = [
        max(pad, (places - 1) * stride + kernel - extent - pad)
        for places, extent in zip(layer.shape[1:], layer.input_shapes[0][1:])
    ]
    return {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [pad, pad, *ends]}


def shares_within(layer: Layer) -> np.ndarray:
    """Return kernel over what lies within the padded input, along both axes: (1, 1, height, width)."""
    kernel, stride, pad = (layer.attrs[name] for name in ("kernel", "stride", "pad"))

    def along(places: int, extent: int) -> np.ndarray:
        within = np.minimum(np.arange(places) * stride + kernel, extent + 2 * pad) - np.arange(places) * stride
        return kernel / within

    rows, columns = (along(*each) for each in zip(layer.shape[1:], layer.input_shapes[0][1:]))
    shares: np.ndarray = np.outer(rows, columns)[None, None].astype(np.float32)
    return shares
