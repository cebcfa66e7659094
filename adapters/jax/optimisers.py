"""The contract's update rules as pure functions of parameters, moments and gradients, and dynamic loss scaling.

In float16 small gradients would become zero, so the loss is multiplied by a scale and its gradients are divided by it
(Micikevicius et al. 2018, arXiv 1710.03740; torch.amp.GradScaler). A scale that makes a gradient overflow is halved,
and that update is skipped; after many updates without an overflow it is doubled.
"""

import math
from abc import ABC, abstractmethod
from typing import Any, Optional, Tuple

import jax
import jax.numpy as jnp
import numpy as np

from stagebench.adapters.jax.lower import Array
from stagebench.adapters.jax.net import Tensors
from stagebench.suite.worker.contract import SGD, Adam, Optimiser, decay_of

Moments = Any  # a rule's state: a tree of jax.Array


class Solver(ABC):
    """An update rule. Its moments end with the learning rate: as a part of the state it can change."""

    @abstractmethod
    def zeros(self, params: Tensors) -> Moments:
        """Return the moments before the first update, as NumPy arrays."""

    @abstractmethod
    def moved(self, params: Tensors, moments: Moments, gradients: Tensors) -> Tuple[Tensors, Moments]:
        """Return (parameters, moments) after one update."""

    def scale(self, moments: Moments) -> Optional[Array]:
        """Return the factor of the loss from which gradients are taken; None for 1."""
        return None

    def with_rate(self, moments: Moments, rate: Array) -> Moments:
        """Return the moments with another learning rate."""
        return (*moments[:-1], rate)


class Momentum(Solver):
    """V <- m v + g + wd w, w <- w - lr v."""

    def __init__(self, rule: SGD) -> None:
        self._rule = rule

    def zeros(self, params: Tensors) -> Moments:
        """(velocities, rate)."""
        return zeros_like(params), number_like(params, self._rule.lr)

    def moved(self, params: Tensors, moments: Moments, gradients: Tensors) -> Tuple[Tensors, Moments]:
        velocities, lr = moments
        rule = self._rule
        gradients = clipped(gradients, rule.clip)
        velocities = jax.tree.map(
            lambda v, g, w: rule.momentum * v + g + decay_of(rule, w.shape) * w, velocities, gradients, params
        )
        return jax.tree.map(lambda w, v: w - lr * v, params, velocities), (velocities, lr)


class AdamSolver(Solver):
    """The rule in the docstring of `stagebench.suite.worker.contract.Adam`; its state counts the updates."""

    def __init__(self, rule: Adam) -> None:
        self._rule = rule

    def zeros(self, params: Tensors) -> Moments:
        """(first moments, second moments, updates so far, rate)."""
        return zeros_like(params), zeros_like(params), np.zeros((), np.int32), number_like(params, self._rule.lr)

    def moved(self, params: Tensors, moments: Moments, gradients: Tensors) -> Tuple[Tensors, Moments]:
        rule = self._rule
        first, second, updates, lr = moments
        updates = updates + 1
        gradients = clipped(gradients, rule.clip)
        if rule.decoupled:
            params = jax.tree.map(lambda w: w - lr * decay_of(rule, w.shape) * w, params)
        else:
            gradients = jax.tree.map(lambda g, w: g + decay_of(rule, w.shape) * w, gradients, params)
        first = jax.tree.map(lambda m, g: rule.beta1 * m + (1 - rule.beta1) * g, first, gradients)
        second = jax.tree.map(lambda v, g: rule.beta2 * v + (1 - rule.beta2) * g * g, second, gradients)
        rate = lr * jnp.sqrt(one_minus_power(rule.beta2, updates)) / one_minus_power(rule.beta1, updates)
        moved = jax.tree.map(lambda w, m, v: w - rate * m / (jnp.sqrt(v) + rule.epsilon), params, first, second)
        return moved, (first, second, updates, lr)


def clipped(gradients: Tensors, most: float) -> Tensors:
    """Return gradients scaled down to a global norm of `most`, if theirs is larger; unchanged for 0."""
    if not most:
        return gradients
    norm = jnp.sqrt(sum(jnp.sum(jnp.square(gradient)) for gradient in gradients.values()))
    factor = jnp.minimum(1.0, most / norm)
    return jax.tree.map(lambda gradient: factor * gradient, gradients)


def one_minus_power(beta: float, updates: Any) -> Any:
    """Return 1 - beta^t; a subtraction would lose four of float32's seven digits at the first updates."""
    return -jnp.expm1(updates * (math.log(beta) if beta else -math.inf))


def zeros_like(tensors: Tensors) -> Tensors:
    return {name: np.zeros_like(tensor) for name, tensor in tensors.items()}


def number_like(tensors: Tensors, value: float) -> np.ndarray:
    """Return a scalar of the tensors' type."""
    return np.asarray(value, next(iter(tensors.values())).dtype)


def solver_of(rule: Optimiser) -> Solver:
    return AdamSolver(rule) if isinstance(rule, Adam) else Momentum(rule)


FIRST_SCALE = 2.0**10  # a small batch's first gradients do not overflow with it
UPDATES_TO_DOUBLE = 2000  # without an overflow, in a row


class Scaled(Solver):
    """A rule with a loss scale; moments are (scale, updates since it changed, the rule's own)."""

    def __init__(self, rule: Solver) -> None:
        self._rule = rule

    def zeros(self, params: Tensors) -> Moments:
        return np.asarray(FIRST_SCALE, np.float32), np.zeros((), np.int32), self._rule.zeros(params)

    def scale(self, moments: Moments) -> Array:
        return moments[0]

    def moved(self, params: Tensors, moments: Moments, gradients: Tensors) -> Tuple[Tensors, Moments]:
        """Update if all (unscaled) gradients are finite; otherwise change the scale alone."""
        scale, good, own = moments
        finite = jnp.stack([jnp.isfinite(gradient).all() for gradient in jax.tree.leaves(gradients)]).all()
        moved = self._rule.moved(params, own, gradients)
        params, own = jax.tree.map(lambda new, old: jnp.where(finite, new, old), moved, (params, own))
        good = jnp.where(finite, good + 1, 0)
        long = good == UPDATES_TO_DOUBLE
        scale = jnp.where(finite, jnp.where(long, 2 * scale, scale), scale / 2)
        return params, (scale, jnp.where(long, 0, good), own)

    def with_rate(self, moments: Moments, rate: Array) -> Moments:
        scale, good, own = moments
        return scale, good, self._rule.with_rate(own, rate)
