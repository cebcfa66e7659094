"""The strategy `parameter_server`: independent workers, and weights on parameter servers.

Every rank is a worker with its own program, as in between-graph replication: it reads, places and times its own
batches, and waits for no other worker. In TensorFlow's newer strategy, `coordinator`, one process schedules functions
on the workers.
"""

from typing import Any, Dict, List, Optional

import numpy as np

from adapters.tensorflow.exchange import Member
from adapters.tensorflow.net import compiled
from adapters.tensorflow.parameter_store import ParameterStore, described
from adapters.tensorflow.replicas import Replicas
from suite.worker.contract import Batch, Setup
from suite.worker.staleness import Staleness


class ParameterServer(Replicas):
    """The network of one device; its gradients go to the servers, and weights come back."""

    transport = "grpc"
    xla_when_tuned = "off"  # the servers update
    _store: Optional[ParameterStore] = None
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

    def make_variables(self, weights: Dict[str, np.ndarray]) -> None:
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
        largest: float = self._member.ranks.maximum(value)
        return largest

    # --- training -----------------------------------------------------------

    def communicate(self) -> None:
        """Push the gradients, which stay, and pull the weights."""
        self._exchange(self.local[0])

    def update(self) -> None:
        """No-op: the servers have updated."""
        self.local = None

    def step(self, batch: Batch) -> None:
        loss, gradients = self._gradients(batch.images[0], batch.labels[0])
        self._losses = [loss]
        self._exchange(gradients)

    def step_alone(self, batch: Batch) -> None:
        """Update the worker's own weights; the next exchange replaces them."""
        self._losses = self._step_alone(*batch.images, *batch.labels)

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

    def notes(self) -> Dict[str, Any]:
        notes = dict(super().notes(), servers=self._servers, exchange=EXCHANGE)
        return dict(notes, optimiser=described(self.setup.optimiser), **self._staleness.notes())


EXCHANGE = (
    "by a session beside the network: all gradients to the servers, all weights back, after the backward, not beside it"
)
