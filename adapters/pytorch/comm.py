"""torch.distributed: the process group in which ranks meet, and its collectives alone (gloo, NCCL)."""

import contextlib
import os
from datetime import timedelta
from typing import Any, Callable, Dict, List, NamedTuple, Optional

import numpy as np
import torch
import torch.distributed as dist

# Before any group exists: the defaults of its functions name the group of the moment, and
# DDP, which imports it when first used, would tie the group to them for ever.
import torch.distributed.nn
from torch import Tensor

from stagebench.adapters.pytorch import machine
from stagebench.suite.worker.communicator import Communicator, Exchange, Pending
from stagebench.suite.worker.contract import Group, Joined, Setup, Unsupported
from stagebench.suite.worker.gpus import driven
from stagebench.suite.worker.rendezvous import address_towards, interface_of, meeting_place

GLOO_INTERFACE = "GLOO_SOCKET_IFNAME"
SIDE = 256  # of the matrices that a GPU multiplies: a slice of computation
MEET = timedelta(minutes=30)  # torch's own limit; the controller's watchdog is long awake


class ProcessGroup(Group):
    """torch.distributed as one rank sees it."""

    def __init__(self, setup: Setup) -> None:
        """Join at `meeting_place`; ValueError when the launcher has not set it."""
        address, port = meeting_place("PyTorch's ranks")
        store = dist.TCPStore(address, port, setup.world, setup.rank == 0, MEET)
        backend = "nccl" if setup.device == "cuda" else "gloo"
        if setup.device == "cuda" and setup.share_devices:
            # Where ranks drive the same GPU, NCCL refuses them.
            devices = from_all(store, setup, "gpus", ",".join(driven(setup)))
            if "" in devices or len(set(devices)) < len(devices):
                backend = "gloo"
        name_interface(store, setup, address)
        dist.init_process_group(backend, store=store, rank=setup.rank, world_size=setup.world)
        self.rank = dist.get_rank()
        self.world = dist.get_world_size()
        self.transport = str(dist.get_backend())
        # The loop's questions are about host numbers: they must not touch the device's queue.
        self._host: Any = dist.group.WORLD if backend == "gloo" else dist.new_group(backend="gloo")
        self._groups: Dict[str, Any] = {}

    def pipeline(self, stages: int, backend: Optional[str] = None) -> Any:
        """Return the group of the ranks that hold one network with this one; all ranks must ask."""
        ranks = [list(range(first, first + stages)) for first in range(0, self.world, stages)]
        return self._subgroup(f"pipeline, {backend}", ranks, backend)

    def same_stage(self, stages: int) -> Any:
        """Return the group of the ranks that hold the same stage of other networks; all ranks must ask."""
        return self._subgroup("stage", [list(range(stage, self.world, stages)) for stage in range(stages)], None)

    def holders(self, held: int, places: List[int]) -> Any:
        """Return the group of the ranks at these places of a pipeline, for one of them; all ranks must ask."""
        ranks = [[first + place for place in places] for first in range(0, self.world, held)]
        return self._subgroup(f"places {places}", ranks, None)

    def _subgroup(self, name: str, ranks: List[List[int]], backend: Optional[str]) -> Any:
        if name not in self._groups:
            self._groups[name] = dist.new_subgroups_by_enumeration(ranks, backend=backend)[0]
        return self._groups[name]

    def maximum(self, value: float) -> float:
        cell = torch.tensor([value], dtype=torch.float64)
        dist.all_reduce(cell, dist.ReduceOp.MAX, group=self._host)
        return cell.item()

    def barrier(self) -> None:
        """Return when the hosts of all ranks have come."""
        dist.barrier(group=self._host)

    def close(self) -> None:
        """Leave together: the first to go may host the store that the others still ask."""
        self.barrier()
        self._host = None
        self._groups = {}
        dist.destroy_process_group()


def from_all(store: Any, setup: Setup, key: str, value: str) -> List[str]:
    """Return every rank's value; all ranks must come here."""
    store.set(f"{key}/{setup.rank}", value)
    return [store.get(f"{key}/{rank}").decode() for rank in range(setup.world)]


def name_interface(store: Any, setup: Setup, master: str) -> None:
    """Set gloo's interface to the one on the way to rank 0, where it is not set: gloo takes what the host's name means.

    On Debian that is 127.0.1.1, which no other host reaches. Rank 0's host may know MASTER_ADDR so,
    too: who does goes by the first rank that came from elsewhere. All ranks must come here.
    """
    own = ""
    with contextlib.suppress(OSError):  # a name that only the others know
        own = address_towards(master)
    outward = "" if own.startswith("127.") else own
    elsewhere = next(filter(None, from_all(store, setup, "address", outward)), "")
    if elsewhere and not os.environ.get(GLOO_INTERFACE):
        name = interface_of(outward or address_towards(elsewhere))
        if name:
            os.environ[GLOO_INTERFACE] = name


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
        """Queue a product of matrices on a GPU."""
        if self._device.type == "cuda":
            torch.mm(self._matrix, self._matrix)
        else:
            super().compute()


class Working(Pending):
    """A Work of torch.distributed."""

    def __init__(self, work: Any) -> None:
        self._work = work

    def test(self) -> bool:
        """Asking brings nothing forward: gloo's threads and NCCL's kernels work without being asked."""
        return bool(self._work.is_completed())

    def wait(self) -> None:
        """On a GPU this only orders the stream."""
        self._work.wait()


class Call(NamedTuple):
    """An operation's function, and whether a rank gives and takes all of the numbers, or its part of them."""

    run: Callable[[Tensor, Tensor, bool], Any]  # (given, taken, whether only to begin) -> torch's Work
    in_place: bool = False
    gives_share: bool = False
    takes_share: bool = False


class Collective(Exchange):
    """A call of torch.distributed on tensors of its own."""

    def __init__(self, call: Call, count: int, device: torch.device, dtype: torch.dtype) -> None:
        share = count // dist.get_world_size()
        self._call = call.run
        self._given = torch.zeros(share if call.gives_share else count, device=device, dtype=dtype)
        self._taken = self._given
        if not call.in_place:
            self._taken = torch.zeros(share if call.takes_share else count, device=device, dtype=dtype)

    def fill(self, values: np.ndarray) -> None:
        self._given.copy_(torch.from_numpy(values))

    def result(self) -> np.ndarray:
        return self._taken.float().cpu().numpy()  # type: ignore[no-any-return]

    def run(self) -> None:
        """Wait for the call; on a GPU queue it."""
        self._call(self._given, self._taken, False)

    def begin(self) -> Pending:
        return Working(self._call(self._given, self._taken, True))


def there_and_back(given: Tensor, taken: Tensor, begin: bool) -> None:
    """Send between rank 0 and the last one: what came goes back."""
    if begin:
        raise Unsupported("a message there and back waits for its first half")
    rank = dist.get_rank()
    last = dist.get_world_size() - 1
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
