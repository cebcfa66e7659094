"""The asynchronous parameter server: weights of its own, updated by whichever rank pushes."""

import threading
from typing import Any, List

import numpy as np
import torch

from adapters.caffempi.arena import Arena, Span
from adapters.caffempi.exchange import Driver
from adapters.caffempi.optimisers import solver_of
from adapters.caffempi.transfer import TAGS, InFlight, Steps
from suite.worker.contract import Optimiser

POLL_S = 3e-4
COUNT, WEIGHTS = TAGS - 1, TAGS - 2  # tags that no piece of a gradient has


class Store:
    """What a solver updates; the gradients are whose turn it is."""

    def __init__(self, arena: Arena) -> None:
        """A copy of the arena's weights, and velocities at rest; in host memory, where MPI delivers gradients."""
        self.parameters = arena.parameters.to("cpu", copy=True)
        self.velocities = torch.zeros_like(self.parameters)
        self.gradients: Any = None


class Server:
    """Rank 0's, beside its worker: answers the other ranks' pushes from a thread of its own."""

    def __init__(self, arena: Arena, rule: Optimiser) -> None:
        self._store = Store(arena)
        self._solver = solver_of(self._store, rule)
        self._all = Span(0, len(arena.parameters))
        self._turn = threading.Lock()
        self._updates = 0
        self._answers: List[InFlight] = []

    def apply(self, gradients: Any, weights: Any) -> int:
        """Update by these gradients and copy the new weights out; the number of updates so far.

        Both are flat buffers, and may be the same one.
        """
        with self._turn:
            self._store.gradients = gradients
            self._solver.begin()
            self._solver.update(self._all)
            weights.copy_(self._store.parameters)
            self._updates += 1
            return self._updates

    def serve(self, comm: Any, spans: List[Span], lock: Any) -> None:
        """Answer every other rank from now on; MPI is called with `lock` held."""
        self._lock = lock
        dtype = self._store.parameters.numpy().dtype
        for rank in range(1, comm.size):
            self._answers.append(InFlight(self._attended(comm, rank, np.zeros(self._all.end, dtype), spans)))
        self._failure: List[BaseException] = []
        self._driver = Driver(self._advance, POLL_S, self._failure.append)
        self._driver.wake()

    def check(self) -> None:
        if self._answers and self._failure:
            raise self._failure[0]

    def close(self) -> None:
        """Stop answering; every rank has its answers."""
        if self._answers:
            self._driver.close()
        for answer in self._answers:
            answer.cancel()
        self._answers = []

    def _advance(self) -> bool:
        for answer in self._answers:
            with self._lock:
                answer.test()
        return True

    def _attended(self, comm: Any, rank: int, box: np.ndarray, spans: List[Span]) -> Steps:
        """One rank's pushes, for ever: its gradients come into the box, and the weights leave from there."""
        shared, count = torch.from_numpy(box), np.zeros(1, np.int64)
        while True:
            yield [comm.Irecv(box[span.begin : span.end], rank, tag) for tag, span in enumerate(spans)]
            count[0] = self.apply(shared, shared)
            yield [comm.Isend(count, rank, COUNT), comm.Isend(box, rank, WEIGHTS)]
