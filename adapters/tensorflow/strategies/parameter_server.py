"""The strategy `parameter_server`: independent workers, and weights on parameter servers.

Every rank is a worker with its own program, as in between-graph replication: it reads, places and times its own
batches, and waits for no other worker. In TensorFlow's newer strategy, `coordinator`, one process schedules functions
on the workers.

As TensorFlow has it since its first version, every worker has a session on a graph of its own, whose variables lie on
the servers under names that are the same in all graphs. Eager contexts do not share variables on a server.
"""

from typing import Any, Dict, List, Optional, Sequence, Tuple

import numpy as np
import tensorflow as tf

from stagebench.adapters.tensorflow.base import DeviceBatch
from stagebench.adapters.tensorflow.comm import Member
from stagebench.adapters.tensorflow.net import compiled
from stagebench.adapters.tensorflow.optimisers import kernel_name, states, updating, with_end
from stagebench.adapters.tensorflow.replicas import Replicas
from stagebench.suite.worker.contract import Optimiser, Setup
from stagebench.suite.worker.staleness import Staleness
from stagebench.suite.worker.trainer import Arrays, Notes


class ParameterServer(Replicas):
    """The network of one device; its gradients go to the servers, and weights come back."""

    transport = "grpc"
    xla_when_tuned = "off"  # the servers update
    _store: Optional["ParameterStore"] = None
    _gradients: Any = None  # a compiled function

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._servers = int(setup.knobs["servers"])
        self._member: Any = None
        self._staleness = Staleness()

    # --- life ---------------------------------------------------------------

    def join(self) -> None:
        setup = self.setup
        self._member = Member("worker", setup.rank, (0, setup.world, self._servers), setup.threads)
        self.rank, self.world = setup.rank, len(self._member.spec["worker"])

    def release(self) -> None:
        super().release()
        self._gradients = None
        store, self._store = self._store, None
        if store is not None:
            store.close()

    def make_variables(self, weights: Arrays) -> None:
        super().make_variables(weights)
        self._gradients = compiled(self._differentiate[0])
        own = [each.numpy() for each in self.nets[0].trainable]
        self._store = ParameterStore(
            self._member.server.target, (self.rank, self.world), self._servers, self.setup.optimiser, own
        )
        self.maximum(0.0)  # no worker still trains on an earlier network's weights
        if self.setup.rank == 0:
            self._store.write(own)
        self.maximum(0.0)
        self._staleness = Staleness()

    def close(self) -> None:
        """Leave together; the launcher ends the servers."""
        super().close()
        if self._member is not None:
            self._member.ranks.leave()

    def maximum(self, value: float) -> float:
        return float(self._member.ranks.maximum(value))

    # --- training -----------------------------------------------------------

    def communicate(self) -> None:
        """Push the gradients, which stay, and pull the weights."""
        self._exchange(self.local[0])

    def update(self) -> None:
        """No-op: the servers have updated."""
        self.local = None

    def step(self, batch: DeviceBatch) -> None:
        loss, gradients = self._gradients(batch.inputs[0], batch.labels[0])
        self._losses = [loss]
        self._exchange(gradients)

    def step_alone(self, batch: DeviceBatch) -> None:
        """Update the worker's own weights; the next exchange replaces them."""
        self._losses = self._step_alone(*batch.inputs, *batch.labels)

    def _exchange(self, gradients: List[Any]) -> None:
        assert self._store is not None
        weights, now = self._store.exchange([each.numpy() for each in gradients])
        for variable, value in zip(self.nets[0].trainable, weights):
            variable.assign(value)
        self._staleness.exchanged(int(now))

    # --- notes --------------------------------------------------------------

    def waits_for_ranks(self) -> bool:
        return False

    def begin_training(self) -> None:
        self._staleness.begin()

    def joint_steps(self) -> Optional[int]:
        return self._staleness.updates // self.setup.world

    def notes(self) -> Notes:
        notes = dict(super().notes(), servers=self._servers, exchange=EXCHANGE)
        return dict(notes, optimiser=described(self.setup.optimiser), **self._staleness.notes())


EXCHANGE = (
    "by a session beside the network: all gradients to the servers, all weights back, after the backward, not beside it"
)


