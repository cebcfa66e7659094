"""The base of Caffe-MPI's trainers of several ranks: the MPI group and the plan of messages."""

from abc import abstractmethod
from typing import List, Optional

import mpi4py

from stagebench.adapters.caffempi.base import CaffeMPITrainer
from stagebench.adapters.caffempi.exchange import FAR, NEAR, Exchange, Pace
from stagebench.adapters.caffempi.memory import Device, Host, Pinned, check
from stagebench.adapters.caffempi.merge import Link, Plan, plan_for
from stagebench.adapters.caffempi.net import Flat, Group
from stagebench.adapters.caffempi.transfer import Ranks, Transfer
from stagebench.suite.worker.contract import Joined, Setup, chosen
from stagebench.suite.worker.trainer import Arrays, Notes
from stagebench.workloads.graph import Graph

TRIALS = 3  # iterations that show the merge rule when each layer's gradient is ready


class DistributedTrainer(CaffeMPITrainer):
    """A rank of an MPI group, whose gradients leave in groups of layers; strategies say how a message travels."""

    _exchange: Exchange

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._overlap: str = chosen(setup, "overlap", default="layerwise", tuned="merged")
        self._staging: str = chosen(setup, "staging", default="pinned")
        self._plan: Optional[Plan] = None  # there is one while an exchange can take place

    @abstractmethod
    def transfer(self) -> Transfer:
        """Return how a piece of the gradient travels to all ranks and back."""

    def start(self) -> Joined:
        joined = super().start()
        check(self._staging)
        self.group = Ranks(chosen(self.setup, "node_ranks", default=None))
        versions = dict(joined.versions, mpi4py=mpi4py.__version__, mpi=self.group.library)
        return Joined(self.group.rank, self.group.size, f"mpi: {self.group.library}", versions)

    def build(self, graph: Graph, weights: Arrays) -> None:
        """Make the net, and the plan of its messages; all ranks come here."""
        self.end_exchange()
        super().build(graph, weights)
        # Within a machine a core copies what is sent: a thread could only take turns with the one that computes.
        progress = chosen(self.setup, "progress", default="thread" if self.group.nodes > 1 else "layers")
        self._pace = FAR if progress == "thread" else NEAR
        link = Link(self.group.comm, self.transfer(), self._pace, self._device, self.memory)
        itemsize = self._arena.gradients.element_size()
        self._plan = plan_for(self._overlap, self._arena.spans, link, self._ready_s, itemsize)
        self.open_exchange(self._plan.groups, self._pace)

    def open_exchange(self, groups: List[Group], pace: Pace) -> None:
        self._gradients = self.memory(self._arena.gradients)
        self._exchange = Exchange(self._gradients, groups, self.transfer(), pace)

    def memory(self, flat: Flat, returns: bool = True) -> Host:
        """Return where MPI sends a buffer from; `returns`: what arrives is wanted in the buffer."""
        if not flat.is_cuda:
            return Host(flat)
        return Device(flat) if self._staging == "none" else Pinned(flat, returns)

    def exchanged(self) -> List[Host]:
        """Return the buffers that an exchange sends or receives."""
        return [self._gradients]

    def end_exchange(self) -> None:
        """Leave nothing on its way, if anything was begun; all ranks come here."""
        if self._plan is not None:
            self.close_exchange()
            self._plan = None

    def close_exchange(self) -> None:
        """End the thread that brings messages forward, if there is one."""
        self._exchange.close()

    def close(self) -> None:
        self.end_exchange()
        super().close()

    def notes(self) -> Notes:
        """Name the choices, and the measurements behind them."""
        found = super().notes()
        if self._plan is None:
            return found
        pace = self._pace
        names = [slot.layer.name for slot in self._net.slots]
        found["overlap"] = self._overlap
        found["groups"] = [[names[index] for index in group.layers] for group in self._plan.groups]
        found["nodes"] = self.group.nodes
        found["progress"] = "between layers" if pace.poll_s is None else f"a thread, every {1000.0 * pace.poll_s:g} ms"
        found["in_flight_bytes"] = pace.piece * pace.window * self._arena.gradients.element_size()
        if self._plan.cost is not None:
            found.update(self._plan.cost._asdict())
        if self._gradients.words:
            found["exchange"] = self._gradients.words
            found["staging_s"] = sum(memory.copying_s() for memory in self.exchanged())
        return found

    def _ready_s(self) -> List[float]:
        clock = self.new_clock()
        self.run_trial(self.setup.batch, TRIALS, clock)
        self.synchronize()
        return clock.ready_s()
