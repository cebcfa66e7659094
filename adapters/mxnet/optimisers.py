"""SGD with momentum, Adam and AdamW as MXNet's operators, in each worker and on the servers of `dist_async`.

SGD: v <- m*v - lr*(g + wd*w), w <- w + v. The velocity contains the learning rate, which for a constant rate equals the
workload's v <- m*v + g + wd*w, w <- w - lr*v; when the rate changes, the velocity is multiplied by the new rate over
the old.

Adam is the workload's: `adam_update` adds wd*w to the gradient, and mx.optimizer.Adam multiplies the rate by
sqrt(1 - b2^t) / (1 - b1^t). AdamW is `contrib.adamw_update`, which corrects nothing and does not multiply the decay by
the rate; MXNet 1.9.1 has no class of it, so one is registered here.

Servers count updates in a number that they keep with the weights: every worker's push adds one, and brings the sum back
(without loss up to 2**24 updates). A server loads this file while it is still importing mxnet.
"""

from functools import lru_cache
from typing import Any, Callable, Dict, List, Sequence, Tuple

import mxnet as mx
import numpy as np
from mxnet import ndarray as nd  # a server has no mx.nd yet

from stagebench.suite.worker.contract import Adam, Optimiser, decay_of


def name_of(rule: Optimiser) -> str:
    return ("adamw" if rule.decoupled else "adam") if isinstance(rule, Adam) else "sgd"


def settings(rule: Optimiser) -> Dict[str, Any]:
    """Return all arguments of mx.optimizer.SGD or mx.optimizer.Adam."""
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
    """Return the rule with betas rounded to float32, as MXNet's operator does in float64 too.

    For 1 - 0.999 that is a relative error of 1.3e-5. A rate corrected for the rounded betas cancels nearly all of it.
    """
    return rule._replace(beta1=float(np.float32(rule.beta1)), beta2=float(np.float32(rule.beta2)))


@lru_cache(maxsize=None)
def number(value: float, context: Any) -> Any:
    """Return an array of one float32 number on a device."""
    return nd.array([value], ctx=context)


def adamw_update(
    weight: Any, gradient: Any, *moments: Any, rescale_grad: float, lazy_update: bool, **rates: Any
) -> None:
    """Call `contrib.adamw_update` with the arguments of `adam_update`; it takes the scale as a float32 array."""
    nd.contrib.adamw_update(weight, gradient, *moments, number(rescale_grad, weight.context), eta=1.0, **rates)


@mx.optimizer.register
class AdamW(mx.optimizer.Optimizer):  # type: ignore[misc]
    """AdamW for updaters and servers, with the arguments of mx.optimizer.Adam."""

    def __init__(self, beta1: float, beta2: float, epsilon: float, lazy_update: bool, **common: Any) -> None:
        super().__init__(**common)
        self._rule = Adam(0.0, beta1, beta2, epsilon, common["wd"], decoupled=True)

    def create_state(self, index: int, weight: Any) -> List[Any]:
        return [nd.zeros_like(weight) for _ in range(2)]

    def update(self, index: int, weight: Any, gradient: Any, state: Any) -> None:
        """Update one parameter."""
        self._update_count(index)
        rule = self._rule._replace(lr=self._get_lr(index), weight_decay=self._get_wd(index))
        apply, rates = operator(rule)(self._index_update_count[index])
        common = {"out": weight, "rescale_grad": self.rescale_grad, "clip_gradient": -1.0, "lazy_update": False}
        apply(weight, gradient, *state, **common, **rates)


def clip(gradients: List[List[Any]], most: float) -> None:
    """Scale each device's gradients down to a global norm of `most`; gluon.utils takes no float64."""
    for own in zip(*gradients):
        flat = [gradient.reshape((-1,)) for gradient in own]
        factor = nd.minimum(most / nd.sqrt(nd.add_n(*[nd.dot(each, each) for each in flat])), 1.0)
        for gradient in own:
            gradient *= factor


