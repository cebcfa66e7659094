"""The kinds without parameters, but for local response normalisation."""

from typing import Any, Sequence

import torch

from adapters.caffempi.layers.base import Layer, Tensor
from workloads.graph import Layer as Node

aten = torch.ops.aten


class Rectifier(Layer):
    """max(x, 0), in place where `adapters.caffempi.lower` finds that no other layer reads x."""

    inplace = False

    def forward(self, xs: Sequence[Tensor]) -> Tensor:
        """Keep the result: its sign says where the gradient passes."""
        self._y: Any = torch.relu_(xs[0]) if self.inplace else torch.relu(xs[0])
        return self._y

    def backward(self, dy: Tensor, owned: bool) -> Sequence[Any]:
        """Pass where the result is positive; the gradient at 0 is 0."""
        y, self._y = self._y, None
        if owned:
            return (aten.threshold_backward.grad_input(dy, y, 0, grad_input=dy),)
        return (aten.threshold_backward.default(dy, y, 0),)


class Dropout(Layer):
    """Inverted dropout with a mask of its own, drawn from the process's generator."""

    def forward(self, xs: Sequence[Tensor]) -> Tensor:
        """Zero with probability `rate`, else scale by 1 / (1 - rate)."""
        kept = 1.0 - self.attrs["rate"]
        self._mask: Any = torch.empty_like(xs[0]).bernoulli_(kept).div_(kept)
        return xs[0] * self._mask

    def predict(self, xs: Sequence[Tensor]) -> Tensor:
        """A copy: what reads it may work in place."""
        return xs[0].clone()

    def backward(self, dy: Tensor, owned: bool) -> Sequence[Any]:
        mask, self._mask = self._mask, None
        return (torch.mul(mask, dy, out=mask),)


class Identity(Layer):
    """Dropout at rate 0."""

    fresh, aliases = False, True

    def forward(self, xs: Sequence[Tensor]) -> Tensor:
        return xs[0]

    def backward(self, dy: Tensor, owned: bool) -> Sequence[Any]:
        return (dy,)


class Flatten(Layer):
    """(channels, height, width) to features in that order; a copy where memory is channels-last."""

    fresh, aliases = False, True

    def forward(self, xs: Sequence[Tensor]) -> Tensor:
        self._shape = xs[0].shape
        return xs[0].reshape(self._shape[0], -1)

    def backward(self, dy: Tensor, owned: bool) -> Sequence[Any]:
        return (dy.reshape(self._shape),)


class Concat(Layer):
    """Join along channels."""

    fresh = False

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        self._widths = [shape[0] for shape in node.input_shapes]

    def forward(self, xs: Sequence[Tensor]) -> Tensor:
        return torch.cat(list(xs), 1)

    def backward(self, dy: Tensor, owned: bool) -> Sequence[Any]:
        """Views of the gradient, one an input."""
        return dy.split(self._widths, 1)


class Add(Layer):
    """Sum element by element; every input receives the same gradient."""

    fresh = False

    def forward(self, xs: Sequence[Tensor]) -> Tensor:
        total = torch.add(xs[0], xs[1]) if len(xs) > 1 else xs[0].clone()
        for x in xs[2:]:
            total.add_(x)
        return total

    def backward(self, dy: Tensor, owned: bool) -> Sequence[Any]:
        return (dy,) * len(self.wants)


class MaxPooling(Layer):
    """The largest of each window; padding never wins."""

    def __init__(self, node: Node) -> None:
        """Spell the window for aten: kernel, stride, padding, dilation, ceil."""
        super().__init__(node)
        attrs = node.attrs
        self._window = ([attrs["kernel"]] * 2, [attrs["stride"]] * 2, [attrs["pad"]] * 2, [1, 1], attrs["ceil"])

    def forward(self, xs: Sequence[Tensor]) -> Tensor:
        y, indices = aten.max_pool2d_with_indices.default(xs[0], *self._window)
        self._kept = xs[0], indices
        return y

    def backward(self, dy: Tensor, owned: bool) -> Sequence[Any]:
        x, indices = self._kept
        del self._kept
        return (aten.max_pool2d_with_indices_backward.default(dy, x, *self._window, indices),)


class AveragePooling(Layer):
    """The mean of each window."""

    def __init__(self, node: Node) -> None:
        """Spell the window for aten: kernel, stride, padding, ceil, whether padding counts, divisor."""
        super().__init__(node)
        attrs = node.attrs
        window = [attrs["kernel"]] * 2, [attrs["stride"]] * 2, [attrs["pad"]] * 2
        self._window = window + (attrs["ceil"], attrs["count_padding"], None)

    def forward(self, xs: Sequence[Tensor]) -> Tensor:
        x = xs[0]
        if x.is_cuda and self.attrs["pad"]:
            # aten's backward forgets the padding where memory is channels-last (pytorch/pytorch#188344, torch 2.11).
            x = x.contiguous()
        self._x = x
        return aten.avg_pool2d.default(x, *self._window)

    def backward(self, dy: Tensor, owned: bool) -> Sequence[Any]:
        x, self._x = self._x, None
        return (aten.avg_pool2d_backward.default(dy, x, *self._window),)
