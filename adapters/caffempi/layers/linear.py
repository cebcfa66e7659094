"""Convolutions, 1x1 ones as matrix products where the layout allows it, and fully connected layers."""

from typing import Any, Dict, Sequence

import torch

from adapters.caffempi.layers.base import Layer, Tensor
from adapters.pytorch.candidates import by_onednn
from workloads.graph import Layer as Node
from workloads.graph import size

aten = torch.ops.aten


class Linear(Layer):
    """Has a weight (out, ...) and, perhaps, a bias (out)."""

    def __init__(self, node: Node, way: str = "torch") -> None:
        """`way`: one of `adapters.pytorch.candidates.WAYS`."""
        super().__init__(node)
        self.way = way

    def bind(self, parameters: Dict[str, Tensor], gradients: Dict[str, Tensor]) -> None:
        self.weight, self.weight_gradient = parameters["weight"], gradients["weight"]
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
        return size(self.output_shape) * size(tuple(self.weight.shape[1:]))


class Convolution(Linear):
    """Cross-correlation with zero padding on both sides; the weight is (out, in / groups, kernel, kernel)."""

    def __init__(self, node: Node, way: str = "torch") -> None:
        super().__init__(node, way)
        attrs = node.attrs
        # A dilated 1x1 convolution is the same one, and goes to oneDNN.
        dilation = [2, 2] if way == "onednn" else [1, 1]
        # stride, padding, dilation, transposed, output padding, groups
        self._window = ([attrs["stride"]] * 2, [attrs["pad"]] * 2, dilation, False, [0, 0], attrs["groups"])

    def forward(self, xs: Sequence[Tensor]) -> Tensor:
        """(samples, in, height, width) to (samples, out, ...)."""
        self._x = xs[0]
        y = torch.convolution(xs[0], self.weight, self.bias, *self._window)
        self.output_shape = tuple(y.shape[1:])
        return y

    def backward(self, dy: Tensor, owned: bool) -> Sequence[Any]:
        """Gradients of input, weight and bias in one call, as oneDNN shares work among them."""
        biased = self.bias is not None
        shape, wanted = [dy.shape[1]] if biased else None, [self.wants[0], True, biased]
        dx, dw, db = aten.convolution_backward.default(dy, self._x, self.weight, shape, *self._window, wanted)
        self._x = None
        self.weight_gradient.copy_(dw)
        if biased:
            self.bias_gradient.copy_(db)
        return (dx,)


class PointConvolution(Convolution):
    """A 1x1 convolution, stride 1, on channels-last data: a matrix product over pixels.

    The same arithmetic as the general one; the weight's gradient is written straight
    into the flat buffer instead of being copied there.
    """

    def bind(self, parameters: Dict[str, Tensor], gradients: Dict[str, Tensor]) -> None:
        """Look at the weight as a matrix (out, in)."""
        super().bind(parameters, gradients)
        out, channels = self.weight.shape[:2]
        self._matrix = self.weight.view(out, channels)
        self._matrix_gradient = self.weight_gradient.view(out, channels)

    def forward(self, xs: Sequence[Tensor]) -> Tensor:
        samples, _, height, width = xs[0].shape
        self._x = pixels(xs[0])
        y = self.product(self._x, self._matrix)
        self.output_shape = (y.shape[1], height, width)
        return y.view(samples, height, width, -1).permute(0, 3, 1, 2)

    def backward(self, dy: Tensor, owned: bool) -> Sequence[Any]:
        samples, _, height, width = dy.shape
        dx = self.product_backward(pixels(dy), self._x, self._matrix, self._matrix_gradient)
        self._x = None
        return (None if dx is None else dx.view(samples, height, width, -1).permute(0, 3, 1, 2),)


def pixels(x: Tensor) -> Tensor:
    """(samples, channels, height, width) as (pixels, channels); a view when x is channels-last."""
    return x.permute(0, 2, 3, 1).reshape(-1, x.shape[1])


class Dense(Linear):
    """y = W x + b; gradients are written straight into the flat buffer."""

    def forward(self, xs: Sequence[Tensor]) -> Tensor:
        self._x = xs[0]
        y = self.product(self._x, self.weight)
        self.output_shape = tuple(y.shape[1:])
        return y

    def backward(self, dy: Tensor, owned: bool) -> Sequence[Any]:
        dx = self.product_backward(dy, self._x, self.weight, self.weight_gradient)
        self._x = None
        return (dx,)
