"""Momentum SGD and Adam as MXNet's operators.

SGD: v <- m*v - lr*(g + wd*w), w <- w + v. The learning rate stands inside the velocity,
which for a constant rate is the workload's v <- m*v + g + wd*w, w <- w - lr*v; where the rate
changes, the velocity is multiplied by the new one over the old.

Adam is the workload's own: `adam_update` adds wd*w to the gradient, and mx.optimizer.Adam
multiplies the rate by sqrt(1 - b2^t) / (1 - b1^t).
"""

from typing import Any, Callable, Dict, List, Sequence, Tuple

import mxnet as mx
import numpy as np

from suite.worker.contract import Adam, Optimiser


def name_of(rule: Optimiser) -> str:
    return "adam" if isinstance(rule, Adam) else "sgd"


def settings(rule: Optimiser) -> Dict[str, Any]:
    """The arguments of mx.optimizer.SGD or mx.optimizer.Adam, none left to its defaults."""
    common = {
        "learning_rate": rule.lr,
        "wd": rule.weight_decay,
        "lazy_update": False,
        "multi_precision": False,
        "clip_gradient": None,
    }
    if isinstance(rule, Adam):
        rule = as_read(rule)
        return dict(common, beta1=rule.beta1, beta2=rule.beta2, epsilon=rule.epsilon)
    return dict(common, momentum=rule.momentum)


def as_read(rule: Adam) -> Adam:
    """The rule with the betas that MXNet's operator makes of it, in float64 too: float32.

    Of 1 - 0.999 that is 1.3e-5. A rate corrected for the same betas takes nearly all of it back.
    """
    return rule._replace(beta1=float(np.float32(rule.beta1)), beta2=float(np.float32(rule.beta2)))


class Documented:
    """mx.optimizer.SGD or Adam by its updater, as gluon.Trainer does it: of SGD four parameters an operator."""

    def __init__(self, parameters: Sequence[Any], rule: Optimiser) -> None:
        """`parameters` are Gluon's; an updater a device, each with its moments."""
        self._parameters = list(parameters)
        self._optimiser = mx.optimizer.create(name_of(rule), **settings(rule))
        self._updaters = [mx.optimizer.get_updater(self._optimiser) for _ in self._parameters[0].list_ctx()]

    def apply(self, gradients: List[List[Any]], rescale: float) -> None:
        self._optimiser.rescale_grad = rescale
        weights = [parameter.list_data() for parameter in self._parameters]
        for device, updater in enumerate(self._updaters):
            updater(
                list(range(len(weights))),
                [each[device] for each in gradients],
                [each[device] for each in weights],
            )

    def set_rate(self, rate: float) -> None:
        change_rate(self._optimiser, self._updaters, rate)


def change_rate(optimiser: Any, updaters: Sequence[Any], rate: float) -> None:
    """Of one of mx.optimizer, whose states the updaters keep: an SGD's are velocities."""
    ratio, _ = rate / optimiser.learning_rate, optimiser.set_learning_rate(rate)
    if isinstance(optimiser, mx.optimizer.SGD):
        for updater in updaters:
            for velocity in updater.states.values():
                velocity *= ratio


class Operators:
    """One `sgd_mom_update` or `adam_update` a parameter: faster than the operator for several at once."""

    def __init__(self, parameters: Sequence[Any], rule: Optimiser) -> None:
        """Moments of zero beside every weight."""
        self._rule, self._operator, self._done = rule, operator(rule), 0
        moments = 2 if isinstance(rule, Adam) else 1
        self._states = [
            [(weight, [mx.nd.zeros_like(weight) for _ in range(moments)]) for weight in parameter.list_data()]
            for parameter in parameters
        ]

    def apply(self, gradients: List[List[Any]], rescale: float) -> None:
        self._done += 1
        update, rates = self._operator(self._done)
        for states, ours in zip(self._states, gradients):
            for (weight, moments), gradient in zip(states, ours):
                update(
                    weight,
                    gradient,
                    *moments,
                    out=weight,
                    rescale_grad=rescale,
                    clip_gradient=-1.0,
                    lazy_update=False,
                    **rates,
                )

    def set_rate(self, rate: float) -> None:
        ratio, self._rule = rate / self._rule.lr, self._rule._replace(lr=rate)
        self._operator = operator(self._rule)
        if not isinstance(self._rule, Adam):
            for states in self._states:
                for _, (velocity,) in states:
                    velocity *= ratio


def operator(rule: Optimiser) -> Callable[[int], Tuple[Any, Dict[str, float]]]:
    """MXNet's operator for a rule, and its rates at an update, counted from 1."""
    if isinstance(rule, Adam):
        read = as_read(rule)
        constants = {"beta1": read.beta1, "beta2": read.beta2, "epsilon": read.epsilon, "wd": read.weight_decay}
        return lambda update: (mx.nd.adam_update, dict(constants, lr=read.rate(update)))
    rates = {"lr": rule.lr, "momentum": rule.momentum, "wd": rule.weight_decay}
    return lambda update: (mx.nd.sgd_mom_update, rates)
