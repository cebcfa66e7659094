"""The kinds with parameters: convolution, dense, batch normalisation."""

from typing import Tuple

import numpy as np

from stagebench.adapters.reference.layers.base import Array, Inputs, Kept, Layer, Shape, Windows


class Convolution(Layer):
    """Cross-correlation as a matrix product over patches, a sample and a group at a time.

    Weights are (out, in / groups, kernel, kernel). Patches are cut again in backward: kept, they would be the largest
    thing in memory.
    """

    def prepare(self) -> None:
        self.windows = Windows(self.node)

    def forward(self, inputs: Inputs) -> Tuple[Array, Kept]:
        """y[o] = sum over the group's channels and the window of w[o] x, plus bias."""
        (images,) = inputs
        output = np.empty((len(images),) + self.node.shape)
        kernels = self._by_group(self.weights["weight"])
        for n in range(len(images)):
            target = self._by_group(output[n])
            for group, columns in enumerate(self._columns(images[n : n + 1])):
                target[group] = kernels[group] @ columns
        if "bias" in self.weights:
            output += self.weights["bias"].reshape(-1, 1, 1)
        return output, images

    def backward(self, kept: Kept, dy: Array) -> Inputs:
        """`dw = dy columns^T`; `dcolumns = w^T dy`, added back to where the columns were cut from."""
        kernels = self._by_group(self.weights["weight"])
        dw = np.zeros_like(kernels)
        dx = np.empty_like(kept)
        window = (self.attrs["kernel"], self.attrs["kernel"])
        for n in range(len(kept)):
            by_output = self._by_group(dy[n])
            by_column = []
            for group, columns in enumerate(self._columns(kept[n : n + 1])):
                dw[group] += by_output[group] @ columns.T
                by_column.append(kernels[group].T @ by_output[group])
            patches = np.stack(by_column).reshape((1, -1) + window + self.windows.output)
            dx[n] = self.windows.scatter(patches)[0]
        self.accumulate("weight", dw.reshape(self.weights["weight"].shape))
        if "bias" in self.weights:
            self.accumulate("bias", dy.sum(axis=(0, 2, 3)))
        return [dx]

    def macs(self, output: Shape) -> int:
        """Every output element takes one kernel's worth."""
        return int(self.weights["weight"][0].size * np.prod(output))

    def _columns(self, image: Array) -> Array:
        """(groups, channels / groups x kernel x kernel, positions)."""
        positions = self.windows.output[0] * self.windows.output[1]
        return self.windows.patches(image).reshape(self.attrs["groups"], -1, positions)

    def _by_group(self, tensor: Array) -> Array:
        """(out, ...) to a view (groups, out / groups, everything else)."""
        groups = self.attrs["groups"]
        return tensor.reshape(groups, tensor.shape[0] // groups, -1)


class Dense(Layer):
    """y = W x + b with W (out, in)."""

    def forward(self, inputs: Inputs) -> Tuple[Array, Kept]:
        output = inputs[0] @ self.weights["weight"].T
        if "bias" in self.weights:
            output += self.weights["bias"]
        return output, inputs[0]

    def backward(self, kept: Kept, dy: Array) -> Inputs:
        """`dW = dy^T x`, `dx = dy W`, over the rows of all samples, or of all their tokens."""
        rows = dy.reshape(-1, dy.shape[-1])
        self.accumulate("weight", rows.T @ kept.reshape(len(rows), -1))
        if "bias" in self.weights:
            self.accumulate("bias", rows.sum(axis=0))
        return [dy @ self.weights["weight"]]

    def macs(self, output: Shape) -> int:
        return int(self.weights["weight"][0].size * np.prod(output))


class BatchNorm(Layer):
    """y = gamma (x - mean) / sqrt(var + eps) + beta over samples and positions (Ioffe 2015).

    Normalises by the biased variance; the running variance takes the unbiased one. Running statistics start at mean 0
    and variance 1.
    """

    def prepare(self) -> None:
        channels, *positions = self.node.input_shapes[0]
        self._axes = (0, *range(2, 2 + len(positions)))  # of a sum per channel
        self._broadcast = (1, -1) + (1,) * len(positions)  # the shape of a number per channel, next to the input
        self.statistics = {"running_mean": np.zeros(channels), "running_var": np.ones(channels)}

    def forward(self, inputs: Inputs) -> Tuple[Array, Kept]:
        """Normalise with the batch's own statistics, since this trains."""
        x = inputs[0]
        mean = x.mean(axis=self._axes)
        centred = x - mean.reshape(self._broadcast)
        variance = (centred * centred).mean(axis=self._axes)
        deviation = np.sqrt(variance + self.attrs["eps"])
        normal = centred / deviation.reshape(self._broadcast)
        gamma, beta = (self.weights[role].reshape(self._broadcast) for role in ("weight", "bias"))
        return gamma * normal + beta, (normal, deviation, mean, variance)

    def predict(self, inputs: Inputs) -> Array:
        mean, variance = (tensor.reshape(self._broadcast) for tensor in self.statistics.values())
        gamma, beta = (self.weights[role].reshape(self._broadcast) for role in ("weight", "bias"))
        return gamma * (inputs[0] - mean) / np.sqrt(variance + self.attrs["eps"]) + beta

    def backward(self, kept: Kept, dy: Array) -> Inputs:
        """`dx = gamma / deviation * (dy - mean(dy) - normal * mean(dy * normal))`."""
        normal, deviation = kept[:2]
        count = normal.size // normal.shape[1]
        by_gamma = (dy * normal).sum(axis=self._axes)
        by_beta = dy.sum(axis=self._axes)
        self.accumulate("weight", by_gamma)
        self.accumulate("bias", by_beta)
        scale = (self.weights["weight"] / deviation).reshape(self._broadcast)
        shift, slope = ((total / count).reshape(self._broadcast) for total in (by_beta, by_gamma))
        return [scale * (dy - shift - normal * slope)]

    def observe(self, kept: Kept) -> None:
        """`momentum * running + (1 - momentum) * batch`; ValueError for a single value per channel."""
        normal, _, mean, variance = kept
        count = normal.size // normal.shape[1]
        if count < 2:
            raise ValueError(
                f"batch normalisation {self.node.name!r} has one value per channel, whose variance means nothing; "
                "use a larger batch"
            )
        momentum = self.attrs["momentum"]
        for role, value in (("running_mean", mean), ("running_var", variance * count / (count - 1))):
            self.statistics[role] = momentum * self.statistics[role] + (1.0 - momentum) * value
