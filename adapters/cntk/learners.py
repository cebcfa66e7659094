"""CNTK's local learners: the update rules."""

from typing import Any, Dict, List

import numpy as np

from adapters.cntk.framework import cntk as C  # noqa: N812 - the name everybody gives it
from suite.worker.contract import SGD, Adam, Setup


def local_learner(setup: Setup, parameters: List[Any]) -> Any:
    """The setup's optimiser; it takes sums of gradients, and the number of samples in them."""
    rule = setup.optimiser
    return adam(rule, parameters) if isinstance(rule, Adam) else momentum(rule, parameters, setup.batch * setup.world)


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
        C.learning_parameter_schedule(rule.lr, minibatch_size=ignore),
        C.momentum_schedule(rule.beta1, minibatch_size=ignore),
        unit_gain=True,
        variance_momentum=C.momentum_schedule(rule.beta2, minibatch_size=ignore),
        epsilon=rule.epsilon,
        adamax=False,
        minibatch_size=ignore,
        **plain(rule.weight_decay),
    )


def plain(decay: float) -> Dict[str, Any]:
    """What all learners of CNTK may do to a gradient: here only weight decay."""
    return {
        "l1_regularization_weight": 0.0,
        "l2_regularization_weight": decay,  # CNTK multiplies it with the samples of a summed gradient
        "gaussian_noise_injection_std_dev": 0.0,
        "gradient_clipping_threshold_per_sample": np.inf,
        "gradient_clipping_with_truncation": True,
    }
