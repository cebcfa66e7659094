"""The kinds of transformers, over tokens (samples, positions, width)."""

import math
from typing import Any

import torch
from torch import Tensor

from stagebench.adapters.caffempi.layers.base import Blobs, Gradients, Layer, Roles

aten = torch.ops.aten


class Tokens(Layer):
    """Square patches of an image, row by row, each in C, H, W order; views where a patch lies in one piece."""

    fresh = False
    aliases = True

    def forward(self, xs: Blobs) -> Tensor:
        (channels, height, width), patch = self.node.input_shapes[0], self.attrs["patch"]
        cut = xs[0].reshape(-1, channels, height // patch, patch, width // patch, patch)
        return cut.permute(0, 2, 4, 1, 3, 5).reshape(-1, *self.node.shape)

    def backward(self, dy: Tensor, owned: bool) -> Gradients:
        (channels, height, width), patch = self.node.input_shapes[0], self.attrs["patch"]
        cut = dy.view(-1, height // patch, width // patch, channels, patch, patch)
        return (cut.permute(0, 3, 1, 4, 2, 5).reshape(-1, channels, height, width),)


class Learned(Layer):
    """The base of layers whose only tensor is a weight."""

    def bind(self, parameters: Roles, gradients: Roles) -> None:
        self.weight, self.weight_gradient = parameters["weight"], gradients["weight"]


class Embedding(Learned):
    """The vector of each number."""

    def forward(self, xs: Blobs) -> Tensor:
        self.kept = xs[0]
        return aten.embedding(self.weight, xs[0])

    def backward(self, dy: Tensor, owned: bool) -> Gradients:
        self.weight_gradient.copy_(aten.embedding_dense_backward(dy, self.taken(), len(self.weight), -1, False))
        return (None,)


class ClassToken(Learned):
    """The learned token, then the others; the gradient is a view of the output's."""

    fresh = False

    def forward(self, xs: Blobs) -> Tensor:
        return torch.cat([self.weight.expand(len(xs[0]), 1, -1), xs[0]], 1)

    def backward(self, dy: Tensor, owned: bool) -> Gradients:
        torch.sum(dy[:, :1], 0, keepdim=True, out=self.weight_gradient)
        return (dy[:, 1:],)


class Positions(Learned):
    """x + w, the same w for every sample: the first rows of the table; the others have no gradient."""

    fresh = False

    def forward(self, xs: Blobs) -> Tensor:
        return xs[0] + self.weight[:, : xs[0].shape[1]]

    def backward(self, dy: Tensor, owned: bool) -> Gradients:
        torch.sum(dy, 0, keepdim=True, out=self.weight_gradient[:, : dy.shape[1]])
        self.weight_gradient[:, dy.shape[1] :] = 0
        return (dy,)


class LayerNorm(Layer):
    """Normalises each token by its own mean and biased variance."""

    def bind(self, parameters: Roles, gradients: Roles) -> None:
        self.weight, self.bias, self._gradients = parameters["weight"], parameters["bias"], gradients

    def forward(self, xs: Blobs) -> Tensor:
        y, mean, rstd = aten.native_layer_norm(xs[0], self.weight.shape, self.weight, self.bias, self.attrs["eps"])
        self.kept = xs[0], mean, rstd
        return y

    def backward(self, dy: Tensor, owned: bool) -> Gradients:
        x, mean, rstd = self.taken()
        tensors = x, self.weight.shape, mean, rstd, self.weight, self.bias
        dx, dw, db = aten.native_layer_norm_backward.default(dy, *tensors, [self.wants[0], True, True])
        self._gradients["weight"].copy_(dw)
        self._gradients["bias"].copy_(db)
        return (dx,)


class Attention(Layer):
    """softmax(q k^T / sqrt(d)) v of each head: aten's fused kernels for CPUs, two products and a softmax elsewhere."""

    _macs = 0

    def forward(self, xs: Blobs) -> Tensor:
        samples, positions, width = xs[0].shape
        q, k, v = xs[0].contiguous().view(samples, positions, 3, self.attrs["heads"], -1).permute(2, 0, 3, 1, 4)
        if xs[0].is_cpu:
            y, kept = aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, self.attrs["causal"])
        else:
            scores = torch.matmul(q, k.transpose(2, 3)).mul_(1.0 / math.sqrt(q.shape[3]))
            if self.attrs["causal"]:
                later = torch.ones(positions, positions, dtype=torch.bool, device=q.device).triu_(1)
                scores.masked_fill_(later, -math.inf)
            kept = torch.softmax(scores, -1)
            y = torch.matmul(kept, v)
        self.kept = q, k, v, y, kept
        self._macs = 2 * self.attrs["heads"] * positions * positions * q.shape[3]
        return y.transpose(1, 2).reshape(samples, positions, width // 3)

    def backward(self, dy: Tensor, owned: bool) -> Gradients:
        q, k, v, y, kept = self.taken()
        samples, heads, positions, size = q.shape
        dy = dy.view(samples, positions, heads, size).transpose(1, 2)
        if dy.is_cpu:
            back: Any = aten._scaled_dot_product_flash_attention_for_cpu_backward
            three = back(dy, q, k, v, y, kept, 0.0, self.attrs["causal"])
        else:
            by_share = torch.matmul(dy, v.transpose(2, 3))
            by_score = aten._softmax_backward_data(by_share, kept, -1, kept.dtype).mul_(1.0 / math.sqrt(size))
            three = (
                torch.matmul(by_score, k),
                torch.matmul(by_score.transpose(2, 3), q),
                torch.matmul(kept.transpose(2, 3), dy),
            )
        together = torch.stack([gradient.transpose(1, 2) for gradient in three], 2)
        return (together.view(samples, positions, 3 * heads * size),)

    def macs(self) -> int:
        return self._macs


class GELU(Layer):
    """The approximation by tanh."""

    def forward(self, xs: Blobs) -> Tensor:
        self.kept = xs[0]
        return aten.gelu(xs[0], approximate="tanh")

    def backward(self, dy: Tensor, owned: bool) -> Gradients:
        return (aten.gelu_backward(dy, self.taken(), approximate="tanh"),)


class Select(Layer):
    """The token at one position."""

    aliases = True

    def forward(self, xs: Blobs) -> Tensor:
        self._shape = xs[0].shape
        return xs[0][:, self.attrs["position"]]

    def backward(self, dy: Tensor, owned: bool) -> Gradients:
        return (aten.select_backward(dy, self._shape, 1, self.attrs["position"]),)


class Mean(Layer):
    """The mean over the tokens."""

    def forward(self, xs: Blobs) -> Tensor:
        self._positions = xs[0].shape[1]
        return xs[0].mean(1)

    def backward(self, dy: Tensor, owned: bool) -> Gradients:
        return ((dy / self._positions).unsqueeze(1).repeat(1, self._positions, 1),)
