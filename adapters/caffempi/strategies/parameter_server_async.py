"""An asynchronous parameter server: rank 0 updates by each rank's gradients as they come (MXNet's dist_async).

No rank waits for another one's gradients. A rank's gradients are its batch's divided by the
number of ranks, as in synchronous training: an update of every rank moves the weights about as far as
one of the joined batch does.
"""

import threading
import time
from functools import partial
from typing import Any, List, Optional

import numpy as np
import torch

from stagebench.adapters.caffempi.distributed import DistributedTrainer
from stagebench.adapters.caffempi.exchange import Driver, Exchange, Pace
from stagebench.adapters.caffempi.memory import Host
from stagebench.adapters.caffempi.net import Arena, Flat, Group, Span
from stagebench.adapters.caffempi.optimisers import solver_of
from stagebench.adapters.caffempi.transfer import MPI, TAGS, InFlight, Steps, Transfer, push, star
from stagebench.suite.worker.contract import Batch, Optimiser, Setup
from stagebench.suite.worker.staleness import Staleness
from stagebench.suite.worker.trainer import Notes

POLL_S = 3e-4
COUNT, WEIGHTS = TAGS - 1, TAGS - 2  # tags that no piece of a gradient has
MAXIMUM_POLL_S = 1e-4


class Server:
    """The server on rank 0, next to its worker: answers the other ranks' pushes from a thread of its own.

    Its solver updates the three buffers `parameters`, `velocities` and `gradients` in host memory, where MPI delivers
    gradients: those of the rank whose turn it is.
    """

    def __init__(self, arena: Arena, rule: Optimiser) -> None:
        """Copy the arena's weights; velocities are at rest."""
        self.parameters = arena.parameters.to("cpu", copy=True)
        self.velocities = torch.zeros_like(self.parameters)
        self.gradients: Any = None
        self.shapes = arena.shapes
        self._solver = solver_of(self, rule)
        self._all = Span(0, len(arena.parameters))
        self._turn = threading.Lock()
        self._updates = 0
        self._answers: List[InFlight] = []
        self._failure: List[BaseException] = []

    def apply(self, gradients: Flat, weights: Flat) -> int:
        """Update by these gradients and copy the new weights out, perhaps to the same buffer; return all updates."""
        with self._turn:
            self.gradients = gradients
            self._solver.begin()
            self._solver.update(self._all)
            weights.copy_(self.parameters)
            self._updates += 1
            return self._updates

    def serve(self, comm: Any, spans: List[Span], lock: Any) -> None:
        """Answer every other rank from now on; MPI is called with `lock` held."""
        self._lock = lock
        for rank in range(1, comm.size):
            box = torch.zeros_like(self.parameters)
            self._answers.append(InFlight(self._attended(comm, rank, box, spans)))
        self._driver = Driver(self._advance, POLL_S, self._failure.append)
        self._driver.wake()

    def check(self) -> None:
        if self._failure:
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

    def _attended(self, comm: Any, rank: int, box: Flat, spans: List[Span]) -> Steps:
        """Yield the requests of a rank's pushes, for ever: gradients come into the box, weights leave from there."""
        values = box.numpy()
        count = np.zeros(1, np.int64)
        while True:
            yield [comm.Irecv(values[span.begin : span.end], rank, tag) for tag, span in enumerate(spans)]
            count[0] = self.apply(box, box)
            yield [comm.Isend(count, rank, COUNT), comm.Isend(values, rank, WEIGHTS)]


class ParameterServerAsync(DistributedTrainer):
    """A worker that pushes gradients and pulls weights; on rank 0 the server runs alongside, in a thread."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._server: Optional[Server] = None
        self._mpi_lock = threading.Lock()  # held around calls of MPI: the server's thread makes some, too

    def transfer(self) -> Transfer:
        """Return the way to rank 0 and back, which the merge rule measures."""
        return partial(star, self.group.comm)

    def open_exchange(self, groups: List[Group], pace: Pace) -> None:
        """Rank 0 serves, the others get ready to push; all begin with the same weights."""
        self._staleness = Staleness()
        self._unpushed = False
        self._gradients = self.memory(self._arena.gradients, returns=False)
        self._weights = self.memory(self._arena.parameters)
        if self.group.rank == 0:
            self._server = Server(self._arena, self.setup.optimiser)
            self._server.serve(self.group.comm, [group.span for group in groups], self._mpi_lock)
            return
        # A message a group: there is nothing to sum on the way, so nothing to cut.
        pace = pace._replace(piece=self._all.end)
        self._exchange = Exchange(self._gradients, groups, partial(push, self.group.comm), pace)

    def exchanged(self) -> List[Host]:
        return [self._gradients, self._weights]

    def close_exchange(self) -> None:
        """Stop serving once every rank has come here; who went before that would push to a server that has ended."""
        self.maximum(0.0)
        if self._server is not None:
            self._server.close()
        else:
            super().close_exchange()
        self.maximum(0.0)

    def backward(self) -> None:
        """New gradients, not pushed yet."""
        super().backward()
        self._unpushed = True

    def communicate(self) -> None:
        """Push, update and pull. Without a new backward (pass `comm_only`) nothing but zeros is pushed."""
        if not self._unpushed:
            self._arena.gradients.zero_()
        self._unpushed = False
        if self._server is not None:
            self._apply(self._server)
            return
        self._exchange.run(self._clock.communication)
        self._pull()

    def update(self) -> None:
        """No-op: the server has updated."""

    def step(self, batch: Batch) -> None:
        """Groups leave as they are complete; the next forward has the weights that came back."""
        self._net.forward(batch.inputs, batch.labels)
        if self._server is not None:
            self._net.backward()
            self._apply(self._server)
            return
        self._net.backward(self._exchange.layer_done)
        for _ in self._exchange.finish():
            pass
        self._pull()

    def maximum(self, value: float) -> float:
        """Over all ranks, without keeping rank 0's server waiting."""
        number = np.array([value])
        with self._mpi_lock:
            request = MPI.COMM_WORLD.Iallreduce(MPI.IN_PLACE, number, MPI.MAX)
        self._wait([request], MAXIMUM_POLL_S)
        return float(number[0])

    def begin_training(self) -> None:
        self._staleness.begin()

    def joint_steps(self) -> Optional[int]:
        return self._staleness.updates // self.setup.world

    def notes(self) -> Notes:
        found = super().notes()
        if self._plan is not None:
            found.update(self._staleness.notes())
            found["server"] = "on rank 0, beside its worker; gradients are divided by the global batch"
        return found

    def _apply(self, server: Server) -> None:
        server.check()
        self._gradients.leave([self._all])
        while not self._gradients.left(self._all):
            time.sleep(POLL_S)
        pushed, pulled = (torch.from_numpy(memory.values) for memory in self.exchanged())
        self._staleness.exchanged(server.apply(pushed, pulled))
        self._weights.arrived(self._all)

    def _pull(self) -> None:
        updates = np.zeros(1, np.int64)
        comm = self.group.comm
        requests = [comm.Irecv(updates, 0, COUNT), comm.Irecv(self._weights.values, 0, WEIGHTS)]
        self._wait(requests, POLL_S)
        self._weights.arrived(self._all)
        self._staleness.exchanged(int(updates[0]))

    def _wait(self, requests: List[Any], poll_s: float) -> None:
        """Until all are done; between two looks the server's thread may call MPI."""
        while True:
            with self._mpi_lock:
                if MPI.Request.Testall(requests):
                    return
            time.sleep(poll_s)
