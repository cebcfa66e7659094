"""CNTK's communicator without a training: `aggregate_in_place`, the sum of its 32-bit learner."""

import numpy as np

from adapters.cntk import machine
from adapters.cntk.exchange import MPIGroup
from adapters.cntk.machine import cntk as C  # noqa: N812 - the usual name
from suite.worker.communicator import Communicator, Exchange
from suite.worker.contract import Joined, Unsupported


class CNTKCommunicator(Communicator):
    """A rank of CNTK's MPI group."""

    def start(self) -> Joined:
        machine.prepare(self.setup)
        self.group = MPIGroup()
        return Joined(self.group.rank, self.group.world, self.group.transport, machine.versions())

    def exchange(self, operation: str, count: int, dtype: str = "float32") -> Exchange:
        if operation != "all-reduce":
            raise Unsupported("CNTK's communicator has no %s; it has all-reduce" % operation)
        return Sum(self.group, count)


class Sum(Exchange):
    """A sum in place, in CNTK's own memory."""

    def __init__(self, group: MPIGroup, count: int) -> None:
        self._group = group
        self.fill(np.zeros(count, dtype=np.float32))

    def fill(self, values: np.ndarray) -> None:
        self._views = [C.NDArrayView.from_data(np.ascontiguousarray(values))]

    def run(self) -> None:
        self._group.sum_in_place(self._views)

    def result(self) -> np.ndarray:
        return np.array(self._views[0].asarray(), dtype=np.float32)
