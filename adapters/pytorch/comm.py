"""torch.distributed by itself: gloo between CPUs, NCCL between GPUs."""

from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from adapters.pytorch import machine
from adapters.pytorch.group import Group
from suite.worker.communicator import Communicator, Exchange, Pending
from suite.worker.contract import Joined, Unsupported

SIDE = 256  # of the matrices that a GPU multiplies: a slice of computation


class TorchCommunicator(Communicator):
    """The default process group."""

    def start(self) -> Joined:
        """As the trainer's 'ddp' joins."""
        setup = self.setup
        self._device = machine.prepare(setup)
        self._group: Any = Group(setup)
        self._matrix = torch.ones(SIDE, SIDE, device=self._device)
        return Joined(self._group.rank, self._group.world, self._group.transport, machine.versions(setup.device))

    def exchange(self, operation: str, count: int, dtype: str = "float32") -> Exchange:
        if operation not in EXCHANGES:
            raise Unsupported("torch.distributed has no %s here; it has %s" % (operation, ", ".join(EXCHANGES)))
        made: Exchange = EXCHANGES[operation](count, self._device, getattr(torch, dtype))
        return made

    def maximum(self, value: float) -> float:
        """Over the hosts: a device's queue is not touched."""
        largest: float = self._group.maximum(value)
        return largest

    def barrier(self) -> None:
        self._group.barrier()

    def synchronize(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize()

    def compute(self) -> None:
        """On a GPU a product of matrices, queued."""
        if self._device.type == "cuda":
            torch.mm(self._matrix, self._matrix)
        else:
            super().compute()

    def close(self) -> None:
        self._group.close()


class Working(Pending):
    """What torch.distributed calls a Work."""

    def __init__(self, work: Any) -> None:
        self._work = work

    def test(self) -> bool:
        """Asking brings nothing forward: gloo's and NCCL's own threads and kernels work by themselves."""
        return bool(self._work.is_completed())

    def wait(self) -> None:
        """On a GPU this only orders the stream."""
        self._work.wait()


class Collective(Exchange):
    """A call of torch.distributed on tensors of its own."""

    in_place = False
    gives_share = takes_share = False  # of the numbers one rank's part, not all

    def __init__(self, count: int, device: Any, dtype: Any) -> None:
        self._rank, self._world = dist.get_rank(), dist.get_world_size()
        share = count // self._world
        self._given = torch.zeros(share if self.gives_share else count, device=device, dtype=dtype)
        self._taken = self._given
        if not self.in_place:
            self._taken = torch.zeros(share if self.takes_share else count, device=device, dtype=dtype)

    def fill(self, values: np.ndarray) -> None:
        self._given.copy_(torch.from_numpy(values))

    def result(self) -> np.ndarray:
        found: np.ndarray = self._taken.float().cpu().numpy()
        return found

    def run(self) -> None:
        """Waited for; on a GPU: queued."""
        self._call(False)

    def begin(self) -> Pending:
        return Working(self._call(True))

    def _call(self, begin: bool) -> Any:
        """Do it; where `begin`, return torch's Work."""
        raise NotImplementedError


class AllReduce(Collective):
    """As DDP does it."""

    in_place = True

    def _call(self, begin: bool) -> Any:
        return dist.all_reduce(self._given, async_op=begin)


class Broadcast(Collective):
    """From rank 0."""

    in_place = True

    def _call(self, begin: bool) -> Any:
        return dist.broadcast(self._given, 0, async_op=begin)


class AllGather(Collective):
    """Into one tensor."""

    gives_share = True

    def _call(self, begin: bool) -> Any:
        return dist.all_gather_into_tensor(self._taken, self._given, async_op=begin)


class ReduceScatter(Collective):
    """From one tensor."""

    takes_share = True

    def _call(self, begin: bool) -> Any:
        return dist.reduce_scatter_tensor(self._taken, self._given, async_op=begin)


class AllToAll(Collective):
    """Equal parts."""

    def _call(self, begin: bool) -> Any:
        return dist.all_to_all_single(self._taken, self._given, async_op=begin)


class PointToPoint(Collective):
    """send and recv between rank 0 and the last one, there and back; what came goes back."""

    def begin(self) -> Pending:
        """Unsupported: there and back cannot be one Work."""
        raise Unsupported("a message there and back waits for its first half")

    def _call(self, begin: bool) -> Any:
        last = self._world - 1
        if last == 0:
            self._taken.copy_(self._given)
        elif self._rank == 0:
            dist.send(self._given, last)
            dist.recv(self._taken, last)
        elif self._rank == last:
            dist.recv(self._taken, 0)
            dist.send(self._taken, 0)


EXCHANGES = {
    "all-reduce": AllReduce,
    "broadcast": Broadcast,
    "reduce-scatter": ReduceScatter,
    "all-gather": AllGather,
    "all-to-all": AllToAll,
    "point-to-point": PointToPoint,
}
