"""Data parallel over the devices of one process: the jitted step as a `jax.shard_map` over a mesh of one axis.

A body is one device's, parameters are replicated, and the batch is cut along its samples. Results that differ between
devices (running statistics, loss, what the backward needs, gradients before the exchange) are stacked along a first
axis that the mesh cuts. (`jax.pmap`, which gave this strategy its name, is built on shard_map since JAX 0.8 and no
longer recommended.)
"""

from typing import Any, Callable, Dict, List, Tuple

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding

from adapters.jax.base import JaxTrainer
from adapters.jax.net import Net
from adapters.jax.optimisers import Solver
from adapters.jax.programs import ALL, AXIS, OWN, Programs
from suite.worker.contract import Batch


class MeshPrograms(Programs):
    """Programs over all devices, a step without its exchange and the exchange alone among them."""

    def __init__(self, net: Net, solver: Solver, devices: List[Any]) -> None:
        self._mesh = Mesh(np.array(devices), (AXIS,))
        super().__init__(net, solver, devices)
        self.step_alone = self.step_program(lambda gradients: gradients)
        self.communicate = self.program(self.mean, (OWN,), OWN)

    def program(self, body: Callable[..., Any], inputs: Any, outputs: Any, donate: Tuple[int, ...] = ()) -> Any:
        # check_vma=False: each device keeps its own gradients of replicated parameters until they are averaged.
        body = jax.shard_map(body, mesh=self._mesh, in_specs=inputs, out_specs=outputs, check_vma=False)
        return jax.jit(body, donate_argnums=donate)

    def shardings(self, devices: List[Any]) -> Tuple[Any, Any]:
        """Return replication on every device, and a cut along the first axis."""
        return NamedSharding(self._mesh, ALL), NamedSharding(self._mesh, OWN)

    def mean(self, gradients: Any) -> Any:
        return jax.lax.pmean(gradients, AXIS)

    def own_key(self, key: Any) -> Any:
        return jax.random.fold_in(key, jax.lax.axis_index(AXIS))

    def stacked(self, tree: Any) -> Any:
        """Add a first axis of one."""
        return jax.tree.map(lambda leaf: leaf[None], tree)

    def bare(self, tree: Any) -> Any:
        return jax.tree.map(lambda leaf: leaf[0], tree)


class Pmap(JaxTrainer):
    """Trains on several devices; gradients are averaged by `pmean`."""

    transport = "xla collectives in one process"
    _programs: MeshPrograms

    def programs(self, solver: Solver) -> MeshPrograms:
        return MeshPrograms(self._net, solver, self._devices)

    def for_every_device(self, stats: Dict[str, np.ndarray]) -> Dict[str, np.ndarray]:
        return {name: np.stack([tensor] * len(self._devices)) for name, tensor in stats.items()}

    def first_device(self, tensor: Any) -> Any:
        """Return the first device's part of a stacked array."""
        return tensor.addressable_data(0)[0]

    def communicate(self) -> None:
        """Average over the mesh; a second call averages the local gradients again."""
        self._gradients = self._one_at_a_time(self._programs.communicate(self._local))

    def step(self, batch: Batch) -> None:
        """Run one program, which reuses the state's buffers."""
        *state, self._loss = self._one_at_a_time(self._programs.step(*self._state, tuple(batch)))
        self._state = tuple(state)
        self._ends.asked(self._loss)

    def step_alone(self, batch: Batch) -> None:
        """Step without the mean: every device trains its own copy."""
        # This program has no exchange to wait for, but the wait of `step` must not count as communication.
        *state, self._loss = self._one_at_a_time(self._programs.step_alone(*self._state, tuple(batch)))
        self._state = tuple(state)
        self._ends.asked(self._loss)

    def notes(self) -> Dict[str, Any]:
        found = super().notes()
        return dict(found, step=found["step"] + ", shard_map over a mesh")

    def _one_at_a_time(self, found: Any) -> Any:
        """Wait for a program on several CPU devices, before the next one with an exchange starts.

        XLA has as many threads as devices; a device that goes ahead into the next exchange takes the thread that
        another device needs to join the last, and after 40 s XLA aborts the process (seen with jaxlib 0.10.2).
        """
        return jax.block_until_ready(found) if self.setup.device == "cpu" and self.setup.devices > 1 else found
