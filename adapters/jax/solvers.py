"""The contract's update rules as pure functions of parameters, moments and gradients."""

import math
from abc import ABC, abstractmethod
from typing import Any, Dict, Tuple

import jax
import jax.numpy as jnp
import numpy as np

from suite.worker.contract import SGD, Adam, Optimiser

Tensors = Dict[str, Any]


class Solver(ABC):
    """One rule. Its moments end with the learning rate: a number in the state, so that it can change."""

    @abstractmethod
    def zeros(self, params: Tensors) -> Any:
        """Its moments before the first update, as NumPy arrays."""

    @abstractmethod
    def moved(self, params: Any, moments: Any, gradients: Any) -> Tuple[Any, Any]:
        """(parameters, moments) after one update."""

    def scale(self, moments: Any) -> Any:
        """What the loss is multiplied by before its gradients are taken; None: by nothing."""
        return None

    def with_rate(self, moments: Any, rate: Any) -> Any:
        """The moments with another rate for the updates to come."""
        return (*moments[:-1], rate)


class Momentum(Solver):
    """V <- m v + g + wd w, w <- w - lr v."""

    def __init__(self, rule: SGD) -> None:
        self._rule = rule

    def zeros(self, params: Tensors) -> Any:
        """(velocities, rate)."""
        return zeros_like(params), number_like(params, self._rule.lr)

    def moved(self, params: Any, moments: Any, gradients: Any) -> Tuple[Any, Any]:
        (velocities, lr), (_, momentum, decay) = moments, self._rule
        velocities = jax.tree.map(lambda v, g, w: momentum * v + g + decay * w, velocities, gradients, params)
        return jax.tree.map(lambda w, v: w - lr * v, params, velocities), (velocities, lr)


class AdamSolver(Solver):
    """The rule in the docstring of `suite.worker.contract.Adam`; the count of updates is a part of the state."""

    def __init__(self, rule: Adam) -> None:
        self._rule = rule

    def zeros(self, params: Tensors) -> Any:
        """(first moments, second moments, updates so far, rate)."""
        return zeros_like(params), zeros_like(params), np.zeros((), np.int32), number_like(params, self._rule.lr)

    def moved(self, params: Any, moments: Any, gradients: Any) -> Tuple[Any, Any]:
        rule, (first, second, updates, lr) = self._rule, moments
        updates = updates + 1
        gradients = jax.tree.map(lambda g, w: g + rule.weight_decay * w, gradients, params)
        first = jax.tree.map(lambda m, g: rule.beta1 * m + (1 - rule.beta1) * g, first, gradients)
        second = jax.tree.map(lambda v, g: rule.beta2 * v + (1 - rule.beta2) * g * g, second, gradients)
        rate = lr * jnp.sqrt(one_minus_power(rule.beta2, updates)) / one_minus_power(rule.beta1, updates)
        moved = jax.tree.map(lambda w, m, v: w - rate * m / (jnp.sqrt(v) + rule.epsilon), params, first, second)
        return moved, (first, second, updates, lr)


def one_minus_power(beta: float, updates: Any) -> Any:
    """1 - beta^t; the difference itself would lose four of float32's seven digits at the first updates."""
    return -jnp.expm1(updates * (math.log(beta) if beta else -math.inf))


def zeros_like(tensors: Tensors) -> Tensors:
    return {name: np.zeros_like(tensor) for name, tensor in tensors.items()}


def number_like(tensors: Tensors, value: float) -> np.ndarray:
    """A scalar of the tensors' type."""
    return np.asarray(value, next(iter(tensors.values())).dtype)


def solver_of(rule: Optimiser) -> Solver:
    return AdamSolver(rule) if isinstance(rule, Adam) else Momentum(rule)
