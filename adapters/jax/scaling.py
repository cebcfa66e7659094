"""Dynamic loss scaling: small gradients would vanish in float16, so the loss is multiplied, and they are divided again.

The usual way (Micikevicius et al. 2018, arXiv 1710.03740; torch.amp.GradScaler): a scale that makes a gradient overflow
is halved, and that update left out; after many updates without any it is doubled.
"""

from typing import Any, Tuple

import jax
import jax.numpy as jnp
import numpy as np

from adapters.jax.solvers import Solver, Tensors

# The first scale, with which a small batch's first gradients do not overflow; updates in a row before it is doubled.
START, PATIENCE = 2.0**10, 2000


class Scaled(Solver):
    """A rule behind a scale, which is a part of its moments: (scale, updates since it changed, the rule's own)."""

    def __init__(self, rule: Solver) -> None:
        self._rule = rule

    def zeros(self, params: Tensors) -> Any:
        return np.asarray(START, np.float32), np.zeros((), np.int32), self._rule.zeros(params)

    def scale(self, moments: Any) -> Any:
        return moments[0]

    def moved(self, params: Any, moments: Any, gradients: Any) -> Tuple[Any, Any]:
        """Everything stays as it is, but for the scale, where a gradient (scaled no longer) is not finite."""
        scale, good, own = moments
        finite = jnp.stack([jnp.isfinite(gradient).all() for gradient in jax.tree.leaves(gradients)]).all()
        moved = self._rule.moved(params, own, gradients)
        params, own = jax.tree.map(lambda new, old: jnp.where(finite, new, old), moved, (params, own))
        good = jnp.where(finite, good + 1, 0)
        long = good == PATIENCE
        scale = jnp.where(finite, jnp.where(long, 2 * scale, scale), scale / 2)
        return params, (scale, jnp.where(long, 0, good), own)

    def with_rate(self, moments: Any, rate: Any) -> Any:
        scale, good, own = moments
        return scale, good, self._rule.with_rate(own, rate)
