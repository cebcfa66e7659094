"""One process, one device: a jitted step.

Oldest Python: 3.11, JAX's own.
"""

from adapters.jax.base import JaxTrainer


class Single(JaxTrainer):
    """Plain `jax.jit`."""


TRAINER = Single
