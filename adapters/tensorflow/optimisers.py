"""SGD with momentum, Adam and AdamW, the contract's rules, on variables of one device.

Spelled out they are what Keras' optimisers run, operation by operation, and XLA makes one loop a
variable of them. TensorFlow's own kernels, the ones of its first optimisers, take one pass
without a compiler.
"""

from typing import Any, Callable, List

import tensorflow as tf

from stagebench.adapters.tensorflow.lower import Tensor, Variable
from stagebench.suite.worker.contract import SGD, Adam, Optimiser, decay_of

Tensors = List[Any]  # tensors or variables, in the weights' order
Rule = Callable[..., None]  # (weight, its state, gradient with the decay added, the update's factor)


def states(optimiser: Optimiser) -> int:
    """Return the number of variables per weight that start at zero: a velocity, or both moments."""
    return 2 if isinstance(optimiser, Adam) else 1


def updating(
    optimiser: Optimiser,
    kernels: bool,
    weights: Tensors,
    state: List[Tensors],
    count: Any,
    rate: Any = None,
    locking: bool = False,
) -> Callable[[Tensors], None]:
    """Return a function of the gradients that updates every weight.

    `state`: a list of variables in the weights' order for each of `states`; `count`: the variable that
    counts updates; `rate`: the one that holds the learning rate, where it changes; with `kernels` by
    TensorFlow's own, else spelled out; with `locking` (kernels only) a weight is updated by one at a time.
    """
    lr = optimiser.lr if rate is None else rate
    rule = adam(optimiser, kernels, locking) if isinstance(optimiser, Adam) else sgd(optimiser, lr, kernels, locking)
    decoupled = isinstance(optimiser, Adam) and optimiser.decoupled

    def update(gradients: Tensors) -> None:
        if optimiser.clip:
            gradients, _ = tf.clip_by_global_norm(gradients, optimiser.clip)
        factor = adam_rate(optimiser, lr, count.assign_add(1)) if isinstance(optimiser, Adam) else None
        for weight, own, gradient in zip(weights, zip(*state), gradients):
            decay = decay_of(optimiser, weight.shape)
            if decay and decoupled:
                weight.assign_sub(number(lr, gradient.dtype) * decay * weight, use_locking=locking)
            rule(weight, own, gradient + decay * weight if decay and not decoupled else gradient, factor)

    return update


def kernel_name(optimiser: Optimiser) -> str:
    if not isinstance(optimiser, Adam):
        return "ResourceApplyMomentum"
    return "ResourceApplyAdam after the decay" if optimiser.decoupled else "ResourceApplyAdam"


def with_end(rule: Callable[[Tensors], None]) -> Callable[[Tensors], Any]:
    """Wrap an update in a function whose result is ready when all updates are done."""

    def run(gradients: Tensors) -> Any:
        rule(gradients)
        return tf.constant(0)

    return run


def sgd(optimiser: SGD, lr: Any, kernels: bool, locking: bool) -> Rule:
    """Update as Keras' SGD, with the learning rate outside the velocity."""
    momentum = optimiser.momentum

    def rule(weight: Variable, own: Tensors, gradient: Tensor, _: Any) -> None:
        (velocity,) = own
        if not kernels:
            weight.assign_sub(lr * velocity.assign(momentum * velocity + gradient))
            return
        tf.raw_ops.ResourceApplyMomentum(
            var=weight.handle,
            accum=velocity.handle,
            lr=number(lr, gradient.dtype),
            grad=gradient,
            momentum=tf.constant(momentum, gradient.dtype),
            use_locking=locking,
            use_nesterov=False,
        )

    return rule


def number(value: Any, dtype: Any) -> Any:
    """Convert a float or a variable to a type; tf.cast alone would convert a float to float32 first."""
    return tf.constant(value, dtype) if isinstance(value, float) else tf.cast(value, dtype)


def adam_rate(optimiser: Adam, lr: Any, update: Any) -> Any:
    """Return `Adam.rate` for a tensor; in float64, since 1 - 0.999 has four digits in float32."""
    t = tf.cast(update, tf.float64)
    grown = [1.0 - tf.pow(tf.constant(beta, tf.float64), t) for beta in (optimiser.beta1, optimiser.beta2)]
    return number(lr, tf.float64) * tf.sqrt(grown[1]) / grown[0]


def adam(optimiser: Adam, kernels: bool = False, locking: bool = False) -> Rule:
    """Apply Adam; the kernel gets powers of zero, so that its own factor is 1: `rate` has the whole correction."""

    def rule(weight: Variable, own: Tensors, gradient: Tensor, rate: Tensor) -> None:
        first, second = own
        if not kernels:
            m = first.assign_add((gradient - first) * (1.0 - optimiser.beta1))
            v = second.assign_add((gradient * gradient - second) * (1.0 - optimiser.beta2))
            weight.assign_sub(m * tf.cast(rate, gradient.dtype) / (tf.sqrt(v) + optimiser.epsilon))
            return
        zero = tf.constant(0.0, gradient.dtype)
        tf.raw_ops.ResourceApplyAdam(
            var=weight.handle,
            m=first.handle,
            v=second.handle,
            beta1_power=zero,
            beta2_power=zero,
            lr=tf.cast(rate, gradient.dtype),
            beta1=tf.constant(optimiser.beta1, gradient.dtype),
            beta2=tf.constant(optimiser.beta2, gradient.dtype),
            epsilon=tf.constant(optimiser.epsilon, gradient.dtype),
            grad=gradient,
            use_locking=locking,
            use_nesterov=False,
        )

    return rule
