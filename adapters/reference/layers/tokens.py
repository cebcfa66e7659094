"""The kinds of transformers, over tokens (samples, positions, width)."""

import math
from typing import Tuple

import numpy as np

from stagebench.adapters.reference.layers.base import Array, Inputs, Kept, Layer, Shape


class Tokens(Layer):
    """Square patches of an image, row by row, each in C, H, W order."""

    def forward(self, inputs: Inputs) -> Tuple[Array, Kept]:
        n, c, height, width = inputs[0].shape
        patch = self.attrs["patch"]
        cut = inputs[0].reshape(n, c, height // patch, patch, width // patch, patch)
        return cut.transpose(0, 2, 4, 1, 3, 5).reshape((n,) + self.node.shape), None

    def backward(self, kept: Kept, dy: Array) -> Inputs:
        c, height, width = self.node.input_shapes[0]
        patch = self.attrs["patch"]
        cut = dy.reshape(-1, height // patch, width // patch, c, patch, patch)
        return [cut.transpose(0, 3, 1, 4, 2, 5).reshape(-1, c, height, width)]


class Embedding(Layer):
    """The vector of each number."""

    def forward(self, inputs: Inputs) -> Tuple[Array, Kept]:
        return self.weights["weight"][inputs[0]], inputs[0]

    def backward(self, kept: Kept, dy: Array) -> Inputs:
        gradient = np.zeros_like(self.weights["weight"])
        np.add.at(gradient, kept, dy)
        self.accumulate("weight", gradient)
        return [np.zeros(kept.shape)]


class ClassToken(Layer):
    """The learned token, then the others."""

    def forward(self, inputs: Inputs) -> Tuple[Array, Kept]:
        x = inputs[0]
        return np.concatenate([np.broadcast_to(self.weights["weight"], (len(x), 1, x.shape[2])), x], axis=1), None

    def backward(self, kept: Kept, dy: Array) -> Inputs:
        self.accumulate("weight", dy[:, :1].sum(axis=0, keepdims=True))
        return [dy[:, 1:]]


class Positions(Layer):
    """x + w, the same w for every sample: the first rows of the table; the others have no gradient."""

    def forward(self, inputs: Inputs) -> Tuple[Array, Kept]:
        return inputs[0] + self.weights["weight"][:, : inputs[0].shape[1]], None

    def backward(self, kept: Kept, dy: Array) -> Inputs:
        gradient = np.zeros_like(self.weights["weight"])
        gradient[:, : dy.shape[1]] = dy.sum(axis=0)
        self.accumulate("weight", gradient)
        return [dy]


class LayerNorm(Layer):
    """y = gamma (x - mean) / sqrt(var + eps) + beta, by each token's mean and biased variance."""

    def forward(self, inputs: Inputs) -> Tuple[Array, Kept]:
        centred = inputs[0] - inputs[0].mean(axis=-1, keepdims=True)
        deviation = np.sqrt((centred * centred).mean(axis=-1, keepdims=True) + self.attrs["eps"])
        normal = centred / deviation
        return self.weights["weight"] * normal + self.weights["bias"], (normal, deviation)

    def backward(self, kept: Kept, dy: Array) -> Inputs:
        """`dx = (g - mean(g) - normal * mean(g * normal)) / deviation` with g = gamma * dy."""
        normal, deviation = kept
        self.accumulate("weight", (dy * normal).sum(axis=(0, 1)))
        self.accumulate("bias", dy.sum(axis=(0, 1)))
        g = self.weights["weight"] * dy
        slope = (g * normal).mean(axis=-1, keepdims=True)
        return [(g - g.mean(axis=-1, keepdims=True) - normal * slope) / deviation]


class Attention(Layer):
    """softmax(q k^T / sqrt(d)) v of each head; a causal one masks what comes after."""

    def forward(self, inputs: Inputs) -> Tuple[Array, Kept]:
        n, t, _ = inputs[0].shape
        q, k, v = inputs[0].reshape(n, t, 3, self.attrs["heads"], -1).transpose(2, 0, 3, 1, 4)
        q = q / math.sqrt(q.shape[-1])
        scores = q @ k.swapaxes(2, 3)
        if self.attrs["causal"]:
            scores[..., self.hidden(t)] = -np.inf
        shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
        shares /= shares.sum(axis=-1, keepdims=True)
        return (shares @ v).swapaxes(1, 2).reshape((n,) + self.node.shape), (q, k, v, shares)

    def hidden(self, positions: int) -> Array:
        """Return whether the token of a row does not see that of a column."""
        return np.triu(np.ones((positions, positions), dtype=bool), 1)

    def backward(self, kept: Kept, dy: Array) -> Inputs:
        """Through the products, and through the softmax: `ds = p * (dp - sum(dp * p))`."""
        q, k, v, shares = kept
        n, heads, t, d = q.shape
        dy = dy.reshape(n, t, heads, d).swapaxes(1, 2)
        by_share = dy @ v.swapaxes(2, 3)
        by_score = shares * (by_share - (by_share * shares).sum(axis=-1, keepdims=True))
        three = (by_score @ k / math.sqrt(d), by_score.swapaxes(2, 3) @ q, shares.swapaxes(2, 3) @ dy)
        return [np.stack(three).transpose(1, 3, 0, 2, 4).reshape(n, t, 3 * heads * d)]

    def macs(self, output: Shape) -> int:
        """Two products of each head: all positions by all positions by its width."""
        positions, width = output
        return 2 * positions * positions * width


class GELU(Layer):
    """0.5 x (1 + tanh(u)) with u = sqrt(2 / pi) (x + 0.044715 x^3)."""

    def forward(self, inputs: Inputs) -> Tuple[Array, Kept]:
        x = inputs[0]
        bent = np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x * x * x))
        return 0.5 * x * (1.0 + bent), (x, bent)

    def backward(self, kept: Kept, dy: Array) -> Inputs:
        x, bent = kept
        slope = math.sqrt(2.0 / math.pi) * (1.0 + 3 * 0.044715 * x * x)
        return [dy * 0.5 * (1.0 + bent + x * (1.0 - bent * bent) * slope)]


class Select(Layer):
    """The token at one position."""

    def forward(self, inputs: Inputs) -> Tuple[Array, Kept]:
        return inputs[0][:, self.attrs["position"]], inputs[0].shape

    def backward(self, kept: Kept, dy: Array) -> Inputs:
        dx = np.zeros(kept)
        dx[:, self.attrs["position"]] = dy
        return [dx]


class Mean(Layer):
    """The mean over the tokens."""

    def forward(self, inputs: Inputs) -> Tuple[Array, Kept]:
        return inputs[0].mean(axis=1), inputs[0].shape

    def backward(self, kept: Kept, dy: Array) -> Inputs:
        return [np.broadcast_to(dy[:, np.newaxis] / kept[1], kept)]


class Tied(Layer):
    """y = W x of each token, with another layer's W, whose gradient this one adds to."""

    def forward(self, inputs: Inputs) -> Tuple[Array, Kept]:
        layer, role = self.shared["weight"]
        return inputs[0] @ layer.weights[role].T, inputs[0]

    def backward(self, kept: Kept, dy: Array) -> Inputs:
        layer, role = self.shared["weight"]
        layer.accumulate(role, np.tensordot(dy, kept, axes=((0, 1), (0, 1))))
        return [dy @ layer.weights[role]]

    def macs(self, output: Shape) -> int:
        """Each output is a product with a row."""
        return int(np.prod(output)) * self.node.input_shapes[0][-1]
