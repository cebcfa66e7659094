"""The kinds without parameters."""

from typing import Any

import torch
from torch import Tensor

from stagebench.adapters.caffempi.layers.base import Blobs, Gradients, Layer
from stagebench.adapters.pytorch.kernels import normalised, normalised_backward
from stagebench.workloads.graph import Layer as Node

aten = torch.ops.aten


class Rectifier(Layer):
    """max(x, 0), in place where `stagebench.adapters.caffempi.lower` finds that no other layer reads x."""

    inplace = False

    def forward(self, xs: Blobs) -> Tensor:
        """Keep the result: its sign says where the gradient passes."""
        self.kept = torch.relu_(xs[0]) if self.inplace else torch.relu(xs[0])
        return self.kept

    def backward(self, dy: Tensor, owned: bool) -> Gradients:
        """Pass where the result is positive; the gradient at 0 is 0."""
        y = self.taken()
        if owned:
            return (aten.threshold_backward.grad_input(dy, y, 0, grad_input=dy),)
        return (aten.threshold_backward.default(dy, y, 0),)


class Dropout(Layer):
    """Inverted dropout with a mask of its own, drawn from the process's generator."""

    def forward(self, xs: Blobs) -> Tensor:
        """Zero with probability `rate`, else scale by 1 / (1 - rate)."""
        rest = 1.0 - self.attrs["rate"]
        self.kept = torch.empty_like(xs[0]).bernoulli_(rest).div_(rest)
        return xs[0] * self.kept

    def predict(self, xs: Blobs) -> Tensor:
        """Return a copy: what reads it may work in place."""
        return xs[0].clone()

    def backward(self, dy: Tensor, owned: bool) -> Gradients:
        mask = self.taken()
        return (torch.mul(mask, dy, out=mask),)


class Identity(Layer):
    """Dropout at rate 0."""

    fresh = False
    aliases = True

    def forward(self, xs: Blobs) -> Tensor:
        return xs[0]

    def backward(self, dy: Tensor, owned: bool) -> Gradients:
        return (dy,)


class Flatten(Layer):
    """(channels, height, width) to features in that order; a copy where memory is channels-last."""

    fresh = False
    aliases = True

    def forward(self, xs: Blobs) -> Tensor:
        self._shape = xs[0].shape
        return xs[0].reshape(self._shape[0], -1)

    def backward(self, dy: Tensor, owned: bool) -> Gradients:
        return (dy.reshape(self._shape),)


class Concat(Layer):
    """Join along channels; the gradients are views of the output's."""

    fresh = False

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        self._widths = [shape[0] for shape in node.input_shapes]

    def forward(self, xs: Blobs) -> Tensor:
        return torch.cat(list(xs), 1)

    def backward(self, dy: Tensor, owned: bool) -> Gradients:
        return dy.split(self._widths, 1)  # type: ignore[no-any-return]


class Add(Layer):
    """Sum element by element; every input receives the same gradient."""

    fresh = False

    def forward(self, xs: Blobs) -> Tensor:
        total = torch.add(xs[0], xs[1]) if len(xs) > 1 else xs[0].clone()
        for x in xs[2:]:
            total.add_(x)
        return total

    def backward(self, dy: Tensor, owned: bool) -> Gradients:
        return (dy,) * len(self.wants)


class LocalResponse(Layer):
    """Local response normalisation across channels, PyTorch's adapter's."""

    def forward(self, xs: Blobs) -> Tensor:
        attrs = self.attrs
        y, power, inverse = normalised(xs[0], attrs["size"], attrs["alpha"], attrs["beta"], attrs["k"])
        self.kept = xs[0], power, inverse
        return y

    def backward(self, dy: Tensor, owned: bool) -> Gradients:
        x, power, inverse = self.taken()
        attrs = self.attrs
        return (normalised_backward(dy, x, power, inverse, attrs["size"], attrs["alpha"], attrs["beta"]),)


class Pooling(Layer):
    """The base of both kinds: the window as aten wants it, (kernel, stride, padding) by axis."""

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        self._window: Any = [[node.attrs[name]] * 2 for name in ("kernel", "stride", "pad")]


class MaxPooling(Pooling):
    """The largest of each window; padding never wins."""

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        self._window += [[1, 1], node.attrs["ceil"]]  # dilation

    def forward(self, xs: Blobs) -> Tensor:
        y, indices = aten.max_pool2d_with_indices.default(xs[0], *self._window)
        self.kept = xs[0], indices
        return y

    def backward(self, dy: Tensor, owned: bool) -> Gradients:
        x, indices = self.taken()
        return (aten.max_pool2d_with_indices_backward.default(dy, x, *self._window, indices),)


class AveragePooling(Pooling):
    """The mean of each window."""

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        self._window += [node.attrs["ceil"], node.attrs["count_padding"], None]  # no other divisor

    def forward(self, xs: Blobs) -> Tensor:
        x = xs[0]
        if x.is_cuda and self.attrs["pad"]:
            # aten's backward forgets the padding where memory is channels-last (pytorch/pytorch#188344, torch 2.11).
            x = x.contiguous()
        self.kept = x
        return aten.avg_pool2d.default(x, *self._window)

    def backward(self, dy: Tensor, owned: bool) -> Gradients:
        return (aten.avg_pool2d_backward.default(dy, self.taken(), *self._window),)
