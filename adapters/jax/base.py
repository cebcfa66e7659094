"""The trainer of JAX: jitted functions of a training's state, with donated buffers; here on one device."""

from typing import Any, List, Optional

import jax
import jax.numpy as jnp
import numpy as np

from stagebench.adapters.jax import machine
from stagebench.adapters.jax.kernel_times import kernel_times
from stagebench.adapters.jax.lower import Array
from stagebench.adapters.jax.net import JittedNodes, Net, Tensors, macs_of
from stagebench.adapters.jax.optimisers import Scaled, Solver, solver_of
from stagebench.adapters.jax.programs import Program, Programs, State
from stagebench.suite.worker.contract import Batch, Joined, LayerTimes, Setup, Unsupported, dropout_seed
from stagebench.suite.worker.layers import node_by_node
from stagebench.suite.worker.messages import Kernels
from stagebench.suite.worker.step_ends import StepEnds
from stagebench.suite.worker.trainer import Arrays, Iteration, Notes, Trainer
from stagebench.workloads.graph import Graph

DeviceBatch = Batch  # jax.Array, as `stagebench.adapters.jax.net.Batch`; cut over devices
Mark = Any  # of `StepEnds`

# Steps in flight: if the host waits between two steps of a small network, each takes 1 to 2 % longer on two cores.
# But each step in flight keeps its batch.
MIN_STEPS, MAX_STEPS, KEPT_BYTES = 2, 32, 64 << 20


