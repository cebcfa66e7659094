"""Networks as ONNX by onnx.helper, for ONNX Runtime and OpenVINO: written apart from the suite's own writer."""

import math

import numpy as np
from onnx import TensorProto, helper, numpy_helper

CONTRIBUTED = "com.microsoft"  # ONNX Runtime's own operators


class Graph:
    def __init__(self, network, form, tensors, inputs, contributed):
        self.form, self.tensors, self.samples, self.contributed = form, tensors, len(inputs), contributed
        self.nodes, self.constants = [], {}
        last = network(self, "x")
        kind = TensorProto.FLOAT if inputs.dtype == np.float32 else TensorProto.INT64
        given = helper.make_tensor_value_info("x", kind, inputs.shape)
        graph = helper.make_graph(
            self.nodes,
            "by_hand",
            [given],
            [helper.make_tensor_value_info(last, TensorProto.FLOAT, None)],
            [numpy_helper.from_array(value, name) for name, value in self.constants.items()],
        )
        sets = [helper.make_opsetid("", 20)] + [helper.make_opsetid(CONTRIBUTED, 1)] * contributed
        self.model = helper.make_model(graph, opset_imports=sets, ir_version=10).SerializeToString()

    def node(self, kind, *xs, domain="", outputs=1, **options):
        names = [f"{kind}_{len(self.nodes)}_{place}" for place in range(outputs)]
        xs = [x if isinstance(x, str) else self.constant(x) for x in xs]
        self.nodes.append(helper.make_node(kind, xs, names, domain=domain, **options))
        return names[0] if outputs == 1 else names

    def constant(self, value, name=None):
        name = name or f"constant_{len(self.constants)}"
        self.constants[name] = np.asarray(value)
        return name

    def weight(self, name, turned=False):
        value = self.tensors[name]
        return self.constant(np.ascontiguousarray(value.T) if turned else value, name + "_turned" * turned)

    def conv(self, x, name, stride=1, pad=0, relu=True, plus=None):
        w = self.weight(name + ".weight"), self.weight(name + ".bias")
        self.channels = len(self.tensors[name + ".bias"])
        y = self.node("Conv", x, *w, strides=[stride] * 2, pads=[pad] * 4)
        y = y if plus is None else self.node("Add", y, plus)
        return self.node("Relu", y) if relu else y

    def max_pool(self, x, kernel, stride, pad=0, ceil=False):
        return self.node("MaxPool", x, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[pad] * 4, ceil_mode=ceil)

    def lrn(self, x):
        if not self.contributed:
            return self.node("LRN", x, size=5, alpha=1e-4, beta=0.75, bias=1.0)
        apart = np.abs(np.subtract.outer(*[np.arange(self.channels)] * 2))
        band = ((apart <= 2) * (1e-4 / 5)).astype(np.float32)[:, :, None, None]
        scale = self.node("Conv", self.node("Mul", x, x), band, np.ones(self.channels, np.float32))
        root = self.node("Sqrt", scale)
        return self.node("Div", x, self.node("Mul", root, self.node("Sqrt", root)))

    def concat(self, xs):
        return self.node("Concat", *xs, axis=1)

    def flat(self, x):
        return self.node("Flatten", x)

    def mean(self, x):
        return self.node("Flatten", self.node("GlobalAveragePool", x))

    def dense(self, x, name, relu=False, tokens=False):
        if tokens:
            y = self.node(
                "Add", self.node("MatMul", x, self.weight(name + ".weight", True)), self.weight(name + ".bias")
            )
        else:
            y = self.node("Gemm", x, self.weight(name + ".weight"), self.weight(name + ".bias"), transB=1)
        return self.node("Relu", y) if relu else y

    def norm(self, x, name):
        w = self.weight(name + ".weight"), self.weight(name + ".bias")
        return self.node("LayerNormalization", x, *w, epsilon=self.form.eps)

    def attention(self, qkv):
        form = self.form
        if self.contributed:
            q, k, v = self.node("Split", qkv, axis=-1, num_outputs=3, outputs=3)
            options = {"num_heads": form.heads, "unidirectional": int(not form.image)}
            return self.node("MultiHeadAttention", q, k, v, domain=CONTRIBUTED, **options)
        d = form.width // form.heads
        apart = self.node("Reshape", qkv, np.array([self.samples, form.tokens, 3, form.heads, d]))
        apart = self.node("Transpose", apart, perm=[2, 0, 3, 1, 4])
        q, k, v = (self.node("Gather", apart, np.array(part), axis=0) for part in range(3))
        scores = self.node(
            "MatMul", self.node("Mul", q, np.float32(1 / math.sqrt(d))), self.node("Transpose", k, perm=[0, 1, 3, 2])
        )
        if not form.image:
            scores = self.node("Add", scores, np.triu(np.full((form.tokens, form.tokens), -np.inf, np.float32), 1))
        y = self.node("Transpose", self.node("MatMul", self.node("Softmax", scores), v), perm=[0, 2, 1, 3])
        return self.node("Reshape", y, np.array([self.samples, form.tokens, form.width]))

    def transformer(self, x):
        form, t = self.form, self.tensors
        if form.image:
            kernel = t["patches.weight"].reshape(form.width, 3, form.patch, form.patch)
            h = self.node("Conv", x, kernel, self.weight("patches.bias"), strides=[form.patch] * 2)
            h = self.node("Transpose", self.node("Reshape", h, np.array([0, 0, -1])), perm=[0, 2, 1])
            h = self.node("Concat", np.repeat(t["class_token.weight"], self.samples, 0), h, axis=1)
        else:
            h = self.node("Gather", self.weight("embedding.weight"), x)
        h = self.node("Add", h, self.weight("positions.weight"))
        for number in range(1, form.blocks + 1):
            name = f"block{number}"
            y = self.attention(self.dense(self.norm(h, name + "_norm1"), name + "_qkv", tokens=True))
            h = self.node("Add", h, self.dense(y, name + "_out", tokens=True))
            z = self.dense(self.norm(h, name + "_norm2"), name + "_fc1", tokens=True)
            z = self.node("Gelu", z, approximate="tanh")
            h = self.node("Add", h, self.dense(z, name + "_fc2", tokens=True))
        h = self.norm(h, "norm")
        if form.image:
            return self.dense(self.node("Gather", h, np.array(0), axis=1), "fc")
        return self.node("MatMul", h, self.weight("embedding.weight", True))
