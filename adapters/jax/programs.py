"""The compiled programs of a training: one for the whole step, one for each stage; here `jax.jit` on one device."""

from typing import Any, Callable, List, Tuple

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as Spec
from jax.sharding import SingleDeviceSharding

from adapters.jax.net import Net
from adapters.jax.solvers import Solver

AXIS = "devices"
ALL, OWN = Spec(), Spec(AXIS)  # on a mesh: replicated; cut along the first axis, every device's own
STATE = (ALL, ALL, OWN, ALL)  # parameters, the solver's moments, running statistics, key
DONATED = (0, 1, 2, 3)


class Programs:
    """Jitted functions over the state; nothing is compiled before it is called.

    Bodies are written as one device sees them. What a mesh of devices does otherwise (`strategies/pmap.py`) are the
    methods below them.
    """

    def __init__(self, net: Net, solver: Solver, devices: List[Any]) -> None:
        self._net, self._moved = net, solver.moved
        self.everywhere, self.split = self.shardings(devices)
        self.step = self.step_program(self.mean)
        self.forward = self.program(self._forward, (ALL, OWN, ALL, OWN), (OWN, OWN, OWN, ALL, OWN), donate=(1, 2))
        self.backward = self.program(self._backward, (OWN,), OWN)
        self.predict = self.program(self._predict, (ALL, OWN, OWN), OWN)
        self.update = self.program(self._update, (ALL, ALL, OWN), (ALL, ALL), donate=(0, 1))

    def step_program(self, exchange: Callable[[Any], Any]) -> Any:
        """A whole step, whose gradients are exchanged so."""
        return self.program(lambda *args: self._step(exchange, *args), (*STATE, OWN), (*STATE, OWN), donate=DONATED)

    # --- bodies -------------------------------------------------------------

    def _step(self, exchange: Callable[[Any], Any], params: Any, moments: Any, stats: Any, key: Any, batch: Any) -> Any:
        key, own = self._keys(key)
        compute = jax.value_and_grad(self._net.loss, has_aux=True)
        (loss, (_, stats)), gradients = compute(params, self.bare(stats), batch, own)
        params, moments = self._moved(params, moments, exchange(gradients))
        return params, moments, self.stacked(stats), key, self.stacked(loss)

    def _forward(self, params: Any, stats: Any, key: Any, batch: Any) -> Any:
        key, own = self._keys(key)
        bare = self.bare(stats)
        loss, pull, (logits, stats) = jax.vjp(lambda p: self._net.loss(p, bare, batch, own), params, has_aux=True)
        return self.stacked(loss), logits, self.stacked(stats), key, self.stacked(pull)

    def _backward(self, pull: Any) -> Any:
        (gradients,) = self.bare(pull)(jnp.ones(()))
        return self.stacked(gradients)

    def _update(self, params: Any, moments: Any, gradients: Any) -> Tuple[Any, Any]:
        return self._moved(params, moments, self.bare(gradients))

    def _predict(self, params: Any, stats: Any, images: Any) -> Any:
        heads, _ = self._net.forward(params, self.bare(stats), images, None)
        return heads[-1]

    def _keys(self, key: Any) -> Tuple[Any, Any]:
        """The next step's key, and this step's of this device; the same one where nothing draws numbers."""
        if not self._net.drops:
            return key, key
        key, own = jax.random.split(key)
        return key, self.own_key(own)

    # --- what a mesh does otherwise -----------------------------------------

    def program(self, body: Callable[..., Any], inputs: Any, outputs: Any, donate: Tuple[int, ...] = ()) -> Any:
        """The body compiled; `inputs` and `outputs` say what is replicated and what every device's own."""
        return jax.jit(body, donate_argnums=donate)

    def shardings(self, devices: List[Any]) -> Tuple[Any, Any]:
        """Where what is replicated lies, and what is cut."""
        sharding = SingleDeviceSharding(devices[0])
        return sharding, sharding

    def mean(self, gradients: Any) -> Any:
        return gradients

    def own_key(self, key: Any) -> Any:
        return key

    def stacked(self, tree: Any) -> Any:
        """What is every device's own, as it leaves a body."""
        return tree

    def bare(self, tree: Any) -> Any:
        return tree
