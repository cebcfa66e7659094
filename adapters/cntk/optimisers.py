"""The update rules as CNTK's local learners."""

import math
from typing import Any, Callable, Dict, List, NamedTuple

import numpy as np

from stagebench.adapters.cntk.machine import cntk as C  # noqa: N812 - the usual name
from stagebench.suite.worker.contract import SGD, Adam, Setup, Unsupported, decay_of


class Local(NamedTuple):
    """Learners, each of some parameters, that take sums of gradients and their samples; setters for use in training."""

    learners: List[Any]
    set_rate: Callable[[float], None]
    set_kept: Callable[[float], None]  # the part of the velocity that later updates keep, if CNTK does not reset it


def local(setup: Setup, parameters: List[Any], share: float = 1.0, several: bool = False) -> Local:
    """Return the setup's optimiser, of one learner or `several`; an update takes `share` of the global batch."""
    rule, samples = setup.optimiser, setup.batch * setup.world
    # CNTK's own learners decay all their parameters, and clip by the norm of each.
    own = rule.decays != "all" or rule.clip > 0.0
    if several and isinstance(rule, SGD) and not (rule.clip or setup.changing_rate):
        decays = sorted({decay_of(rule, parameter.shape) for parameter in parameters})
        alike = [[each for each in parameters if decay_of(rule, each.shape) == decay] for decay in decays]
        learners = [momentum(rule._replace(weight_decay=decay), each, samples) for decay, each in zip(decays, alike)]
        return Local(learners, fixed, nothing)
    if isinstance(rule, Adam) and (own or rule.decoupled):
        return adam_of_operations(rule, parameters, samples)
    if isinstance(rule, Adam):
        learner = adam(rule, parameters)
        return Local([learner], lambda rate: learner.reset_learning_rate(constant_rate(rate)), nothing)
    if own or setup.changing_rate:
        return momentum_at_any_rate(rule, parameters, samples, share)
    return Local([momentum(rule, parameters, samples)], fixed, nothing)


def fixed(rate: float) -> None:
    """Refuse a rate change: the learner was built without `Setup.changing_rate`."""
    raise Unsupported(f"CNTK's momentum_sgd keeps lr*v, which nothing can rescale for a rate of {rate:g}")


def nothing(kept: float) -> None:
    """No-op: CNTK resets this learner's state."""


def momentum_at_any_rate(rule: SGD, parameters: List[Any], samples: int, share: float = 1.0) -> Local:
    """SGD: v <- m*v + mean gradient + wd*w, w <- w - rate*v, by CNTK's own operations.

    CNTK's momentum_sgd hides rate*v. `samples` are those of a global batch, of which an update takes a
    `share`: as in `momentum`, it then decays and forgets by that share.
    """
    dtype = parameters[0].dtype
    momentum = rule.momentum**share
    rate, kept = (C.Parameter((1,), init=value, dtype=dtype) for value in (rule.lr, momentum))

    def update(weights: List[Any], gradients: List[Any]) -> Any:
        moved = []
        for weight, gradient in zip(weights, clipped(gradients, rule.clip * samples)):
            velocity = C.constant(0, shape=weight.shape, dtype=dtype)
            decayed = gradient * (1.0 / samples) + decay_of(rule, weight.shape) * share * weight
            moved.append(C.assign(weight, weight - rate * C.assign(velocity, kept * velocity + decayed)))
        return C.combine(moved)

    return Local([C.universal(update, parameters)], setter(rate), setter(kept, momentum))


