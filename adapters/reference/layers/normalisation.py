"""Local response normalisation and batch normalisation."""

from typing import Any, Dict, List, Tuple

import numpy as np

from adapters.reference.layers.base import Layer, all_but_channels, per_channel
from workloads import graph


class LocalResponse(Layer):
    """y = x * s ** -beta with s = k + alpha/size * (sum of squares over `size` channels).

    The window of channel c is c - size // 2 ... c + (size - 1) // 2 (Krizhevsky 2012,
    section 3.3; for an even size, PyTorch's choice), cut off at the first and last channel.
    """

    def forward(self, inputs: List[np.ndarray]) -> Tuple[np.ndarray, Any]:
        x, size = inputs[0], self.attrs["size"]
        sums = channel_sums(x * x, size // 2, (size - 1) // 2)
        scale = self.attrs["k"] + self.attrs["alpha"] / size * sums
        return x * scale ** -self.attrs["beta"], (x, scale)

    def backward(self, kept: Any, gradient: np.ndarray) -> List[np.ndarray]:
        """`dx = dy s^-beta - 2 beta alpha/size x * t`, t the sum of dy y / s over the windows that x is in."""
        x, scale = kept
        size, beta = self.attrs["size"], self.attrs["beta"]
        shrunk = gradient * scale**-beta
        sums = channel_sums(shrunk * x / scale, (size - 1) // 2, size // 2)
        return [shrunk - 2.0 * beta * self.attrs["alpha"] / size * x * sums]


def channel_sums(values: np.ndarray, before: int, after: int) -> np.ndarray:
    """Sums over the channels c - before ... c + after."""
    channels = values.shape[1]
    total = np.zeros_like(values)
    for offset in range(-before, after + 1):
        low, high = max(0, -offset), min(channels, channels - offset)
        if low < high:
            total[:, low:high] += values[:, low + offset : high + offset]
    return total


class BatchNorm(Layer):
    """y = gamma (x - mean) / sqrt(var + eps) + beta over samples and positions (Ioffe 2015).

    Normalises by the biased variance; the running variance takes the unbiased one.
    """

    def __init__(self, node: graph.Layer, weights: Dict[str, np.ndarray], seed: int = 0) -> None:
        """Running statistics start at mean 0 and variance 1."""
        super().__init__(node, weights, seed)
        channels = node.input_shapes[0][0]
        self.statistics = {"running_mean": np.zeros(channels), "running_var": np.ones(channels)}

    def forward(self, inputs: List[np.ndarray]) -> Tuple[np.ndarray, Any]:
        """Same shape; always with the batch's own statistics, since this trains."""
        x = inputs[0]
        axes = all_but_channels(x.ndim)
        mean = x.mean(axis=axes)
        centred = x - per_channel(mean, x.ndim)
        variance = (centred * centred).mean(axis=axes)
        deviation = np.sqrt(variance + self.attrs["eps"])
        normal = centred / per_channel(deviation, x.ndim)
        gamma, beta = (per_channel(self.weights[role], x.ndim) for role in ("weight", "bias"))
        return gamma * normal + beta, (normal, deviation, mean, variance)

    def predict(self, inputs: List[np.ndarray]) -> np.ndarray:
        x, held = inputs[0], dict(self.weights, **self.statistics)
        mean, variance, gamma, beta = (
            per_channel(held[role], x.ndim) for role in ("running_mean", "running_var", "weight", "bias")
        )
        return gamma * (x - mean) / np.sqrt(variance + self.attrs["eps"]) + beta

    def backward(self, kept: Any, gradient: np.ndarray) -> List[np.ndarray]:
        """`dx = gamma / deviation * (dy - mean(dy) - normal * mean(dy * normal))`."""
        normal, deviation = kept[:2]
        axes = all_but_channels(normal.ndim)
        count = normal.size // normal.shape[1]
        by_gamma, by_beta = (gradient * normal).sum(axis=axes), gradient.sum(axis=axes)
        self.accumulate("weight", by_gamma)
        self.accumulate("bias", by_beta)
        scale = per_channel(self.weights["weight"] / deviation, normal.ndim)
        shift, slope = (per_channel(total / count, normal.ndim) for total in (by_beta, by_gamma))
        return [scale * (gradient - shift - normal * slope)]

    def observe(self, kept: Any) -> None:
        """`momentum * running + (1 - momentum) * batch`; ValueError for a single value per channel."""
        normal, _, mean, variance = kept
        count = normal.size // normal.shape[1]
        if count < 2:
            raise ValueError(
                "batch normalisation %r has one value per channel, whose variance means nothing; "
                "use a larger batch" % self.node.name
            )
        batch = {"running_mean": mean, "running_var": variance * count / (count - 1)}
        momentum = self.attrs["momentum"]
        for role, value in batch.items():
            self.statistics[role] = momentum * self.statistics[role] + (1.0 - momentum) * value
