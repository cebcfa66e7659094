"""Jax's trainer, in the framework's own interpreter: the standard library, NumPy and the framework alone.

`suite/worker/trainer.py` is the contract: the order of calls, `Setup` and `Joined`, `Unsupported` (what the framework
cannot do) and `Unavailable` (what this machine lacks). 9 more methods have defaults that you may
override:
close, open_input, next_batch, step_alone, mark, elapsed, layer_times, forget_layer_times, notes.

Oldest Python: 3.6.
"""

from typing import Any, Dict

import numpy as np

from adapters.jax.stubs import unwritten
from suite.worker.trainer import Joined, Trainer
from workloads.graph import Graph


class JaxTrainer(Trainer):
    """Trains a lowered graph."""

    # --- life ---------------------------------------------------------------

    def start(self) -> Joined:
        """Set threads and device, join the group. Called once, first."""
        raise unwritten(JaxTrainer.start)

    def build(self, graph: Graph, weights: Dict[str, np.ndarray]) -> None:
        """Make the network and the optimiser with these weights (canonical names and layouts).

        May be called again: a proof rebuilds between its native and its staged half.
        The velocity starts at zero, running statistics at mean 0 and variance 1.
        """
        raise unwritten(JaxTrainer.build)

    def synchronize(self) -> None:
        """Return when everything asked of the device has been done (on a CPU: at once)."""
        raise unwritten(JaxTrainer.synchronize)

    # --- data ---------------------------------------------------------------

    def to_device(self, batch: Any) -> Any:
        """Bring a host batch (NumPy, or what next_batch returns) to the device (stage `h2d`)."""
        raise unwritten(JaxTrainer.to_device)

    # --- the staged iteration -----------------------------------------------

    def forward(self, batch: Any) -> None:
        """Compute logits and loss of a device batch, keeping what backward needs (stage `forward`)."""
        raise unwritten(JaxTrainer.forward)

    def backward(self) -> None:
        """Compute every device's gradients, without any exchange (stage `backward`)."""
        raise unwritten(JaxTrainer.backward)

    def communicate(self) -> None:
        """Average the gradients over all devices (stage `communication`); nothing on a single one.

        Also called many times in a row by the `comm_only` pass.
        """
        raise unwritten(JaxTrainer.communicate)

    def update(self) -> None:
        """Apply the optimiser and forget the gradients (stage `update`)."""
        raise unwritten(JaxTrainer.update)

    # --- the native iteration -----------------------------------------------

    def step(self, batch: Any) -> None:
        """One whole training step on the framework's own fastest path."""
        raise unwritten(JaxTrainer.step)

    # --- evidence -----------------------------------------------------------

    def loss(self) -> float:
        """The last iteration's loss on this rank (weighted over heads), waiting for it."""
        raise unwritten(JaxTrainer.loss)

    def logits(self) -> np.ndarray:
        """The last head's logits of the last staged forward, float32 (samples, classes)."""
        raise unwritten(JaxTrainer.logits)

    def gradients(self) -> Dict[str, np.ndarray]:
        """Gradients by canonical name and layout; after `communicate`, the averaged ones."""
        raise unwritten(JaxTrainer.gradients)

    def parameters(self) -> Dict[str, np.ndarray]:
        """Parameters and running statistics (of this rank's first device) by canonical name and layout."""
        raise unwritten(JaxTrainer.parameters)

    def macs(self) -> int:
        """Multiply-accumulates of one sample's forward pass, counted on the framework's own layers."""
        raise unwritten(JaxTrainer.macs)

    # --- what the measuring loop needs ----------------------------------------

    def maximum(self, value: float) -> float:
        """The largest value over all ranks; also the barrier."""
        raise unwritten(JaxTrainer.maximum)
