"""One process, one device: a jitted step."""

from adapters.jax.base import JaxTrainer


class Single(JaxTrainer):
    """Plain `jax.jit`."""


TRAINER = Single
