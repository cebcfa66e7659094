"""CNTK's local learners: the update rules."""

from typing import Any, Callable, Dict, List, Tuple

import numpy as np

from adapters.cntk.framework import cntk as C  # noqa: N812 - the name everybody gives it
from suite.worker.contract import SGD, Adam, Setup, Unsupported


def local_learner(setup: Setup, parameters: List[Any]) -> Tuple[Any, Callable[[float], None]]:
    """(the setup's optimiser, what gives it another rate); it takes sums of gradients and the samples in them."""
    rule, samples = setup.optimiser, setup.batch * setup.world
    if isinstance(rule, Adam):
        learner = adam(rule, parameters)
        return learner, lambda rate: learner.reset_learning_rate(constant_rate(rate))
    if setup.changing_rate:
        return momentum_at_any_rate(rule, parameters, samples)
    return momentum(rule, parameters, samples), fixed


def fixed(rate: float) -> None:
    """Nobody asked for it (`Setup.changing_rate`)."""
    raise Unsupported("CNTK's momentum_sgd keeps lr*v, which nothing can rescale for a rate of %g" % rate)


def momentum_at_any_rate(rule: SGD, parameters: List[Any], samples: int) -> Tuple[Any, Callable[[float], None]]:
    """SGD: v <- m*v + mean gradient + wd*w, w <- w - rate*v, by CNTK's own operations, and what sets the rate.

    CNTK's momentum_sgd keeps rate*v out of reach. A gradient is the sum over a global batch of so many `samples`.
    """
    dtype = parameters[0].dtype
    rate = C.Parameter((1,), init=rule.lr, dtype=dtype)

    def update(weights: List[Any], gradients: List[Any]) -> Any:
        moved = []
        for weight, gradient in zip(weights, gradients):
            velocity = C.constant(0, shape=weight.shape, dtype=dtype)
            decayed = gradient * (1.0 / samples) + rule.weight_decay * weight
            moved.append(C.assign(weight, weight - rate * C.assign(velocity, rule.momentum * velocity + decayed)))
        return C.combine(moved)

    def change(value: float) -> None:
        rate.value = np.array([value], dtype=dtype)

    return C.universal(update, parameters), change


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
    """Adam of the mean gradient: `IGNORE` divides the sum by its samples, however many, and scales nothing else.

    With a minibatch size in its place CNTK would keep the sum, and epsilon would weigh less the larger the batch. Unit
    gain puts 1 - beta1 before the gradient; epsilon stands beside sqrt(v), the bias correction before both.
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
    """As a schedule that scales nothing by samples."""
    return C.learning_parameter_schedule(rate, minibatch_size=C.learners.IGNORE)


def plain(decay: float) -> Dict[str, Any]:
    """What all learners of CNTK may do to a gradient: here only weight decay."""
    return {
        "l1_regularization_weight": 0.0,
        "l2_regularization_weight": decay,  # CNTK multiplies it with the samples of a summed gradient
        "gaussian_noise_injection_std_dev": 0.0,
        "gradient_clipping_threshold_per_sample": np.inf,
        "gradient_clipping_with_truncation": True,
    }
