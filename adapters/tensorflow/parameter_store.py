"""A worker's access to the weights on TensorFlow's parameter servers.

Between-graph replication, as TensorFlow has it since its first version: every worker has a
session on a graph of its own, whose variables lie on the servers under names that are the
same in all graphs. Eager contexts do not share variables on a server, so it is a session.
"""

from typing import Any, Dict, List, Sequence, Tuple

import numpy as np
import tensorflow as tf

from adapters.tensorflow.net import compiled
from adapters.tensorflow.optimisers import kernel_name, states, updating, with_end
from suite.worker.contract import Optimiser


class ParameterStore:
    """Takes gradients and returns weights; the servers update as each worker's gradients come."""

    def __init__(
        self, target: str, member: Tuple[int, int], servers: int, optimiser: Optimiser, weights: Sequence[np.ndarray]
    ) -> None:
        """`member`: (this worker's number, workers); `weights` give shapes and types, and are not written yet."""
        worker, self._workers = member
        self._device = "/job:worker/task:%d/device:CPU:0" % worker
        self._server_of = server_of_each([each.nbytes for each in weights], servers)
        self._graph = tf.Graph()
        with self._graph.as_default():
            self._make(weights, servers, optimiser)
        filters = ["/job:ps", "/job:worker/task:%d" % worker]  # without it the session would wait for the other workers
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
            with tf.device("/job:ps/task:%d/device:CPU:0" % home):
                value = tf.zeros(like.shape, like.dtype)
                return tf.compat.v1.Variable(value, name=name, use_resource=True, trainable=False)

        with tf.device(self._device):
            self._fed = [tf.compat.v1.placeholder(each.dtype, each.shape) for each in weights]
        places = list(enumerate(zip(self._server_of, weights)))
        shared = [variable(home, "weight%d" % place, each) for place, (home, each) in places]
        moments = [
            [variable(home, "moment%d_%d" % (kind, place), each) for place, (home, each) in places]
            for kind in range(states(optimiser))
        ]
        count = np.zeros((), np.int64)
        total = variable(0, "updates", count)
        counts = [variable(home, "count%d" % home, count) for home in range(servers)]
        zeros = [each for kind in moments for each in kind] + counts + [total]
        self._first = [own.assign(fed) for own, fed in zip(shared, self._fed)]
        self._first += [each.assign(tf.zeros_like(each)) for each in zeros]
        updated: Dict[int, Any] = {}
        for home in sorted(set(self._server_of)):
            own = [place for place, at in enumerate(self._server_of) if at == home]
            state = [[kind[place] for place in own] for kind in moments]
            rule = updating(optimiser, True, [shared[place] for place in own], state, counts[home], locking=True)
            with tf.device("/job:ps/task:%d/device:CPU:0" % home):
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
    return "%s on the servers, with locks; gradients are divided by the global batch" % kernel_name(optimiser)
