"""Data parallel over the devices of one process: the jitted step as a `jax.shard_map` over a mesh of one axis.

A body is one device's, parameters are replicated, and the batch is cut along its samples. Results that differ between
devices (running statistics, loss, what the backward needs, gradients before the exchange) are stacked along a first
axis that the mesh cuts. (`jax.pmap`, which gave this strategy its name, is built on shard_map since JAX 0.8 and no
longer recommended.)
"""

from typing import Any, List, Tuple

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding

from stagebench.adapters.jax.base import DeviceBatch, JaxTrainer
from stagebench.adapters.jax.lower import Array, Key
from stagebench.adapters.jax.net import Net, Tensors
from stagebench.adapters.jax.optimisers import Solver
from stagebench.adapters.jax.programs import ALL, AXIS, OWN, Program, Programs
from stagebench.suite.worker.trainer import Arrays, Notes


class MeshPrograms(Programs):
    """Programs over all devices, a step without its exchange and the exchange alone among them."""

    def __init__(self, net: Net, solver: Solver, devices: List[Any]) -> None:
        self._mesh = Mesh(np.array(devices), (AXIS,))
        super().__init__(net, solver, devices)
        self.step_alone = self.step_program(lambda gradients: gradients)
        self.communicate = self.program(self.mean, (OWN,), OWN)

    def program(self, body: Program, inputs: Any, outputs: Any, donate: Tuple[int, ...] = ()) -> Program:
        # check_vma=False: each device keeps its own gradients of replicated parameters until they are averaged.
        body = jax.shard_map(body, mesh=self._mesh, in_specs=inputs, out_specs=outputs, check_vma=False)
        return super().program(body, inputs, outputs, donate)

    def shardings(self, devices: List[Any]) -> Tuple[Any, Any]:
        """Return replication on every device, and a cut along the first axis."""
        return NamedSharding(self._mesh, ALL), NamedSharding(self._mesh, OWN)

    def mean(self, gradients: Tensors) -> Tensors:
        return jax.lax.pmean(gradients, AXIS)

    def own_key(self, key: Key) -> Key:
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

    def for_every_device(self, stats: Arrays) -> Arrays:
        return {name: np.stack([tensor] * len(self._devices)) for name, tensor in stats.items()}

    def first_device(self, tensor: Array) -> Array:
        """Return the first device's part of a stacked array."""
        return tensor.addressable_data(0)[0]

    def communicate(self) -> None:
        """Average over the mesh; a second call averages the local gradients again."""
        self._gradients = self.exchanged(self._programs.communicate(self._local))

    def step_alone(self, batch: DeviceBatch) -> None:
        """Step without the mean: every device trains its own copy."""
        # This program has no exchange to wait for, but the wait of `step` must not count as communication.
        self._run(self._programs.step_alone, batch)

    def notes(self) -> Notes:
        found = super().notes()
        return dict(found, step=f"{found['step']}, shard_map over a mesh")

    def exchanged(self, results: Any) -> Any:
        """Wait for a program on several CPU devices, before the next one with an exchange starts.

        XLA has as many threads as devices; a device that goes ahead into the next exchange takes the thread that
        another device needs to join the last, and after 40 s XLA aborts the process (seen with jaxlib 0.10.2).
        """
        alone = self.setup.device != "cpu" or self.setup.devices == 1
        return results if alone else jax.block_until_ready(results)
