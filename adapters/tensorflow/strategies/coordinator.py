"""TensorFlow's ParameterServerStrategy with its ClusterCoordinator: the strategy `coordinator`.

Only this process has a program: it reads and splits the batches and schedules functions, which free workers run. The
weights are on parameter servers. Workers and servers are separate programs (`server`); TensorFlow calls this process
the chief.

A step's function pulls the weights, computes, and hands its gradients to the servers, which apply them at once. The
staged pass has the same in two functions: the first leaves its gradients on the servers, so that they travel once, as
in a step; the second applies them.
"""

import gc
from collections import deque
from typing import Any, Callable, Deque, Dict, List, Tuple

import numpy as np
import tensorflow as tf

from stagebench.adapters.tensorflow import machine
from stagebench.adapters.tensorflow.base import DeviceBatch, TensorFlowTrainer, concatenated, split
from stagebench.adapters.tensorflow.comm import Member
from stagebench.adapters.tensorflow.lower import Inputs, Labels, Tensor, Variable
from stagebench.adapters.tensorflow.net import COUNT, Net, compiled
from stagebench.adapters.tensorflow.optimisers import Tensors, states, updating, with_end
from stagebench.adapters.tensorflow.strategies.parameter_server import described, server_of_each
from stagebench.suite.worker.contract import LayerTimes, Setup, Unsupported
from stagebench.suite.worker.staleness import Staleness
from stagebench.suite.worker.trainer import Arrays, Notes