class JaxTrainer(machine.OnDevices, Trainer):
    """Trains on one device; another strategy says how its functions are compiled."""

    transport = "none"

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._device_arranges = setup.device != "cpu"  # a GPU transposes images at once, and its host has other work
        self._state: Any = None  # a `State`
        self._forget()
        self._placed: Optional[DeviceBatch] = None
        self._ends = step_ends(MIN_STEPS)

    # --- life ---------------------------------------------------------------

    def start(self) -> Joined:
        self.open_devices()
        return Joined(0, 1, self.transport, machine.versions(self._devices), len(self._devices))

    def build(self, graph: Graph, weights: Arrays) -> None:
        self._state = None
        self._forget()
        batch_bytes = self.setup.batch * int(np.prod(graph.input_shape)) * self._dtype.itemsize
        self._ends = step_ends(min(MAX_STEPS, max(MIN_STEPS, KEPT_BYTES // batch_bytes)))
        self._net = Net(graph, self._choices)
        rule = solver_of(self.setup.optimiser)
        self._solver = Scaled(rule) if self._choices.arithmetic.scaled else rule
        self._programs = self.programs(self._solver)
        params = {name: self._net.native(name, tensor).astype(self._dtype) for name, tensor in weights.items()}
        stats = {name: tensor.astype(self._dtype) for name, tensor in self._net.statistics().items()}
        seed = dropout_seed(self.setup.seed, 0)  # one process: its devices' keys are made from this one
        key = jax.random.key(seed, impl="rbg" if self.setup.tuned else "threefry2x32")
        state = State(params, self._solver.zeros(params), self.for_every_device(stats), key)
        everywhere = self._programs.everywhere
        self._state = jax.device_put(state, State(everywhere, everywhere, self._programs.split, everywhere))

    def _forget(self) -> None:
        """Forget the results of iterations."""
        self._pull: Any = None  # a vector-Jacobian product
        self._local: Optional[Tensors] = None  # each device's own gradients
        self._gradients: Any = None  # of canonical names
        self._loss: Any = None
        self._logits: Any = None

    def programs(self, solver: Solver) -> Programs:
        return Programs(self._net, solver, self._devices)

    def for_every_device(self, stats: Arrays) -> Arrays:
        """Return the first running statistics, one set per device."""
        return stats

    def first_device(self, tensor: Array) -> Array:
        """Return the first device's part of a result that each device has."""
        return tensor

    def exchanged(self, results: Any) -> Any:
        """Return the results of a program with an exchange, of which there is none on one device."""
        return results

    def synchronize(self) -> None:
        self._ends.settle()
        jax.block_until_ready((self._state, self._placed, self._pull, self._local, self._gradients, self._loss))

    # --- data ---------------------------------------------------------------

    def to_device(self, batch: Batch) -> DeviceBatch:
        """Place images, channels last, or tokens, and labels: each device gets its samples."""
        inputs = np.asarray(batch.inputs)
        by_device = self._device_arranges and inputs.ndim == 4
        if inputs.ndim == 2:
            inputs = inputs.astype(np.int32)
        elif not by_device:
            inputs = np.ascontiguousarray(inputs.transpose(0, 2, 3, 1), self._dtype)
        inputs, labels = jax.device_put((inputs, np.asarray(batch.labels, np.int32)), self._programs.split)
        self._placed = DeviceBatch(self._programs.arrange(inputs) if by_device else inputs, labels)
        return self._placed

    # --- the staged iteration -----------------------------------------------

    def forward(self, batch: DeviceBatch) -> None:
        """Run a program that returns what the backward needs."""
        state = self._state
        made = self._programs.forward(state.params, state.stats, state.key, tuple(batch))
        self._loss, self._logits, stats, key, self._pull = made
        self._state = state._replace(stats=stats, key=key)

    def backward(self) -> None:
        """Compute every device's own gradients, and free what the forward kept."""
        scale = self._solver.scale(self._state.moments)
        self._local = self._gradients = self._programs.backward(self._pull, scale)
        self._pull = None

    def update(self) -> None:
        params, moments = self._programs.update(self._state.params, self._state.moments, self._gradients)
        self._state = self._state._replace(params=params, moments=moments)
        self._local = self._gradients = None

    # --- the native iteration -----------------------------------------------

    def step(self, batch: DeviceBatch) -> None:
        """Run one program, which reuses the state's buffers."""
        self._run(self._programs.step, batch)

    def _run(self, program: Program, batch: DeviceBatch) -> None:
        *state, self._loss = self.exchanged(program(*self._state, tuple(batch)))
        self._state = State(*state)
        self._ends.asked(self._loss)

    def set_learning_rate(self, rate: float) -> None:
        number = jax.device_put(np.asarray(rate, self._dtype), self._programs.everywhere)
        self._state = self._state._replace(moments=self._solver.with_rate(self._state.moments, number))

    # --- evidence -----------------------------------------------------------

    def loss(self) -> float:
        return float(jnp.mean(self._loss))

    def logits(self) -> np.ndarray:
        return np.asarray(self._logits, np.float32)

    def predict(self, batch: DeviceBatch) -> np.ndarray:
        """Return all samples' logits, in the devices' order."""
        logits = self._programs.predict(self._state.params, self._state.stats, batch.inputs)
        return np.asarray(logits, np.float32)

    def gradients(self) -> Arrays:
        """Return the first device's; after `communicate` they are equal on all devices."""
        canonical = self._net.canonical
        return {name: canonical(name, self.first_device(tensor)) for name, tensor in self._gradients.items()}

    def parameters(self) -> Arrays:
        canonical = self._net.canonical
        found = {name: canonical(name, tensor.addressable_data(0)) for name, tensor in self._state.params.items()}
        found.update((name, canonical(name, self.first_device(tensor))) for name, tensor in self._state.stats.items())
        return found

    def parameter_count(self) -> int:
        """Count the tree that is differentiated."""
        return sum(int(leaf.size) for leaf in jax.tree.leaves(self._state.params))

    def macs(self) -> int:
        """Count on the jaxpr of one sample's forward pass."""
        shape, state = self._net.graph.input_shape, self._state
        if self._net.graph.vocabulary:
            sample = jax.ShapeDtypeStruct((1, *shape), np.int32)
        else:
            sample = jax.ShapeDtypeStruct((1, *shape[1:], shape[0]), self._dtype)
        bare = {name: jax.ShapeDtypeStruct(tensor.shape[-1:], tensor.dtype) for name, tensor in state.stats.items()}
        return macs_of(jax.make_jaxpr(self._net.forward)(state.params, bare, sample, state.key).jaxpr)

    # --- what the measuring loop needs ----------------------------------------

    def mark(self) -> Mark:
        """Mark the end of the last step: JAX has no device events."""
        return self._ends.mark()

    def layer_times(self, batch: DeviceBatch) -> List[LayerTimes]:
        """Time layers on the first device. XLA does not report when a gradient is complete."""
        if self._choices.segments > 1:
            raise Unsupported("with checkpoint_segments the backward computes layers again")
        here = {name: tensor.addressable_data(0) for name, tensor in self._state.params.items()}
        nodes = JittedNodes(self._net, here, self._state.key.addressable_data(0))
        inputs, labels = (part.addressable_data(0) for part in batch)
        return node_by_node(self, self._net.graph, nodes, inputs, labels, in_order=False)

    def kernel_times(self, iteration: Iteration, trace: str) -> Kernels:
        """Profile all devices together."""
        return kernel_times(self, iteration, trace)

    def notes(self) -> Notes:
        notes = super().notes()
        if "reader" in notes:
            notes["reader"] += " (JAX has no reader of its own)"
        if self.setup.device != "cpu":
            notes["input"] = "copied as it is, images transposed on the device"
        notes["lowering"] += f", {'rbg' if self.setup.tuned else 'threefry'} keys"
        notes["step"] = "one jitted function, state donated"
        scale = None if self._state is None else self._solver.scale(self._state.moments)
        if scale is not None:
            notes["precision"] += f", now {float(scale):g}"
        behind = self._ends.behind
        notes["marks"] = (
            f"noted by the host, at most {behind} steps behind: JAX has no device events; while it waits, "
            f"{behind + 1 - max(1, behind // 2)} more steps are under way"
        )
        notes["stages"] = "the host's clock; it waits for the device at every border"
        return notes


def step_ends(behind: int) -> StepEnds:
    """Return the clock of steps, with at most `behind` in flight."""
    return StepEnds(behind, jax.block_until_ready, lambda loss: loss.is_ready())
