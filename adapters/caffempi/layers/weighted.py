"""The kinds with parameters: convolutions, 1x1 ones as matrix products, dense layers, batch normalisation."""

from typing import Any, Sequence

import torch
from torch import Tensor

from stagebench.adapters.caffempi.layers.base import Blobs, Gradients, Layer, Roles
from stagebench.adapters.pytorch.kernels import by_onednn
from stagebench.workloads.graph import Layer as Node
from stagebench.workloads.graph import size

aten = torch.ops.aten


class Linear(Layer):
    """Has a weight (out, ...) and, perhaps, a bias (out)."""

    def __init__(self, node: Node, way: str = "torch") -> None:
        """`way`: one of `stagebench.adapters.pytorch.candidates.WAYS`."""
        super().__init__(node)
        self.way = way
        self._output: Sequence[int] = ()  # the shape of the last forward's

    def bind(self, parameters: Roles, gradients: Roles) -> None:
        self.weight = parameters["weight"]
        self.weight_gradient = gradients["weight"]
        self.bias: Any = parameters.get("bias")
        self.bias_gradient: Any = gradients.get("bias")

    def product(self, x: Tensor, matrix: Tensor) -> Tensor:
        """Multiply x (rows, in) by a matrix (out, in), transposed, and add the bias."""
        if self.way != "torch":
            return by_onednn(x, matrix, self.bias)
        if self.bias is None:
            return torch.mm(x, matrix.t())
        return torch.addmm(self.bias, x, matrix.t())

    def product_backward(self, dy: Tensor, x: Tensor, matrix: Tensor, gradient: Tensor) -> Any:
        """Write the gradients of matrix and bias into the flat buffer; return that of x where it is wanted."""
        if self.bias is not None:
            torch.sum(dy, 0, out=self.bias_gradient)
        if self.way == "torch":
            torch.mm(dy.t(), x, out=gradient)
            return torch.mm(dy, matrix) if self.wants[0] else None
        gradient.copy_(by_onednn(dy.t(), x.t()))
        return by_onednn(dy, matrix.t()) if self.wants[0] else None

    def macs(self) -> int:
        """Every output is a product over all inputs, a convolution's over its input channels and its window."""
        return size(tuple(self._output[1:])) * size(tuple(self.weight.shape[1:]))


class Convolution(Linear):
    """Cross-correlation with zero padding on both sides; the weight is (out, in / groups, kernel, kernel)."""

    def __init__(self, node: Node, way: str = "torch") -> None:
        super().__init__(node, way)
        attrs = node.attrs
        # A dilated 1x1 convolution is the same one, and goes to oneDNN.
        dilation = [2, 2] if way == "onednn" else [1, 1]
        # stride, padding, dilation, transposed, output padding, groups
        self._window = ([attrs["stride"]] * 2, [attrs["pad"]] * 2, dilation, False, [0, 0], attrs["groups"])

    def forward(self, xs: Blobs) -> Tensor:
        self.kept = xs[0]
        y = torch.convolution(xs[0], self.weight, self.bias, *self._window)
        self._output = y.shape
        return y

    def backward(self, dy: Tensor, owned: bool) -> Gradients:
        """Compute the gradients of input, weight and bias in one call, as oneDNN shares work among them."""
        biased = self.bias is not None
        shape = [dy.shape[1]] if biased else None
        wanted = [self.wants[0], True, biased]
        dx, dw, db = aten.convolution_backward.default(dy, self.taken(), self.weight, shape, *self._window, wanted)
        self.weight_gradient.copy_(dw)
        if biased:
            self.bias_gradient.copy_(db)
        return (dx,)


class PointConvolution(Convolution):
    """A 1x1 convolution, stride 1, on channels-last data: a matrix product over pixels.

    The same arithmetic as the general one; the weight's gradient is written straight
    into the flat buffer instead of being copied there.
    """

    def bind(self, parameters: Roles, gradients: Roles) -> None:
        """Look at the weight as a matrix (out, in)."""
        super().bind(parameters, gradients)
        out, channels = self.weight.shape[:2]
        self._matrix = self.weight.view(out, channels)
        self._matrix_gradient = self.weight_gradient.view(out, channels)

    def forward(self, xs: Blobs) -> Tensor:
        samples, _, height, width = xs[0].shape
        self.kept = pixels(xs[0])
        y = self.product(self.kept, self._matrix).view(samples, height, width, -1).permute(0, 3, 1, 2)
        self._output = y.shape
        return y

    def backward(self, dy: Tensor, owned: bool) -> Gradients:
        samples, _, height, width = dy.shape
        dx = self.product_backward(pixels(dy), self.taken(), self._matrix, self._matrix_gradient)
        return (None if dx is None else dx.view(samples, height, width, -1).permute(0, 3, 1, 2),)


def pixels(x: Tensor) -> Tensor:
    """Return (samples, channels, height, width) as (pixels, channels); a view when x is channels-last."""
    return x.permute(0, 2, 3, 1).reshape(-1, x.shape[1])


class Dense(Linear):
    """y = W x + b of features or tokens; gradients are written straight into the flat buffer."""

    def forward(self, xs: Blobs) -> Tensor:
        self.kept = xs[0].flatten(0, -2)
        y = self.product(self.kept, self.weight).view(*xs[0].shape[:-1], len(self.weight))
        self._output = y.shape
        return y

    def backward(self, dy: Tensor, owned: bool) -> Gradients:
        rows = dy.flatten(0, -2)
        dx = self.product_backward(rows, self.taken(), self.weight, self.weight_gradient)
        return (None if dx is None else dx.view(*dy.shape[:-1], dx.shape[1]),)


class BatchNormalisation(Layer):
    """Normalises by this rank's batch; running statistics are this rank's own."""

    def __init__(self, node: Node) -> None:
        """The graph's momentum weighs the old statistics, aten's weighs the new ones."""
        super().__init__(node)
        self._momentum = 1.0 - node.attrs["momentum"]
        self._eps = node.attrs["eps"]

    def bind(self, parameters: Roles, gradients: Roles) -> None:
        """Take scale and shift; running statistics start at mean 0 and variance 1."""
        self.weight = parameters["weight"]
        self.bias = parameters["bias"]
        self._gradients = gradients
        self._running = (torch.zeros_like(self.bias), torch.ones_like(self.bias))

    def buffers(self) -> Roles:
        return dict(zip(("running_mean", "running_var"), self._running))

    def forward(self, xs: Blobs) -> Tensor:
        y, *statistics = torch.native_batch_norm(
            xs[0], self.weight, self.bias, *self._running, True, self._momentum, self._eps
        )
        self.kept = xs[0], statistics
        return y

    def predict(self, xs: Blobs) -> Tensor:
        return torch.native_batch_norm(xs[0], self.weight, self.bias, *self._running, False, 0.0, self._eps)[0]

    def backward(self, dy: Tensor, owned: bool) -> Gradients:
        x, statistics = self.taken()
        wanted = [self.wants[0], True, True]
        dx, dw, db = aten.native_batch_norm_backward.default(
            dy, x, self.weight, *self._running, *statistics, True, self._eps, wanted
        )
        self._gradients["weight"].copy_(dw)
        self._gradients["bias"].copy_(db)
        return (dx,)
