"""torch.distributed by itself: gloo between CPUs, NCCL between GPUs."""

from typing import Any, Callable, NamedTuple, Optional

import numpy as np
import torch
import torch.distributed as dist

from adapters.pytorch import machine
from adapters.pytorch.group import ProcessGroup
from suite.worker.communicator import Communicator, Exchange, Pending
from suite.worker.contract import Joined, Unsupported

SIDE = 256  # of the matrices that a GPU multiplies: a slice of computation


class TorchCommunicator(Communicator):
    """The default process group."""

    def start(self) -> Joined:
        setup = self.setup
        self._device = machine.prepare(setup)
        self.group = ProcessGroup(setup)
        self._matrix = torch.ones(SIDE, SIDE, device=self._device)
        return Joined(self.group.rank, self.group.world, self.group.transport, machine.versions(setup.device))

    def exchange(self, operation: str, count: int, dtype: str = "float32") -> Exchange:
        return Collective(CALLS[operation], count, self._device, getattr(torch, dtype))

    def synchronize(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize()

    def peak_device_bytes(self) -> Optional[int]:
        return torch.cuda.max_memory_allocated() if self._device.type == "cuda" else None

    def compute(self) -> None:
        """On a GPU a product of matrices, queued."""
        if self._device.type == "cuda":
            torch.mm(self._matrix, self._matrix)
        else:
            super().compute()


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


class Call(NamedTuple):
    """What an operation calls, and whether a rank gives and takes all of the numbers, or its part of them."""

    run: Callable[[Any, Any, bool], Any]  # (given, taken, whether only to begin) -> torch's Work
    in_place: bool = False
    gives_share: bool = False
    takes_share: bool = False


class Collective(Exchange):
    """A call of torch.distributed on tensors of its own."""

    def __init__(self, call: Call, count: int, device: Any, dtype: Any) -> None:
        share, options = count // dist.get_world_size(), {"device": device, "dtype": dtype}
        self._call = call.run
        self._given = torch.zeros(share if call.gives_share else count, **options)
        self._taken = self._given if call.in_place else torch.zeros(share if call.takes_share else count, **options)

    def fill(self, values: np.ndarray) -> None:
        self._given.copy_(torch.from_numpy(values))

    def result(self) -> np.ndarray:
        found: np.ndarray = self._taken.float().cpu().numpy()
        return found

    def run(self) -> None:
        """Waited for; on a GPU: queued."""
        self._call(self._given, self._taken, False)

    def begin(self) -> Pending:
        return Working(self._call(self._given, self._taken, True))


def there_and_back(given: Any, taken: Any, begin: bool) -> None:
    """Between rank 0 and the last one: what came goes back."""
    if begin:
        raise Unsupported("a message there and back waits for its first half")
    rank, last = dist.get_rank(), dist.get_world_size() - 1
    if last == 0:
        taken.copy_(given)
    elif rank == 0:
        dist.send(given, last)
        dist.recv(taken, last)
    elif rank == last:
        dist.recv(taken, 0)
        dist.send(taken, 0)


CALLS = {
    "all-reduce": Call(lambda given, taken, begin: dist.all_reduce(given, async_op=begin), in_place=True),
    "broadcast": Call(lambda given, taken, begin: dist.broadcast(given, 0, async_op=begin), in_place=True),
    "reduce-scatter": Call(
        lambda given, taken, begin: dist.reduce_scatter_tensor(taken, given, async_op=begin), takes_share=True
    ),
    "all-gather": Call(
        lambda given, taken, begin: dist.all_gather_into_tensor(taken, given, async_op=begin), gives_share=True
    ),
    "all-to-all": Call(lambda given, taken, begin: dist.all_to_all_single(taken, given, async_op=begin)),
    "point-to-point": Call(there_and_back),
}