class Documented:
    """mx.optimizer.SGD or Adam by its updater, as in gluon.Trainer: SGD updates four parameters per operator."""

    def __init__(self, parameters: Sequence[Any], rule: Optimiser) -> None:
        """`parameters` are Gluon's, which know their decay; each device has an updater with its own moments."""
        self._parameters = list(parameters)
        known = dict(enumerate(self._parameters))
        self._optimiser = mx.optimizer.create(name_of(rule), param_dict=known, **settings(rule))
        self._updaters = [mx.optimizer.get_updater(self._optimiser) for _ in self._parameters[0].list_ctx()]

    def apply(self, gradients: List[List[Any]], rescale: float) -> None:
        self._optimiser.rescale_grad = rescale
        weights = [parameter.list_data() for parameter in self._parameters]
        for device, updater in enumerate(self._updaters):
            updater(list(range(len(weights))), [each[device] for each in gradients], [each[device] for each in weights])

    def set_rate(self, rate: float) -> None:
        change_rate(self._optimiser, self._updaters, rate)


def change_rate(optimiser: Any, updaters: Sequence[Any], rate: float) -> None:
    """Set the rate of an mx.optimizer, and rescale the velocities that its updaters keep for SGD."""
    ratio, _ = rate / optimiser.learning_rate, optimiser.set_learning_rate(rate)
    if isinstance(optimiser, mx.optimizer.SGD):
        for updater in updaters:
            for velocity in updater.states.values():
                velocity *= ratio


class Operators:
    """An optimiser that calls `sgd_mom_update` or `adam_update` per parameter: faster than the operator for several."""

    def __init__(self, parameters: Sequence[Any], rule: Optimiser) -> None:
        """Make moments of zero for every weight."""
        self._rule, self._done = rule, 0
        self._decays = [decay_of(rule, parameter.shape) for parameter in parameters]
        moments = 2 if isinstance(rule, Adam) else 1
        self._states = [
            [(weight, [nd.zeros_like(weight) for _ in range(moments)]) for weight in parameter.list_data()]
            for parameter in parameters
        ]

    def apply(self, gradients: List[List[Any]], rescale: float) -> None:
        self._done += 1
        rule = self._rule
        updates = {decay: operator(rule._replace(weight_decay=decay))(self._done) for decay in set(self._decays)}
        for states, ours, decay in zip(self._states, gradients, self._decays):
            update, rates = updates[decay]
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
        if not isinstance(self._rule, Adam):
            for states in self._states:
                for _, (velocity,) in states:
                    velocity *= ratio


def operator(rule: Optimiser) -> Callable[[int], Tuple[Any, Dict[str, float]]]:
    """Return a function from an update's number, from 1, to MXNet's operator and its rates."""
    if isinstance(rule, Adam):
        read = as_read(rule)
        decay = read.weight_decay * (read.lr if read.decoupled else 1.0)
        constants = {"beta1": read.beta1, "beta2": read.beta2, "epsilon": read.epsilon, "wd": decay}
        update_of = adamw_update if read.decoupled else nd.adam_update
        return lambda update: (update_of, dict(constants, lr=read.rate(update)))
    rates = {"lr": rule.lr, "momentum": rule.momentum, "wd": rule.weight_decay}
    return lambda update: (nd.sgd_mom_update, rates)


class Counts:
    """A mixin of a server's optimiser: under one key it counts the pushes."""

    counter = -1
    wd_mult: Dict[int, float]  # MXNet's name

    def update_multi_precision(self, index: Any, weight: Any, gradient: Any, state: Any) -> None:
        """Update one key (int) or several."""
        if self.counter == (index[0] if isinstance(index, (list, tuple)) else index):
            for each in weight if isinstance(weight, (list, tuple)) else [weight]:
                each += 1
        else:
            super().update_multi_precision(index, weight, gradient, state)  # type: ignore[misc]


class CountingSGD(Counts, mx.optimizer.SGD):
    """SGD for the servers."""


class CountingAdam(Counts, mx.optimizer.Adam):
    """Adam for the servers."""


class CountingAdamW(Counts, AdamW):
    """AdamW for the servers."""


def counting(rule: Optimiser, samples: int, counter: int, decays: Dict[int, float]) -> Any:
    """Return the servers' optimiser; gradients are sums over `samples` samples, `counter` is the count's key.

    `decays`: a factor of the weight decay by key.
    """
    kind = {"sgd": CountingSGD, "adam": CountingAdam, "adamw": CountingAdamW}[name_of(rule)]
    made = kind(rescale_grad=1.0 / samples, **settings(rule))
    made.counter, made.wd_mult = counter, decays
    return made
