"""Max and average pooling."""

from typing import Any, Sequence

import torch

from adapters.caffempi.layers.base import Layer, Tensor
from workloads.graph import Layer as Node

aten = torch.ops.aten


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
