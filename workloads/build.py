"""Short words for writing a network down: each method adds a layer and returns its name.

Standard library only.
"""

from typing import Optional

from stagebench.workloads.graph import Graph


def gaussian(std: float, bias: float = 0.0) -> dict:
    """Return initialisers: weights from N(0, std), a constant bias."""
    return {"weight": {"kind": "gaussian", "std": std}, "bias": {"kind": "constant", "value": bias}}


def xavier(bias: float = 0.0) -> dict:
    """Return Caffe's xavier: weights uniform within sqrt(3 / fan_in), a constant bias."""
    return {"weight": {"kind": "xavier"}, "bias": {"kind": "constant", "value": bias}}


def uniform(fan_in: int) -> dict:
    """Return PyTorch's default: weights and biases uniform within 1 / sqrt(fan_in)."""
    drawn = {"kind": "uniform", "bound": fan_in**-0.5}
    return {"weight": drawn, "bias": drawn}


class Builder:
    """Builds a `Graph`, layer by layer; the built-in networks take a layer's name from their paper or reference."""

    def __init__(self, name: str, input_shape: tuple, classes: int, decay: str = "all") -> None:
        """Start with the input, whose name is "input"; `decay` as in `Graph`."""
        self.graph = Graph(name, input_shape, classes, decay)

    def conv(self, name: str, x: str, out: int, kernel: int, **attrs: object) -> str:
        """Add a convolution: stride, pad, groups, bias, init as in `stagebench.workloads.kinds`."""
        return self.graph.add(name, "conv", (x,), out=out, kernel=kernel, **attrs)

    def conv_relu(self, name: str, x: str, out: int, kernel: int, **attrs: object) -> str:
        """Add a convolution and its rectifier, named `<name>_relu`."""
        return self.relu(f"{name}_relu", self.conv(name, x, out, kernel, **attrs))

    def conv_bn(self, name: str, x: str, out: int, kernel: int, **attrs: object) -> str:
        """Add a convolution without bias, then batch normalisation named `<name>_bn`."""
        return self.graph.add(f"{name}_bn", "batch_norm", (self.conv(name, x, out, kernel, bias=False, **attrs),))

    def dense(self, name: str, x: str, out: int, init: Optional[dict] = None) -> str:
        """Add a fully connected layer over a flat input, or over each token."""
        return self.graph.add(name, "dense", (x,), out=out, init=init or {})

    def relu(self, name: str, x: str) -> str:
        return self.graph.add(name, "relu", (x,))

    def max_pool(self, name: str, x: str, kernel: int, stride: int, pad: int = 0, ceil: bool = False) -> str:
        return self.graph.add(name, "max_pool", (x,), kernel=kernel, stride=stride, pad=pad, ceil=ceil)

    def avg_pool(self, name: str, x: str, kernel: int, stride: int) -> str:
        return self.graph.add(name, "avg_pool", (x,), kernel=kernel, stride=stride)

    def lrn(self, name: str, x: str, **attrs: object) -> str:
        """Add local response normalisation across channels."""
        return self.graph.add(name, "lrn", (x,), **attrs)

    def dropout(self, name: str, x: str, rate: float) -> str:
        return self.graph.add(name, "dropout", (x,), rate=rate)

    def flatten(self, name: str, x: str) -> str:
        """Add a layer from (channels, height, width) to (features,)."""
        return self.graph.add(name, "flatten", (x,))

    def concat(self, name: str, *xs: str) -> str:
        return self.graph.add(name, "concat", xs)

    def add(self, name: str, *xs: str) -> str:
        return self.graph.add(name, "add", xs)

    def block(
        self, name: str, x: str, width: int, heads: int, eps: float, causal: bool = False, std: float = 0.02
    ) -> str:
        """Add a transformer's block: attention, then two dense layers, each added to what its norm reads."""
        add, init = self.graph.add, gaussian(std)
        y = add(f"{name}_qkv", "qkv", (add(f"{name}_norm1", "layer_norm", (x,), eps=eps),), init=init)
        y = add(f"{name}_attention", "attention", (y,), heads=heads, causal=causal)
        x = self.add(f"{name}_sum1", self.dense(f"{name}_out", y, width, init), x)
        y = self.dense(f"{name}_fc1", add(f"{name}_norm2", "layer_norm", (x,), eps=eps), 4 * width, init)
        y = self.dense(f"{name}_fc2", add(f"{name}_gelu", "gelu", (y,)), width, init)
        return self.add(f"{name}_sum2", y, x)

    def head(self, logits: str, weight: float = 1.0) -> None:
        self.graph.add_head(logits, weight)
