"""Operators that ONNX Runtime computes faster than those of `stagebench.suite.worker.onnx_network`."""

import numpy as np
from onnx import helper

from stagebench.suite.worker.onnx_network import Writer
from stagebench.workloads.graph import Layer


class Faster(Writer):
    """A writer for ONNX Runtime on CPUs. Ratios of times are on one thread with AVX2, batch 1 and 8.

    Within 5 % of the defaults, so left alone: memory arena, I/O binding, fixed batch, folded batch normalisations,
    denormals as zero, biases by Gemm.
    """

    opset, ir = 23, 11

    def lrn(self, layer: Layer, x: str) -> None:
        """Write sums over channels as a convolution by a band: AlexNet takes 0.64 to 0.74, GoogLeNet 0.66 to 0.72."""
        attrs, name, channels = layer.attrs, layer.name, layer.shape[0]
        size = attrs["size"]
        band = np.triu(np.tril(np.ones((channels, channels)), (size - 1) // 2), -(size // 2)) * attrs["alpha"] / size
        weight = self._constant(f"{name}.band", band[:, :, None, None].astype(np.float32))
        bias = self._constant(f"{name}.k", np.full(channels, attrs["k"], np.float32))
        scale = self._node("Conv", [self._node("Mul", [x, x], f"{name}.squares"), weight, bias], f"{name}.scale")
        if attrs["beta"] == 0.75:  # two roots take less time than a power
            root = self._node("Sqrt", [scale], f"{name}.root")
            power = self._node("Mul", [root, self._node("Sqrt", [root], f"{name}.fourth")], f"{name}.power")
        else:
            power = self._node(
                "Pow", [scale, self._constant(f"{name}.beta", np.float32(attrs["beta"]))], f"{name}.power"
            )
        self._node("Div", [x, power], name)

    def attention(self, layer: Layer, x: str) -> None:
        """Write the operator of opset 23: gpt_char and ViT-Ti/16 take 0.93 to 0.98."""
        heads, name = layer.attrs["heads"], layer.name
        parts = [f"{name}.{part}" for part in ("query", "key", "value")]
        self.nodes.append(helper.make_node("Split", [x], parts, axis=-1, num_outputs=len(parts)))
        self._node(
            "Attention", parts, name, q_num_heads=heads, kv_num_heads=heads, is_causal=int(layer.attrs["causal"])
        )
