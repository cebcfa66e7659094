"""The compiled programs of a training: one for the whole step, one for each stage; here `jax.jit` on one device."""

from typing import Any, Callable, List, NamedTuple, Optional, Tuple

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as Spec
from jax.sharding import SingleDeviceSharding

from stagebench.adapters.jax.lower import Array, Key
from stagebench.adapters.jax.net import Batch, Logits, Net, Tensors
from stagebench.adapters.jax.optimisers import Moments, Solver

# Trees of jax.Array, as one device sees them; a mesh stacks each device's along a first axis (`stacked`, `bare`).
Stats = Tensors  # running statistics, (channels,)
Loss = Array  # ()
Scale = Optional[Array]  # (): the loss is multiplied by it before its gradients are taken
Program = Callable[..., Any]


class State(NamedTuple):
    """A training's state, donated to its programs."""

    params: Tensors
    moments: Moments
    stats: Stats
    key: Key


AXIS = "devices"
ALL, OWN = Spec(), Spec(AXIS)  # on a mesh: replicated; cut along the first axis, one part per device
STATE = (ALL, ALL, OWN, ALL)
DONATED = (0, 1, 2, 3)


class Programs:
    """Jitted functions over the state; each is compiled at its first call.

    Bodies are written for one device. The methods below them are what a mesh of devices overrides
    (`strategies/pmap.py`).
    """

    def __init__(self, net: Net, solver: Solver, devices: List[Any]) -> None:
        self._net = net
        self._solver = solver
        self.everywhere, self.split = self.shardings(devices)
        self.step = self.step_program(self.mean)
        self.forward = self.program(self._forward, (ALL, OWN, ALL, OWN), (OWN, OWN, OWN, ALL, OWN), donate=(1, 2))
        self.backward = self.program(self._backward, (OWN, ALL), OWN)
        self.predict = self.program(self._predict, (ALL, OWN, OWN), OWN)
        self.update = self.program(self._update, (ALL, ALL, OWN), (ALL, ALL), donate=(0, 1))
        self.arrange = self.program(net.arrange, (OWN,), OWN)

    def step_program(self, exchange: Callable[[Tensors], Tensors]) -> Program:
        """Compile a whole step whose gradients go through `exchange`: (*State, Batch) -> (*State, Loss)."""

        def step(params: Tensors, moments: Moments, stats: Stats, key: Key, batch: Batch) -> Tuple[Any, ...]:
            key, own_key = self._keys(key)
            scale = self._solver.scale(moments)

            def scaled_loss(params: Tensors) -> Tuple[Loss, Tuple[Loss, Stats]]:
                loss, (_, moved) = self._net.loss(params, self.bare(stats), batch, own_key)
                return loss if scale is None else loss * scale, (loss, moved)

            (_, (loss, moved)), gradients = jax.value_and_grad(scaled_loss, has_aux=True)(params)
            params, moments = self._solver.moved(params, moments, exchange(unscaled(gradients, scale)))
            return params, moments, self.stacked(moved), key, self.stacked(loss)

        return self.program(step, (*STATE, OWN), (*STATE, OWN), donate=DONATED)

    # --- bodies -------------------------------------------------------------

    def _forward(self, params: Tensors, stats: Stats, key: Key, batch: Batch) -> Tuple[Loss, Logits, Stats, Key, Any]:
        """The last result is the vector-Jacobian product: a pytree that holds what the backward needs."""
        key, own_key = self._keys(key)
        bare = self.bare(stats)
        loss, pull, (logits, stats) = jax.vjp(lambda p: self._net.loss(p, bare, batch, own_key), params, has_aux=True)
        return self.stacked(loss), logits, self.stacked(stats), key, self.stacked(pull)

    def _backward(self, pull: Any, scale: Scale) -> Tensors:
        (gradients,) = self.bare(pull)(jnp.ones(()) if scale is None else scale)
        return self.stacked(unscaled(gradients, scale))  # type: ignore[no-any-return]

    def _update(self, params: Tensors, moments: Moments, gradients: Tensors) -> Tuple[Tensors, Moments]:
        return self._solver.moved(params, moments, self.bare(gradients))

    def _predict(self, params: Tensors, stats: Stats, inputs: Array) -> Logits:
        heads, _ = self._net.forward(params, self.bare(stats), inputs, None)
        return heads[-1]

    def _keys(self, key: Key) -> Tuple[Key, Key]:
        """Return the next step's key and this device's for this step; `key` itself if no layer draws numbers."""
        if not self._net.draws_random:
            return key, key
        key, own_key = jax.random.split(key)
        return key, self.own_key(own_key)

    # --- what a mesh overrides ----------------------------------------------

    def program(self, body: Program, inputs: Any, outputs: Any, donate: Tuple[int, ...] = ()) -> Program:
        """Compile a body; `inputs` and `outputs` are ALL or OWN for each argument and result."""
        return jax.jit(body, donate_argnums=donate)  # type: ignore[no-any-return]

    def shardings(self, devices: List[Any]) -> Tuple[Any, Any]:
        """Return the shardings of ALL and of OWN."""
        sharding = SingleDeviceSharding(devices[0])
        return sharding, sharding

    def mean(self, gradients: Tensors) -> Tensors:
        return gradients

    def own_key(self, key: Key) -> Key:
        return key

    def stacked(self, tree: Any) -> Any:
        """Add to each device's own results the axis that joins the devices, if there is one."""
        return tree

    def bare(self, tree: Any) -> Any:
        """Undo `stacked`."""
        return tree


def unscaled(gradients: Tensors, scale: Scale) -> Tensors:
    """Return the gradients of the loss itself."""
    return gradients if scale is None else {name: gradient / scale for name, gradient in gradients.items()}
