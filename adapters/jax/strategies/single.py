"""One process, one device: a jitted step."""

from adapters.jax.base import JaxTrainer

TRAINER = JaxTrainer
