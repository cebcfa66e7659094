"""TensorFlow's ParameterServerStrategy with its ClusterCoordinator: the strategy `coordinator`.

Only this process has a program: it reads and splits the batches and schedules functions, which free workers run. The
weights are on parameter servers. Workers and servers are separate programs (`server`); TensorFlow calls this process
the chief.
"""

import gc
from collections import deque
from typing import Any, Deque, Dict, List

import numpy as np
import tensorflow as tf

from adapters.tensorflow import machine
from adapters.tensorflow.base import TensorFlowTrainer, concatenated, split
from adapters.tensorflow.exchange import Member
from adapters.tensorflow.parameter_store import described
from adapters.tensorflow.scheduled import Scheduled
from suite.worker.contract import Batch, LayerTimes, Setup, Unsupported
from suite.worker.staleness import Staleness


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
        self._scheduled: Any = None
        self._in_flight: Deque[List[Any]] = deque()
        self._losses = self._logits = ()
        self._turns = 0
        self._staleness = Staleness()
        gc.collect()

    def make_variables(self, weights: Dict[str, np.ndarray]) -> None:
        self._scheduled = Scheduled(self, weights, self._distribution, self._servers)

    def close(self) -> None:
        """Free the coordinator, whose threads then end; the launcher ends workers and servers."""
        super().close()
        self._coordinator = self._distribution = None
        gc.collect()

    # --- training -------------------------------------------------------------

    def to_device(self, batch: Any) -> Batch:
        """Make an equal contiguous share for every worker, in this process: its worker is not known yet."""
        with tf.device(self._here):
            own = [(self.placed(share.images), tf.identity(share.labels)) for share in split(batch, self.setup.devices)]
        images, labels = zip(*own)
        return Batch(images, labels)

    def forward(self, batch: Batch) -> None:
        """Run pull, forward, backward and push, a worker's one function; the gradients stay on the servers."""
        self._scheduled.hold()
        found = self._all(self._scheduled.forward, batch)
        self._losses, self._logits = zip(*found)

    def backward(self) -> None:
        """No-op: `forward` already ran the backward pass."""

    def update(self) -> None:
        for function in self._scheduled.update:
            self._coordinator.schedule(function)
        self._coordinator.join()

    def step(self, batch: Batch) -> None:
        self._in_flight.append(self._schedule([self._scheduled.step] * len(batch.labels), batch))
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

    def step_alone(self, batch: Batch) -> None:
        raise Unsupported("coordinator cannot leave its exchange out")

    def begin_training(self) -> None:
        self._staleness.begin()

    def _all(self, functions: List[Any], batch: Batch) -> List[Any]:
        """Return the results of the shares' functions, in the shares' order."""
        found = self._schedule(functions, batch)
        self._coordinator.join()
        return [each.fetch() for each in found]

    def _schedule(self, functions: List[Any], batch: Batch) -> List[Any]:
        """Return the shares' functions, scheduled."""
        found = []
        for function, images, labels in zip(functions, batch.images, batch.labels):
            self._turns += 1
            turn = tf.constant(self._turns, tf.int64)
            found.append(self._coordinator.schedule(function, args=(images, labels, turn)))
        return found

    # --- evidence -----------------------------------------------------------

    def loss(self) -> float:
        self.synchronize()
        return super().loss()

    def predict(self, batch: Batch) -> np.ndarray:
        found = [self._coordinator.schedule(self._scheduled.predict, args=(images,)) for images in batch.images]
        self._coordinator.join()
        return concatenated([each.fetch() for each in found])

    def native_gradients(self) -> List[np.ndarray]:
        """Return the mean over the shares' gradients on the servers."""
        held: List[np.ndarray] = self._scheduled.gradients()
        return held

    def parameters(self) -> Dict[str, np.ndarray]:
        self.synchronize()
        return self.canonical(self._scheduled.variables.items())

    def parameter_count(self) -> int:
        return sum(int(np.prod(own.shape)) for own in self._scheduled.variables.values() if own.trainable)

    def heads(self, images: Any) -> List[Any]:
        net = self._scheduled.net(self._scheduled.variables, self.style, tf.constant(0, tf.int64))
        found: List[Any] = net.heads(images)
        return found

    def layer_times(self, batch: Batch) -> List[LayerTimes]:
        raise Unsupported("a worker runs forward and backward as one function")

    def notes(self) -> Dict[str, Any]:
        self.synchronize()
        notes = dict(super().notes(), servers=self._servers, exchange=EXCHANGE, split=SPLIT, h2d=H2D)
        notes["weights"] = "on the servers %s" % ("by size" if self.setup.tuned else "in turn")
        notes["optimiser"] = described(self.setup.optimiser)
        if self.graph.buffers and self.setup.devices > 1:
            notes["running_statistics"] = STATISTICS
        return dict(notes, **self._staleness.notes())


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
