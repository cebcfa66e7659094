"""The kinds without parameters."""

from typing import Tuple

import numpy as np

from stagebench.adapters.reference.layers.base import Array, Inputs, Kept, Layer, Windows
from stagebench.suite.worker.contract import dropout_seed


class Relu(Layer):
    """max(x, 0); the gradient at 0 is 0."""

    def forward(self, inputs: Inputs) -> Tuple[Array, Kept]:
        return np.maximum(inputs[0], 0.0), inputs[0] > 0.0

    def backward(self, kept: Kept, dy: Array) -> Inputs:
        return [dy * kept]


class Dropout(Layer):
    """Zero with probability `rate`, else x / (1 - rate); a random stream of its own, keyed by seed and name."""

    def prepare(self) -> None:
        self._stream = np.random.RandomState(dropout_seed(self.seed, 0, self.node.name))

    def forward(self, inputs: Inputs) -> Tuple[Array, Kept]:
        rate = self.attrs["rate"]
        if rate == 0.0:
            return inputs[0], 1.0
        mask = (self._stream.random_sample(inputs[0].shape) >= rate) / (1.0 - rate)
        return inputs[0] * mask, mask

    def predict(self, inputs: Inputs) -> Array:
        return inputs[0]

    def backward(self, kept: Kept, dy: Array) -> Inputs:
        return [dy * kept]


class Concat(Layer):
    """Join along channels."""

    def forward(self, inputs: Inputs) -> Tuple[Array, Kept]:
        return np.concatenate(inputs, axis=1), np.cumsum([x.shape[1] for x in inputs])[:-1]

    def backward(self, kept: Kept, dy: Array) -> Inputs:
        return list(np.split(dy, kept, axis=1))


class Add(Layer):
    """Element by element, of any number of inputs."""

    def forward(self, inputs: Inputs) -> Tuple[Array, Kept]:
        return sum(inputs[1:], inputs[0]), len(inputs)

    def backward(self, kept: Kept, dy: Array) -> Inputs:
        return [dy] * int(kept)


class Flatten(Layer):
    """(c, h, w) to (features,), in C, H, W order."""

    def forward(self, inputs: Inputs) -> Tuple[Array, Kept]:
        return inputs[0].reshape(len(inputs[0]), -1), inputs[0].shape

    def backward(self, kept: Kept, dy: Array) -> Inputs:
        return [dy.reshape(kept)]


class MaxPool(Layer):
    """The largest value of each window; padding never wins.

    Where several are equal, the gradient goes to the first in row-major order of the
    window, as PyTorch and oneDNN do.
    """

    def prepare(self) -> None:
        self.windows = Windows(self.node)

    def forward(self, inputs: Inputs) -> Tuple[Array, Kept]:
        patches = self.windows.patches(inputs[0], fill=-np.inf)
        n, c, kernel = patches.shape[:3]
        flat = patches.reshape((n, c, kernel * kernel) + self.windows.output)
        winner = flat.argmax(axis=2)[:, :, np.newaxis]
        return np.take_along_axis(flat, winner, axis=2)[:, :, 0], winner

    def backward(self, kept: Kept, dy: Array) -> Inputs:
        kernel = self.windows.kernel
        position = np.arange(kernel * kernel).reshape(1, 1, -1, 1, 1)
        patches = np.where(kept == position, dy[:, :, np.newaxis], 0.0)
        return [self.windows.scatter(patches.reshape(dy.shape[:2] + (kernel, kernel) + self.windows.output))]


class AvgPool(Layer):
    """The mean of each window.

    The divisor counts the real elements, with `count_padding` also the padded zeros, but
    never what a window rounded up hangs over the padding (Caffe's and PyTorch's rule).
    """

    def prepare(self) -> None:
        self.windows = windows = Windows(self.node)
        margin = windows.pad if self.attrs["count_padding"] else 0
        counted = []  # elements that count along an axis, for each output position
        for extent, output in zip(windows.extent, windows.output):
            begin = np.arange(output) * windows.stride - windows.pad
            end = np.minimum(begin + windows.kernel, extent + margin)
            counted.append(end - np.maximum(begin, -margin))
        self.divisor = counted[0][:, np.newaxis] * counted[1]

    def forward(self, inputs: Inputs) -> Tuple[Array, Kept]:
        return self.windows.patches(inputs[0]).sum(axis=(2, 3)) / self.divisor, None

    def backward(self, kept: Kept, dy: Array) -> Inputs:
        kernel = self.windows.kernel
        shares = (dy / self.divisor)[:, :, np.newaxis, np.newaxis]
        shape = dy.shape[:2] + (kernel, kernel) + self.windows.output
        return [self.windows.scatter(np.broadcast_to(shares, shape))]


class LocalResponse(Layer):
    """y = x * s ** -beta with s = k + alpha/size * (sum of squares over `size` channels).

    The window of channel c is c - size // 2 ... c + (size - 1) // 2 (Krizhevsky 2012,
    section 3.3; for an even size, PyTorch's choice), cut off at the first and last channel.
    """

    def forward(self, inputs: Inputs) -> Tuple[Array, Kept]:
        (x,) = inputs
        size = self.attrs["size"]
        sums = channel_sums(x * x, size // 2, (size - 1) // 2)
        scale = self.attrs["k"] + self.attrs["alpha"] / size * sums
        return x * scale ** -self.attrs["beta"], (x, scale)

    def backward(self, kept: Kept, dy: Array) -> Inputs:
        """`dx = dy s^-beta - 2 beta alpha/size x * t`, t the sum of dy y / s over the windows that x is in."""
        x, scale = kept
        size = self.attrs["size"]
        beta = self.attrs["beta"]
        shrunk = dy * scale**-beta
        sums = channel_sums(shrunk * x / scale, (size - 1) // 2, size // 2)
        return [shrunk - 2.0 * beta * self.attrs["alpha"] / size * x * sums]


def channel_sums(values: Array, before: int, after: int) -> Array:
    """Return sums over the channels c - before ... c + after."""
    channels = values.shape[1]
    total = np.zeros_like(values)
    for offset in range(-before, after + 1):
        low = max(0, -offset)
        high = min(channels, channels - offset)
        if low < high:
            total[:, low:high] += values[:, low + offset : high + offset]
    return total
