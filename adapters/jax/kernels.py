"""Operations that are faster on a CPU than XLA's own, with equal values; measured with jaxlib 0.10.2 on one thread.

* The gradient of a convolution's weights is a convolution with a window as large as the image, which XLA runs 2 to 10
  times slower than one product of matrices for each place of the kernel.
* XLA runs a grouped convolution with loops of its own, 10 to 40 times slower than the groups one after the other.
* A 1x1 convolution is a product of matrices.
* The gradient of `reduce_window` with max (SelectAndScatter) is 4 times slower than that of a chain of comparisons;
  the first of equals wins in both.
* A power of -3/4 is two square roots.
"""

from functools import partial
from typing import Any, List, Sequence, Tuple

import jax
import jax.numpy as jnp
from jax import lax

Images = Any  # jax.Array (samples, height, width, channels)
Kernels = Any  # jax.Array (height, width, channels in / groups, channels out)
Exactness = Any  # lax.Precision

FEW = 16  # channels: below it, as in a first layer, the product per place is thin and XLA's own is as fast


def convolution(x: Images, w: Kernels, stride: int, pad: int, exactness: Exactness, groups: int) -> Images:
    if groups > 1:
        parts = zip(jnp.split(x, groups, axis=3), jnp.split(w, groups, axis=3))
        return jnp.concatenate([convolution(a, b, stride, pad, exactness, 1) for a, b in parts], axis=3)
    if w.shape[:2] == (1, 1) and pad == 0:
        x = x[:, ::stride, ::stride]
        flat = jnp.matmul(x.reshape(-1, x.shape[3]), w.reshape(w.shape[2:]), precision=exactness)
        return flat.reshape(x.shape[:3] + w.shape[3:])
    return (plain if w.shape[2] < FEW else convolve)(x, w, stride, pad, exactness)


def plain(x: Images, w: Kernels, stride: int, pad: int, exactness: Exactness, groups: int = 1) -> Images:
    """Convolve by XLA's own operation: on a GPU cuDNN's."""
    return lax.conv_general_dilated(
        x,
        w,
        window_strides=(stride, stride),
        padding=((pad, pad), (pad, pad)),
        lhs_dilation=(1, 1),
        rhs_dilation=(1, 1),
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=groups,
        batch_group_count=1,
        precision=exactness,
    )


@partial(jax.custom_vjp, nondiff_argnums=(2, 3, 4))
def convolve(x: Images, w: Kernels, stride: int, pad: int, exactness: Exactness) -> Images:
    """Convolve with XLA's forward, and a weights' gradient of our own."""
    return plain(x, w, stride, pad, exactness)


def _forward(x: Images, w: Kernels, stride: int, pad: int, exactness: Exactness) -> Tuple[Images, Any]:
    return plain(x, w, stride, pad, exactness), (x, w)


def _backward(stride: int, pad: int, exactness: Exactness, kept: Any, gradient: Images) -> Tuple[Images, Kernels]:
    x, w = kept
    (by_input,) = jax.vjp(lambda values: plain(values, w, stride, pad, exactness), x)[1](gradient)
    _, height, width, channels = gradient.shape
    flat = gradient.reshape(-1, channels)
    wide = jnp.promote_types(x.dtype, jnp.float32)
    places = []
    for row in strided(padded(x, ((pad, pad), (pad, pad)), 0.0), 1, w.shape[0], stride, height):
        products = []
        for cell in strided(row, 2, w.shape[1], stride, width):
            # (channels in, channels out), summed over samples and places, in float32 at least
            left = cell.reshape(-1, cell.shape[3])
            over = (((0,), (0,)), ((), ()))
            products.append(lax.dot_general(left, flat, over, precision=exactness, preferred_element_type=wide))
        places.append(jnp.stack(products))
    return by_input, jnp.stack(places).astype(w.dtype)


convolve.defvjp(_forward, _backward)


def max_pool(x: Images, kernel: int, stride: int, around: Sequence[Tuple[int, int]]) -> Images:
    """Return the largest of each window: over its rows, then over its columns."""
    x = padded(x, around, -jnp.inf)
    rows, columns = ((extent - kernel) // stride + 1 for extent in x.shape[1:3])
    return largest(strided(largest(strided(x, 1, kernel, stride, rows)), 2, kernel, stride, columns))


def largest(values: List[Images]) -> Images:
    """Return the first of the largest, element by element: it alone gets the gradient."""
    best = values[0]
    for value in values[1:]:
        best = jnp.where(value > best, value, best)
    return best


def padded(x: Images, around: Sequence[Tuple[int, int]], value: float) -> Images:
    return jnp.pad(x, ((0, 0), *around, (0, 0)), constant_values=value)


def strided(x: Images, axis: int, kernel: int, stride: int, count: int) -> List[Images]:
    """Return, for each place of a kernel along an axis, the values that `count` windows see there."""
    return [lax.slice_in_dim(x, place, place + (count - 1) * stride + 1, stride, axis) for place in range(kernel)]


def channel_sums(x: Images, before: int, after: int) -> Images:
    """Sum over the channels c - before ... c + after, by shifted additions."""
    wide = jnp.pad(x, ((0, 0), (0, 0), (0, 0), (before, after)))
    parts = [lax.slice_in_dim(wide, shift, shift + x.shape[3], 1, 3) for shift in range(before + after + 1)]
    return sum(parts[1:], parts[0])


def negative_power(base: Any, beta: float) -> Any:
    if beta != 0.75:
        return base**-beta
    root = lax.rsqrt(base)
    return root * lax.sqrt(root)