class ParameterStore:
    """Takes gradients and returns weights; the servers update as each worker's gradients come."""

    def __init__(
        self, target: str, member: Tuple[int, int], servers: int, optimiser: Optimiser, weights: Sequence[np.ndarray]
    ) -> None:
        """`member`: (this worker's number, workers); `weights` give shapes and types, and are not written yet."""
        worker, self._workers = member
        self._device = f"/job:worker/task:{worker}/device:CPU:0"
        self._server_of = server_of_each([each.nbytes for each in weights], servers)
        self._graph = tf.Graph()
        with self._graph.as_default():
            self._make(weights, servers, optimiser)
        filters = ["/job:ps", f"/job:worker/task:{worker}"]  # without it the session would wait for the other workers
        config = tf.compat.v1.ConfigProto(device_filters=filters)
        self._session = tf.compat.v1.Session(target, graph=self._graph, config=config)

    def write(self, weights: Sequence[np.ndarray]) -> None:
        """Write the first weights, and zero moments and counts; one worker does it for all."""
        self._session.run(self._first, dict(zip(self._fed, weights)))

    def read(self) -> List[np.ndarray]:
        weights: List[np.ndarray] = self._session.run(self._weights)
        return weights

    def exchange(self, gradients: Sequence[np.ndarray]) -> Any:
        """Return (weights after the update with these gradients, number of all workers' updates).

        Gradients are means over a worker's batch; the update divides them by the workers.
        """
        return self._session.run((self._pulled, self._counted), dict(zip(self._fed, gradients)))

    def close(self) -> None:
        self._session.close()

    def _make(self, weights: Sequence[np.ndarray], servers: int, optimiser: Optimiser) -> None:
        def variable(home: int, name: str, like: np.ndarray) -> Any:
            with tf.device(f"/job:ps/task:{home}/device:CPU:0"):
                value = tf.zeros(like.shape, like.dtype)
                # A server keeps variables by name: those of an earlier build with another network had other shapes.
                name = "_".join([name, *map(str, like.shape)])
                return tf.compat.v1.Variable(value, name=name, use_resource=True, trainable=False)

        with tf.device(self._device):
            self._fed = [tf.compat.v1.placeholder(each.dtype, each.shape) for each in weights]
        places = list(enumerate(zip(self._server_of, weights)))
        shared = [variable(home, f"weight{place}", each) for place, (home, each) in places]
        moments = [
            [variable(home, f"moment{kind}_{place}", each) for place, (home, each) in places]
            for kind in range(states(optimiser))
        ]
        count = np.zeros((), np.int64)
        total = variable(0, "updates", count)
        counts = [variable(home, f"count{home}", count) for home in range(servers)]
        zeros = [each for kind in moments for each in kind] + counts + [total]
        self._first = [own.assign(fed) for own, fed in zip(shared, self._fed)]
        self._first += [each.assign(tf.zeros_like(each)) for each in zeros]
        updated: Dict[int, Any] = {}
        for home in sorted(set(self._server_of)):
            own = [place for place, at in enumerate(self._server_of) if at == home]
            state = [[kind[place] for place in own] for kind in moments]
            rule = updating(optimiser, True, [shared[place] for place in own], state, counts[home], locking=True)
            with tf.device(f"/job:ps/task:{home}/device:CPU:0"):
                gradients = [self._fed[place] / self._workers for place in own]
                updated[home] = compiled(with_end(rule))(gradients)
        with tf.control_dependencies(list(updated.values())):
            self._counted = total.assign_add(1, read_value=True)
        self._pulled = []
        for own, home in zip(shared, self._server_of):
            with tf.control_dependencies([updated[home]]):
                self._pulled.append(self._here(own))
        self._weights = [self._here(own) for own in shared]

    def _here(self, own: Any) -> Any:
        with tf.device(own.device):
            value = own.read_value()
        with tf.device(self._device):
            return tf.identity(value)


def server_of_each(sizes: Sequence[int], servers: int) -> List[int]:
    """Return a server for every size: the largest first, each to the server with the least load."""
    homes, loads = [0] * len(sizes), [0] * servers
    for place in sorted(range(len(sizes)), key=lambda place: -sizes[place]):
        homes[place] = loads.index(min(loads))
        loads[homes[place]] += sizes[place]
    return homes


def described(optimiser: Optimiser) -> str:
    """Describe the update on servers, for notes."""
    return f"{kernel_name(optimiser)} on the servers, with locks; gradients are divided by the global batch"
