"""The compiled programs of a training: one for the whole step, one for each stage.

On one device they are plain `jax.jit`. On several, each is a `jax.shard_map` over a mesh of one axis: the body is one
device's own, parameters are replicated, the batch is cut along its samples, and what is every device's own (running
statistics, loss, what the backward needs, gradients before the exchange) is stacked along a first axis that the mesh
cuts. (`jax.pmap`, which gave this strategy its name, is built on shard_map since JAX 0.8 and no longer recommended.)

Oldest Python: 3.11, JAX's own.
"""

from typing import Any, Callable, List, Tuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as Spec

from adapters.jax.net import Net
from adapters.jax.solvers import Solver

AXIS = "devices"
ALL, OWN = Spec(), Spec(AXIS)  # replicated; cut along the first axis


class Programs:
    """Jitted functions over the state (parameters, the solver's moments, running statistics, key)."""

    def __init__(self, net: Net, solver: Solver, devices: List[Any], mesh: bool) -> None:
        """With `mesh`, over all devices; else on the first one. Nothing is compiled before it is called."""
        self._net, self._moved = net, solver.moved
        self._mesh = Mesh(np.array(devices), (AXIS,)) if mesh else None
        self.everywhere = self._sharding(ALL, devices)
        self.split = self._sharding(OWN, devices)
        state, donated = (ALL, ALL, OWN, ALL), (0, 1, 2, 3)
        whole = (*state, OWN), (*state, OWN)
        self.step = self._program(lambda *args: self._step(True, *args), *whole, donate=donated)
        self.step_alone = self._program(lambda *args: self._step(False, *args), *whole, donate=donated)
        self.forward = self._program(self._forward, (ALL, OWN, ALL, OWN), (OWN, OWN, OWN, ALL, OWN), donate=(1, 2))
        self.backward = self._program(self._backward, (OWN,), OWN)
        self.communicate = self._program(self._communicate, (OWN,), OWN)
        self.predict = self._program(self._predict, (ALL, OWN, OWN), OWN)
        self.update = self._program(self._update, (ALL, ALL, OWN), (ALL, ALL), donate=(0, 1))

    # --- bodies, each as one device sees it ---------------------------------------

    def _step(self, exchange: bool, params: Any, moments: Any, stats: Any, key: Any, batch: Any) -> Any:
        key, own = self._keys(key)
        compute = jax.value_and_grad(self._net.loss, has_aux=True)
        (loss, (_, stats)), gradients = compute(params, self._bare(stats), batch, own)
        if exchange and self._mesh is not None:
            gradients = jax.lax.pmean(gradients, AXIS)
        params, moments = self._moved(params, moments, gradients)
        return params, moments, self._stacked(stats), key, self._stacked(loss)

    def _forward(self, params: Any, stats: Any, key: Any, batch: Any) -> Any:
        key, own = self._keys(key)
        bare = self._bare(stats)
        loss, pull, (logits, stats) = jax.vjp(lambda p: self._net.loss(p, bare, batch, own), params, has_aux=True)
        return self._stacked(loss), logits, self._stacked(stats), key, self._stacked(pull)

    def _backward(self, pull: Any) -> Any:
        pull = self._bare(pull)
        (gradients,) = pull(jnp.ones(()))
        return self._stacked(gradients)

    def _communicate(self, gradients: Any) -> Any:
        return jax.lax.pmean(gradients, AXIS)

    def _update(self, params: Any, moments: Any, gradients: Any) -> Tuple[Any, Any]:
        return self._moved(params, moments, self._bare(gradients))

    def _predict(self, params: Any, stats: Any, images: Any) -> Any:
        heads, _ = self._net.forward(params, self._bare(stats), images, None)
        return heads[-1]

    # --- their parts ------------------------------------------------------------

    def _keys(self, key: Any) -> Tuple[Any, Any]:
        """The next step's key, and this step's of this device; the same one where nothing draws numbers."""
        if not self._net.drops:
            return key, key
        key, own = jax.random.split(key)
        return key, own if self._mesh is None else jax.random.fold_in(own, jax.lax.axis_index(AXIS))

    def _stacked(self, tree: Any) -> Any:
        return tree if self._mesh is None else jax.tree.map(lambda leaf: leaf[None], tree)

    def _bare(self, tree: Any) -> Any:
        return tree if self._mesh is None else jax.tree.map(lambda leaf: leaf[0], tree)

    def _program(self, body: Callable[..., Any], inputs: Any, outputs: Any, donate: Tuple[int, ...] = ()) -> Any:
        if self._mesh is not None:
            # check_vma=False: gradients of replicated parameters stay every device's own until we average them.
            body = jax.shard_map(body, mesh=self._mesh, in_specs=inputs, out_specs=outputs, check_vma=False)
        return jax.jit(body, donate_argnums=donate)

    def _sharding(self, spec: Any, devices: List[Any]) -> Any:
        return SingleDeviceSharding(devices[0]) if self._mesh is None else NamedSharding(self._mesh, spec)
