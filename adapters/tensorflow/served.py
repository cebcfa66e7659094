"""Workers that train by themselves on weights that lie on parameter servers: the strategy `parameter_server`.

Every rank is a worker with a program of its own, as in between-graph replication: it reads,
places and times its own batches, and waits for nobody. TensorFlow's younger way, one
coordinator whose program the workers run piece by piece, is `coordinated`.

Oldest Python: 3.6.
"""

from typing import Any, Dict, List

from adapters.tensorflow.cluster import Member
from adapters.tensorflow.replicas import Replicas
from adapters.tensorflow.store import Store
from adapters.tensorflow.ways import Tensors
from suite.worker.contract import Adam, Setup


class Served(Replicas):
    """The network of one device; its gradients go to the servers, and their weights come back."""

    def __init__(self, setup: Setup, devices: List[str], knobs: Dict[str, Any]) -> None:
        """Meet workers and servers."""
        self._servers = int(knobs["servers"])
        self._member = Member("worker", setup.rank, (0, setup.world, self._servers), setup.threads)
        super().__init__(setup, devices, knobs)
        self.rank, self.world = setup.rank, len(self._member.spec["worker"])
        self.transport = "grpc"
        self._last = self._most = self._sum = self._steps = 0
        self._counting = False

    def _make(self, weights: Tensors) -> None:
        super()._make(weights)
        own = [each.numpy() for each in self._trained()]
        member, rule = (self.rank, self.world), self.setup.optimiser
        self._store: Any = Store(self._member.server.target, member, self._servers, rule, own)
        self.maximum(0.0)  # nobody still trains with what an earlier network left there
        if self.setup.rank == 0:
            self._store.write(own)
        self.maximum(0.0)
        self._last, self._counting = 0, False

    def release(self) -> None:
        """The session too."""
        super().release()
        store, self._store = getattr(self, "_store", None), None
        if store is not None:
            store.close()

    def maximum(self, value: float) -> float:
        """Over the workers."""
        assert self._member.ranks is not None
        return self._member.ranks.maximum(value)

    def close(self) -> None:
        """Together; the servers are ended by who started them."""
        self.maximum(0.0)
        assert self._member.ranks is not None
        self._member.ranks.close()

    # --- training -------------------------------------------------------------

    def communicate(self) -> None:
        """Push the gradients, which stay, and pull the weights."""
        self._exchange(self.local[0])

    def update(self) -> None:
        """It has happened on the servers."""
        self.local = None

    def step(self, batch: Any) -> None:
        """Forward and backward in one function, then the exchange."""
        loss, gradients = self._programs.differentiate(batch.images[0], batch.labels[0])
        self._losses = [loss]
        self._exchange(gradients)

    def step_alone(self, batch: Any) -> None:
        """Every worker updates its own weights; the next exchange replaces them."""
        self._losses = self._programs.step_alone(*batch.images, *batch.labels)

    def begin_training(self) -> None:
        """Count from now on: other passes exchange without training, or stop in between."""
        self._most = self._sum = self._steps = 0
        self._counting = True

    def notes(self) -> Dict[str, Any]:
        """Where the weights are, and how stale they were."""
        notes = dict(super().notes(), servers=self._servers, exchange=EXCHANGE)
        kind = "Adam" if isinstance(self.setup.optimiser, Adam) else "Momentum"
        words = "ResourceApply%s on the servers, with locks; gradients are divided by the global batch"
        notes["optimiser"] = words % kind
        if self._counting and self._steps:
            mean = self._sum / float(self._steps)
            notes["staleness"] = {"mean": mean, "max": self._most, "steps": self._steps}
        return notes

    # --- inside -------------------------------------------------------------

    def _trained(self) -> List[Any]:
        return [self.variables[parameter.name][0] for parameter in self.graph.parameters]

    def _exchange(self, gradients: List[Any]) -> None:
        weights, now = self._store.exchange([each.numpy() for each in gradients])
        for variable, value in zip(self._trained(), weights):
            variable.assign(value)
        others, self._last = int(now) - self._last - 1, int(now)
        self._steps += 1
        self._sum += others
        self._most = max(self._most, others)


EXCHANGE = (
    "by a session beside the network: all gradients to the servers, all weights back, after the backward, not beside it"
)
