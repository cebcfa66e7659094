"""JAX's trainer: one jitted function with donated buffers, on one device or on several of this process.

Oldest Python: 3.11, JAX's own.
"""

from typing import Any, Dict

import jax
import jax.numpy as jnp
import numpy as np

from adapters.jax import counting, machine
from adapters.jax.net import Net, canonical, native
from adapters.jax.programs import Programs
from adapters.jax.solvers import solver_of
from suite.worker.contract import Batch, Joined, Setup
from suite.worker.trainer import Trainer
from workloads.graph import Graph


class JaxTrainer(Trainer):
    """Trains a lowered graph as a pure function of its state."""

    def __init__(self, setup: Setup) -> None:
        """Nothing is built yet."""
        super().__init__(setup)
        self._tuned = setup.tuning == "tuned"
        self._several = setup.strategy == "pmap"
        self._dtype = np.float64 if setup.precision == "float64" else np.float32
        self._state: Any = None  # (parameters, the solver's moments, running statistics, key)
        self._pull = self._local = self._gradients = self._loss = self._logits = None  # type: Any
        self._placed: Any = None
        self._reader: Any = None

    # --- life ---------------------------------------------------------------

    def start(self) -> Joined:
        """Precision, threads, devices."""
        self._devices = machine.prepare(self.setup)
        transport = "xla collectives in one process" if self._several else "none"
        return Joined(0, 1, transport, machine.versions(self._devices), len(self._devices))

    def build(self, graph: Graph, weights: Dict[str, np.ndarray]) -> None:
        """Lower, place; a second call starts afresh."""
        self._state = self._pull = self._local = self._gradients = self._loss = self._logits = None
        self._net = Net(graph, self._tuned)
        solver = solver_of(self.setup.optimiser)
        self._programs = Programs(self._net, solver, self._devices, self._several)
        params = {name: native(tensor).astype(self._dtype) for name, tensor in weights.items()}
        stats = {name: tensor.astype(self._dtype) for name, tensor in self._net.statistics().items()}
        if self._several:
            stats = {name: np.stack([tensor] * len(self._devices)) for name, tensor in stats.items()}
        # The masks of dropout: the same again after every build.
        key = jax.random.key(self.setup.seed, impl="rbg" if self._tuned else "threefry2x32")
        everywhere, split = self._programs.everywhere, self._programs.split
        self._state = jax.device_put(
            (params, solver.zeros(params), stats, key), (everywhere, everywhere, split, everywhere)
        )

    def synchronize(self) -> None:
        """Wait for everything that was asked for."""
        jax.block_until_ready((self._state, self._placed, self._pull, self._local, self._gradients, self._loss))

    def close(self) -> None:
        """Stop the reader."""
        if self._reader is not None:
            self._reader.close()

    # --- data ---------------------------------------------------------------

    def to_device(self, batch: Any) -> Batch:
        """Images to channels last, on every device its samples."""
        images = np.ascontiguousarray(np.asarray(batch.images).transpose(0, 2, 3, 1), self._dtype)
        labels = np.asarray(batch.labels, np.int32)
        self._placed = Batch(*jax.device_put((images, labels), self._programs.split))
        return self._placed

    # --- the staged iteration -----------------------------------------------

    def forward(self, batch: Any) -> None:
        """A program of its own, which hands on what the backward needs."""
        params, moments, stats, key = self._state
        self._loss, self._logits, stats, key, self._pull = self._programs.forward(params, stats, key, tuple(batch))
        self._state = (params, moments, stats, key)

    def backward(self) -> None:
        """Every device's own gradients; what the forward kept is let go."""
        self._local = self._gradients = self._programs.backward(self._pull)
        self._pull = None

    def communicate(self) -> None:
        """The mean over the mesh; asked again, it averages the same gradients again."""
        if self._several:
            self._gradients = self._one_at_a_time(self._programs.communicate(self._local))

    def update(self) -> None:
        """The solver's rule."""
        params, moments, stats, key = self._state
        params, moments = self._programs.update(params, moments, self._gradients)
        self._state, self._local, self._gradients = (params, moments, stats, key), None, None

    # --- the native iteration -----------------------------------------------

    def step(self, batch: Any) -> None:
        """One program, its buffers used again for the new state."""
        *state, self._loss = self._one_at_a_time(self._programs.step(*self._state, tuple(batch)))
        self._state = tuple(state)

    def step_alone(self, batch: Any) -> None:
        """The same without the mean: every device trains its own copy."""
        *state, self._loss = self._programs.step_alone(*self._state, tuple(batch))
        self._state = tuple(state)

    # --- evidence -----------------------------------------------------------

    def loss(self) -> float:
        """The mean over this process's devices."""
        return float(jnp.mean(self._loss))

    def logits(self) -> np.ndarray:
        """All samples', in the devices' order."""
        return np.asarray(self._logits, np.float32)

    def predict(self, batch: Any) -> np.ndarray:
        """Without dropout, with running statistics; all samples', in the devices' order."""
        params, _, stats, _ = self._state
        return np.asarray(self._programs.predict(params, stats, batch.images), np.float32)

    def gradients(self) -> Dict[str, np.ndarray]:
        """The first device's: after `communicate`, everybody's."""
        return {name: canonical(self._first(tensor)) for name, tensor in self._gradients.items()}

    def parameters(self) -> Dict[str, np.ndarray]:
        """With the first device's running statistics."""
        params, _, stats, _ = self._state
        found = {name: canonical(tensor.addressable_data(0)) for name, tensor in params.items()}
        found.update((name, canonical(self._first(tensor))) for name, tensor in stats.items())
        return found

    def parameter_count(self) -> int:
        """Of the tree that is differentiated."""
        return sum(int(leaf.size) for leaf in jax.tree_util.tree_leaves(self._state[0]))

    def macs(self) -> int:
        """Counted on the jaxpr of one sample's forward pass."""
        channels, height, width = self._net.graph.input_shape
        sample = jax.ShapeDtypeStruct((1, height, width, channels), self._dtype)
        params, _, stats, key = self._state
        bare = {name: jax.ShapeDtypeStruct(tensor.shape[-1:], tensor.dtype) for name, tensor in stats.items()}
        return counting.macs(jax.make_jaxpr(self._net.forward)(params, bare, sample, key).jaxpr)

    # --- what the measuring loop needs ----------------------------------------

    def maximum(self, value: float) -> float:
        """One process has nobody to ask."""
        return value

    def mark(self) -> Any:
        """The monotonic clock, when the last step is done: JAX shows no device's own events."""
        jax.block_until_ready((self._loss, self._gradients))
        return super().mark()

    def notes(self) -> Dict[str, Any]:
        """What was chosen."""
        ours = "products of matrices where faster, groups one by one, pooling by comparisons, rbg keys"
        return {
            "layout": "NHWC, HWIO, (in, out)",
            "lowering": ours if self._tuned else "lax.conv_general_dilated, lax.reduce_window, threefry keys",
            "step": "one jitted function, state donated" + (", shard_map over a mesh" if self._several else ""),
            "precision": "lax.Precision.HIGHEST",
            "threads": "NPROC %d, %s" % (self.setup.threads * self.setup.devices, machine.SERIAL)
            if self.setup.threads == 1
            else "NPROC %d" % (self.setup.threads * self.setup.devices),
            "reader": self._reader.words + " (JAX has no reader of its own)" if self._reader else "none",
            "marks": "after block_until_ready: JAX has no device events",
        }

    def _one_at_a_time(self, found: Any) -> Any:
        """On several CPU devices: wait, before another program with an exchange is asked for.

        XLA has as many threads as devices; a device that goes ahead into the next exchange takes the thread that
        another one needs to join the last, and after 40 s XLA aborts the process (seen with jaxlib 0.10.2).
        """
        return jax.block_until_ready(found) if self._several and self.setup.device == "cpu" else found

    def _first(self, tensor: Any) -> Any:
        """The first device's part of what is stacked."""
        return tensor.addressable_data(0)[0] if self._several else tensor
