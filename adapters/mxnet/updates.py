"""Momentum SGD as MXNet's operators: v <- m*v - lr*(g + wd*w), w <- w + v.

The learning rate stands inside the velocity, which for a constant rate is the
workload's v <- m*v + g + wd*w, w <- w - lr*v. Oldest Python: 3.6.
"""

from typing import Any, Dict, List, Sequence

import mxnet as mx

from suite.worker.trainer import SGD


def settings(optimiser: SGD) -> Dict[str, Any]:
    """The arguments of mx.optimizer.SGD, none left to its defaults."""
    return {
        "learning_rate": optimiser.lr,
        "momentum": optimiser.momentum,
        "wd": optimiser.weight_decay,
        "lazy_update": False,
        "multi_precision": False,
        "clip_gradient": None,
    }


class Documented:
    """mx.optimizer.SGD by its updater, as gluon.Trainer does it: four parameters an operator."""

    def __init__(self, parameters: Sequence[Any], optimiser: SGD) -> None:
        """`parameters` are Gluon's; an updater a device, each with its velocities."""
        self._parameters = list(parameters)
        self._sgd = mx.optimizer.SGD(**settings(optimiser))
        self._updaters = [mx.optimizer.get_updater(self._sgd) for _ in self._parameters[0].list_ctx()]

    def apply(self, gradients: List[List[Any]], rescale: float) -> None:
        """Update every device's weights with its gradients times `rescale`."""
        self._sgd.rescale_grad = rescale
        weights = [parameter.list_data() for parameter in self._parameters]
        for device, updater in enumerate(self._updaters):
            updater(
                list(range(len(weights))),
                [each[device] for each in gradients],
                [each[device] for each in weights],
            )


class Direct:
    """One `sgd_mom_update` a parameter: faster than the operator for several at once."""

    def __init__(self, parameters: Sequence[Any], optimiser: SGD) -> None:
        """Velocities of zero beside every weight."""
        self._weights = [parameter.list_data() for parameter in parameters]
        self._velocities = [[mx.nd.zeros_like(each) for each in devices] for devices in self._weights]
        self._rates = {"lr": optimiser.lr, "momentum": optimiser.momentum, "wd": optimiser.weight_decay}

    def apply(self, gradients: List[List[Any]], rescale: float) -> None:
        """Update every device's weights with its gradients times `rescale`."""
        update, rates = mx.nd.sgd_mom_update, self._rates
        for weights, ours, velocities in zip(self._weights, gradients, self._velocities):
            for weight, gradient, velocity in zip(weights, ours, velocities):
                update(
                    weight,
                    gradient,
                    velocity,
                    out=weight,
                    rescale_grad=rescale,
                    clip_gradient=-1.0,
                    lazy_update=False,
                    **rates,
                )
