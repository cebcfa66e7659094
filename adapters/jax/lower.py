"""Layer kinds as Jax's own layers; `workloads/kinds.py` says what each kind means.

The graph spells everything out and so must you: pass every default of the framework explicitly. Where frameworks
differ: padding (a number, never "same"), ceil pooling, whether padding counts in averages, LRN's alpha (divided by
size), batch norm (normalises by the biased variance, keeps the unbiased one; momentum is the old value's share),
layouts (weights arrive as OIHW and (out, in), and evidence goes back so), flatten in C, H, W order.

Oldest Python: 3.6.
"""

from typing import Any, Callable, Dict

from adapters.jax.stubs import unwritten
from workloads.graph import Layer


def conv(layer: Layer) -> Any:
    """The kind `conv`: cross-correlation, zero padding on both sides.

    Attributes: out, kernel, stride, pad, groups, bias. Holds weight, bias.
    """
    raise unwritten(conv)


def dense(layer: Layer) -> Any:
    """The kind `dense`: y = W x + b over a flat input.

    Attributes: out, bias. Holds weight, bias.
    """
    raise unwritten(dense)


def relu(layer: Layer) -> Any:
    """The kind `relu`: max(x, 0); the gradient at 0 is 0."""
    raise unwritten(relu)


def max_pool(layer: Layer) -> Any:
    """The kind `max_pool`: padding never wins.

    Attributes: kernel, stride, pad, ceil.
    """
    raise unwritten(max_pool)


def avg_pool(layer: Layer) -> Any:
    """The kind `avg_pool`: count_padding: padded zeros count in the divisor.

    Attributes: kernel, stride, pad, ceil, count_padding.
    """
    raise unwritten(avg_pool)


def lrn(layer: Layer) -> Any:
    """The kind `lrn`: x * (k + alpha/size * sum of squares over the window) ** -beta.

    Attributes: size, alpha, beta, k.
    """
    raise unwritten(lrn)


def batch_norm(layer: Layer) -> Any:
    """The kind `batch_norm`: normalises by the batch's biased variance.

    Attributes: eps, momentum. Holds weight, bias, running_mean, running_var.
    """
    raise unwritten(batch_norm)


def dropout(layer: Layer) -> Any:
    """The kind `dropout`: zero with probability rate, else scale by 1/(1 - rate).

    Attributes: rate.
    """
    raise unwritten(dropout)


def concat(layer: Layer) -> Any:
    """The kind `concat`: along channels."""
    raise unwritten(concat)


def add(layer: Layer) -> Any:
    """The kind `add`: element by element."""
    raise unwritten(add)


def flatten(layer: Layer) -> Any:
    """The kind `flatten`: in C, H, W order."""
    raise unwritten(flatten)


MAKERS: Dict[str, Callable[[Layer], Any]] = {
    "conv": conv,
    "dense": dense,
    "relu": relu,
    "max_pool": max_pool,
    "avg_pool": avg_pool,
    "lrn": lrn,
    "batch_norm": batch_norm,
    "dropout": dropout,
    "concat": concat,
    "add": add,
    "flatten": flatten,
}


def lower(layer: Layer) -> Any:
    """The layer as something to call with its inputs; `worker.py`'s build goes over `graph.layers` with it."""
    return MAKERS[layer.kind](layer)