def adam_of_operations(rule: Adam, parameters: List[Any], samples: int) -> Local:
    """Adam or AdamW of the mean gradient, by CNTK's own operations: its learners have no decoupled decay."""
    dtype = parameters[0].dtype
    rate, done = (C.Parameter((1,), init=value, dtype=np.float64) for value in (rule.lr, 0.0))

    def update(weights: List[Any], gradients: List[Any]) -> Any:
        # The correction in float64: 1 - 0.999 has four digits in float32.
        count = C.assign(done, done + 1.0)
        grown = [1.0 - C.exp(count * math.log(beta)) for beta in (rule.beta1, rule.beta2)]
        step = C.cast(rate * C.sqrt(grown[1]) / grown[0], dtype)
        moved = []
        for weight, gradient in zip(weights, clipped(gradients, rule.clip * samples)):
            first, second = (C.constant(0, shape=weight.shape, dtype=dtype) for _ in range(2))
            mean, decay = gradient * (1.0 / samples), decay_of(rule, weight.shape)
            kept = C.cast(1.0 - rate * decay, dtype) if rule.decoupled else 1.0
            mean = mean if rule.decoupled else mean + decay * weight
            m = C.assign(first, first + (mean - first) * (1.0 - rule.beta1))
            v = C.assign(second, second + (mean * mean - second) * (1.0 - rule.beta2))
            moved.append(C.assign(weight, weight * kept - step * m / (C.sqrt(v) + rule.epsilon)))
        return C.combine(moved)

    return Local([C.universal(update, parameters)], setter(rate), nothing)


def clipped(gradients: List[Any], most: float) -> List[Any]:
    """Return gradients scaled down to a global norm of `most`, if theirs is larger; unchanged for 0."""
    if not most:
        return gradients
    squares = [C.reduce_sum(gradient * gradient) for gradient in gradients]
    factor = C.element_min(most / C.sqrt(sum(squares[1:], squares[0])), 1.0)
    return [factor * gradient for gradient in gradients]


def setter(parameter: Any, times: float = 1.0) -> Callable[[float], None]:
    """Return a function that sets a parameter of one number to a value times a factor."""

    def change(value: float) -> None:
        parameter.value = np.array([value * times], dtype=parameter.dtype)

    return change


def momentum(rule: SGD, parameters: List[Any], samples: int) -> Any:
    """SGD: v <- m*v + lr*(mean gradient + wd*w), w <- w - v.

    Rate and momentum are those of one global batch of `samples`, also for a rank that updates by its own
    (block momentum): CNTK keeps the rate per sample the same.
    """
    return C.momentum_sgd(
        parameters,
        C.learning_parameter_schedule(rule.lr, minibatch_size=samples),
        C.momentum_schedule(rule.momentum, minibatch_size=samples),
        unit_gain=False,
        **plain(rule.weight_decay),
    )


def adam(rule: Adam, parameters: List[Any]) -> Any:
    """Return Adam of the mean gradient: `IGNORE` divides the sum by its samples, and scales nothing else.

    With a minibatch size instead, CNTK would keep the sum, and epsilon would weigh less in a larger batch. Unit gain
    multiplies the gradient by 1 - beta1; epsilon is added to sqrt(v), and the bias correction multiplies both.
    """
    ignore = C.learners.IGNORE
    return C.adam(
        parameters,
        constant_rate(rule.lr),
        C.momentum_schedule(rule.beta1, minibatch_size=ignore),
        unit_gain=True,
        variance_momentum=C.momentum_schedule(rule.beta2, minibatch_size=ignore),
        epsilon=rule.epsilon,
        adamax=False,
        minibatch_size=ignore,
        **plain(rule.weight_decay),
    )


def constant_rate(rate: float) -> Any:
    """Return a schedule that does not scale the rate by samples."""
    return C.learning_parameter_schedule(rate, minibatch_size=C.learners.IGNORE)


def plain(decay: float) -> Dict[str, Any]:
    """Return the options of every learner of CNTK, all off but weight decay."""
    return {
        "l1_regularization_weight": 0.0,
        "l2_regularization_weight": decay,  # CNTK multiplies it by the samples of a summed gradient
        "gaussian_noise_injection_std_dev": 0.0,
        "gradient_clipping_threshold_per_sample": np.inf,
        "gradient_clipping_with_truncation": True,
    }