class Coordinator(TensorFlowTrainer):
    """A step schedules a function for every share of the batch; later steps do not wait for it, up to `ahead`."""

    ahead = 4  # a worker that is several times as slow as the others keeps none of them idle
    transport = "grpc"
    xla_when_tuned = "off"  # the servers update

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._servers = int(setup.knobs["servers"])
        self._distribution: Any = None  # of tf.distribute
        self._coordinator: Any = None

    # --- life ---------------------------------------------------------------

    def prepare(self) -> List[str]:
        """Prepare this process; its workers are other processes."""
        return machine.prepare(self.setup._replace(devices=1))

    def join(self) -> None:
        """Meet workers and servers, and connect to them; this process's own device computes nothing."""
        spec = Member("chief", 0, (1, self.setup.devices, self._servers), self.setup.threads).spec
        resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
            tf.train.ClusterSpec(spec), task_type="chief", task_id=0, rpc_layer="grpc"
        )
        self._distribution = tf.distribute.ParameterServerStrategy(resolver)
        self._coordinator = tf.distribute.coordinator.ClusterCoordinator(self._distribution)
        (self._here,) = self.devices
        connected = [each.name for each in tf.config.list_logical_devices("CPU")]
        self.devices = [name for name in connected if "/job:worker/" in name]

    def release(self) -> None:
        """Free functions and variables, which are in reference cycles."""
        self.variables: Dict[str, Variable] = {}  # by canonical name, on the servers
        self._weights: Tensors = []  # the trained ones, in the graph's order
        self._held: List[Tensors] = []  # variables for each share's gradients: only the staged pass stores them
        self._finished: Any = None  # counts updates
        self._apply: Any = None  # a function of a share's gradients
        self._step = self._predict = None  # type: Any
        self._forward: List[Any] = []  # a function per share, as `_update`
        self._update: List[Any] = []
        self._in_flight: Deque[List[Any]] = deque()
        self._losses = self._logits = ()
        self._turns = 0
        self._staleness = Staleness()
        gc.collect()

    def make_variables(self, weights: Arrays) -> None:
        """Place variables on servers in turn, as TensorFlow does, or if tuned by size; trace at the first calls."""
        zero, starts = np.zeros((), np.int64), list(self.first_values(weights))
        with self._distribution.scope():
            counts = [self._variable(zero, False) for _ in range(self._servers)]  # one on each server, in turn
            self._finished = self._variable(zero, False)
        homes: List[Any] = [None] * len(starts)
        if self.setup.tuned:
            loads = [value.nbytes if trainable else 0 for _, value, trainable in starts]
            homes = [counts[server] for server in server_of_each(loads, self._servers)]
        for home, (name, value, trainable) in zip(homes, starts):
            self.variables[name] = self._beside(home, value, trainable)
        self._weights = [self.variables[parameter.name] for parameter in self.graph.parameters]
        self._apply = self._updating(counts)
        self._step, self._predict = compiled(self._whole_step), compiled(self._logits_in_use)
        shares = range(self.setup.devices)
        self._forward = [compiled(self._forward_of(share)) for share in shares]
        self._update = [compiled(self._update_of(share)) for share in shares]

    def close(self) -> None:
        """Free the coordinator, whose threads then end; the launcher ends workers and servers."""
        super().close()
        self._coordinator = self._distribution = None
        gc.collect()

    # --- training -------------------------------------------------------------

    def to_device(self, batch: Any) -> DeviceBatch:
        """Make an equal contiguous share for every worker, in this process: its worker is not known yet."""
        with tf.device(self._here):
            own = [(self.placed(share.inputs), tf.identity(share.labels)) for share in split(batch, self.setup.devices)]
        inputs, labels = zip(*own)
        return DeviceBatch(inputs, labels)

    def forward(self, batch: DeviceBatch) -> None:
        """Run pull, forward, backward and push, a worker's one function; the gradients stay on the servers."""
        if not self._held:
            self._held = [self._zeros() for _ in range(self.setup.devices)]
        results = self._schedule(self._forward, batch)
        self._coordinator.join()
        self._losses, self._logits = zip(*[result.fetch() for result in results])

    def backward(self) -> None:
        """No-op: `forward` already ran the backward pass."""

    def update(self) -> None:
        for function in self._update:
            self._coordinator.schedule(function)
        self._coordinator.join()

    def step(self, batch: DeviceBatch) -> None:
        self._in_flight.append(self._schedule([self._step] * len(batch.labels), batch))
        self._finish(self.ahead)

    def synchronize(self) -> None:
        self._finish(0)

    def _finish(self, left: int) -> None:
        """Wait for the oldest steps until `left` are in flight."""
        while len(self._in_flight) > left:
            found = [share.fetch() for share in self._in_flight.popleft()]
            self._losses = [loss for loss, _ in found]
            for _, others in found:
                self._staleness.missed(int(others))

    def step_alone(self, batch: DeviceBatch) -> None:
        raise Unsupported("coordinator cannot leave its exchange out")

    def begin_training(self) -> None:
        self._staleness.begin()

    def _schedule(self, functions: List[Any], batch: DeviceBatch) -> List[Any]:
        """Return the shares' functions, scheduled."""
        found = []
        for function, inputs, labels in zip(functions, batch.inputs, batch.labels):
            self._turns += 1
            turn = tf.constant(self._turns, tf.int64)
            found.append(self._coordinator.schedule(function, args=(inputs, labels, turn)))
        return found

    # --- evidence -----------------------------------------------------------

    def loss(self) -> float:
        self.synchronize()
        return super().loss()

    def predict(self, batch: DeviceBatch) -> np.ndarray:
        found = [self._coordinator.schedule(self._predict, args=(inputs,)) for inputs in batch.inputs]
        self._coordinator.join()
        return concatenated([each.fetch() for each in found])

    def native_gradients(self) -> List[np.ndarray]:
        """Return the mean over the shares' gradients on the servers."""
        return [sum(each.numpy() for each in own) / self.setup.devices for own in zip(*self._held)]

    def parameters(self) -> Arrays:
        self.synchronize()
        return self.canonical(self.variables.items())

    def parameter_count(self) -> int:
        return sum(int(np.prod(own.shape)) for own in self.variables.values() if own.trainable)

    def heads(self, inputs: Any) -> List[Any]:
        return self._net(self.variables, True, tf.constant(0, tf.int64)).heads(inputs)

    def layer_times(self, batch: DeviceBatch) -> List[LayerTimes]:
        raise Unsupported("a worker runs forward and backward as one function")

    def notes(self) -> Notes:
        self.synchronize()
        notes = dict(super().notes(), servers=self._servers, exchange=EXCHANGE, split=SPLIT, h2d=H2D)
        notes["weights"] = f"on the servers {'by size' if self.setup.tuned else 'in turn'}"
        notes["optimiser"] = described(self.setup.optimiser)
        if self.graph.buffers and self.setup.devices > 1:
            notes["running_statistics"] = STATISTICS
        return dict(notes, **self._staleness.notes())

    # --- the workers' functions -------------------------------------------------

    def _net(self, values: Dict[str, Any], training: bool, turn: Any) -> Net:
        variables = dict(values, **{COUNT: Turn(turn)})
        return Net(self.graph, variables, self.style._replace(training=training), (self.setup.seed, 0))

    def _differentiate(self, inputs: Inputs, labels: Labels, turn: Any) -> Tuple[Tensor, Tensor, Tensors]:
        """Return (loss, the last head's logits, gradients) by the present weights."""
        pulled = [weight.read_value() for weight in self._weights]
        names = [parameter.name for parameter in self.graph.parameters]
        net = self._net(dict(self.variables, **dict(zip(names, pulled))), True, turn)
        with tf.GradientTape() as tape:
            tape.watch(pulled)
            loss, heads = net.loss(inputs, labels)
        return loss, heads[-1], tape.gradient(loss, pulled)

    def _whole_step(self, inputs: Inputs, labels: Labels, turn: Any) -> Tuple[Tensor, Tensor]:
        """Return (loss, number of other updates between this step's pull and its end)."""
        before = self._finished.read_value()
        with tf.control_dependencies([before]):
            loss, _, gradients = self._differentiate(inputs, labels, turn)
        with tf.control_dependencies(self._apply(gradients)):
            now = self._finished.assign_add(1, read_value=True)
        return loss, now - before - 1

    def _forward_of(self, share: int) -> Callable[..., Any]:
        def run(inputs: Inputs, labels: Labels, turn: Any) -> Tuple[Tensor, Tensor]:
            loss, logits, gradients = self._differentiate(inputs, labels, turn)
            for held, gradient in zip(self._held[share], gradients):
                held.assign(gradient)
            return loss, logits

        return run

    def _update_of(self, share: int) -> Callable[[], Tensors]:
        return lambda: self._apply([held.read_value() for held in self._held[share]])

    def _logits_in_use(self, inputs: Inputs) -> Tensor:
        return self._net(self.variables, False, 0).heads(inputs)[-1]

    def _updating(self, counts: Tensors) -> Callable[[Tensors], Tensors]:
        """Return a function that divides a share's gradients by the shares, and updates on the weights' servers."""
        optimiser, shares = self.setup.optimiser, self.setup.devices
        state = [self._zeros() for _ in range(states(optimiser))]
        rules: Dict[str, Tuple[List[int], Any]] = {}  # by server: (its weights' indices, their rule)
        for count in counts:
            places = [place for place, weight in enumerate(self._weights) if weight.device == count.device]
            own = [self._weights[place] for place in places]
            kinds = [[kind[place] for place in places] for kind in state]
            if own:
                rule = updating(optimiser, True, own, kinds, count, locking=True)
                rules[count.device] = places, compiled(with_end(rule))

        def update(gradients: Tensors) -> Tensors:
            ends = []
            for home, (places, rule) in rules.items():
                with tf.device(home):
                    ends.append(rule([gradients[place] / shares for place in places]))
            return ends

        return update

    # --- variables on the servers -------------------------------------------------

    def _variable(self, value: np.ndarray, trainable: bool) -> Variable:
        kind = value.dtype if value.dtype == np.int64 else self.setup.precision
        return tf.Variable(np.asarray(value, kind), trainable=trainable)

    def _beside(self, other: Any, value: np.ndarray, trainable: bool) -> Variable:
        """Make a variable on the server of another; None: on the next server in turn."""
        with self._distribution.scope():
            if other is None:
                return self._variable(value, trainable)
            with self._distribution.extended.colocate_vars_with(other):
                return self._variable(value, trainable)

    def _zeros(self) -> Tensors:
        """Make a variable of each weight's shape on its server."""
        return [self._beside(weight, np.zeros(weight.shape), False) for weight in self._weights]


EXCHANGE = (
    "within each worker's function, after it has taken its samples from the coordinator: weights from the servers, "
    "gradients to them"
)
SPLIT = (
    "the stage forward is all that a worker does but the update: its samples, the weights, forward, backward, its "
    "gradients to the servers; a worker keeps nothing from one function to the next, so they cannot be told apart"
)
H2D = "into the coordinator's memory; on to the workers the samples travel in the stage forward"
STATISTICS = "every worker writes them on the servers from its own samples: of two that meet the last one's stay"


class Turn:
    """Replaces a network's counter of iterations: the coordinator counts, as workers would race."""

    def __init__(self, number: Any) -> None:
        """`number` counts all shares so far; a tensor."""
        self._number = number

    def assign_add(self, _: int) -> None:
        """No-op: the coordinator has counted."""

    def read_value(self) -> Any:
        return self._number
