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
        self._net, self._solver = net, solver
        self.everywhere, self.split = self.shardings(devices)
        self.step = self.step_program(self.mean)
        self.forward = self.program(self._forward, (ALL, OWN, ALL, OWN), (OWN, OWN, OWN, ALL, OWN), donate=(1, 2))
        self.backward = self.program(self._backward, (OWN, ALL), OWN)
        self.predict = self.program(self._predict, (ALL, OWN, OWN), OWN)
        self.update = self.program(self._update, (ALL, ALL, OWN), (ALL, ALL), donate=(0, 1))
        self.arrange = self.program(self._arrange, (OWN,), OWN)

    def step_program(self, exchange: Callable[[Any], Any]) -> Any:
        """A whole step, whose gradients are exchanged so."""
        return self.program(lambda *args: self._step(exchange, *args), (*STATE, OWN), (*STATE, OWN), donate=DONATED)

    # --- bodies -------------------------------------------------------------

    def _step(self, exchange: Callable[[Any], Any], params: Any, moments: Any, stats: Any, key: Any, batch: Any) -> Any:
        key, own = self._keys(key)
        scale = self._solver.scale(moments)
        compute = jax.value_and_grad(lambda *args: self._scaled(scale, *args), has_aux=True)
        (_, (loss, stats)), gradients = compute(params, self.bare(stats), batch, own)
        params, moments = self._solver.moved(params, moments, exchange(unscaled(gradients, scale)))
        return params, moments, self.stacked(stats), key, self.stacked(loss)

    def _forward(self, params: Any, stats: Any, key: Any, batch: Any) -> Any:
        key, own = self._keys(key)
        bare = self.bare(stats)
        loss, pull, (logits, stats) = jax.vjp(lambda p: self._net.loss(p, bare, batch, own), params, has_aux=True)
        return self.stacked(loss), logits, self.stacked(stats), key, self.stacked(pull)

    def _scaled(self, scale: Any, params: Any, stats: Any, batch: Any, key: Any) -> Tuple[Any, Tuple[Any, Any]]:
        """(what is differentiated, (the loss, new running statistics))."""
        loss, (_, stats) = self._net.loss(params, stats, batch, key)
        return loss if scale is None else loss * scale, (loss, stats)

    def _backward(self, pull: Any, scale: Any) -> Any:
        (gradients,) = self.bare(pull)(jnp.ones(()) if scale is None else scale)
        return self.stacked(unscaled(gradients, scale))

    def _update(self, params: Any, moments: Any, gradients: Any) -> Tuple[Any, Any]:
        return self._solver.moved(params, moments, self.bare(gradients))

    def _arrange(self, images: Any) -> Any:
        """Channels last, in the network's type."""
        return jnp.transpose(images, (0, 2, 3, 1)).astype(self._net.ways.arithmetic.stored)

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


def unscaled(gradients: Any, scale: Any) -> Any:
    """Gradients of the loss itself."""
    return gradients if scale is None else jax.tree.map(lambda gradient: gradient / scale, gradients)
