"""The process group, and the staged exchange of gradients.

Oldest Python: 3.6.
"""

import contextlib
import os
from datetime import timedelta
from typing import Any, List, Sequence, Tuple

import torch
import torch.distributed as dist

# Before any group exists: the defaults of its functions name the group of the moment, and
# DDP, which imports it when first used, would tie the group to them for ever.
import torch.distributed.nn

from suite.worker.trainer import Setup
from suite.worker.wire import address_towards, interface_of

GLOO_INTERFACE = "GLOO_SOCKET_IFNAME"
MEET = timedelta(minutes=30)  # torch's own limit; the controller's watchdog is long awake


class Group:
    """torch.distributed as one rank sees it."""

    def __init__(self, setup: Setup) -> None:
        """Join by MASTER_ADDR and MASTER_PORT; ValueError when the launcher has not set them."""
        missing = [name for name in ("MASTER_ADDR", "MASTER_PORT") if not os.environ.get(name)]
        if missing:
            raise ValueError(
                "%s is not set, and 'ddp' meets there; a launcher sets it, by hand: MASTER_ADDR=127.0.0.1 "
                "MASTER_PORT=29500" % missing[0]
            )
        backend = "nccl" if setup.device == "cuda" else "gloo"
        address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        store = dist.TCPStore(address, port, setup.world, setup.rank == 0, MEET)
        name_interface(store, setup.rank, setup.world, address)
        dist.init_process_group(backend, store=store, rank=setup.rank, world_size=setup.world)
        self.rank, self.world, self.transport = dist.get_rank(), dist.get_world_size(), str(dist.get_backend())
        # The loop's questions are about host numbers: they must not touch the device's queue.
        self._host: Any = dist.group.WORLD if backend == "gloo" else dist.new_group(backend="gloo")

    def maximum(self, value: float) -> float:
        """The largest value over all ranks."""
        cell = torch.tensor([value], dtype=torch.float64)
        dist.all_reduce(cell, dist.ReduceOp.MAX, group=self._host)
        return cell.item()

    def barrier(self) -> None:
        """Return when the hosts of all ranks have come."""
        dist.barrier(group=self._host)

    def close(self) -> None:
        """Leave together: the first to go may host the store that the others still ask."""
        dist.barrier(group=self._host)
        self._host = None
        dist.destroy_process_group()


def name_interface(store: Any, rank: int, world: int, master: str) -> None:
    """Tell gloo the interface on the way to rank 0, where nobody has: it takes what the host's own name means.

    On Debian that is 127.0.1.1, which no other host reaches. Rank 0's host may know MASTER_ADDR so,
    too: who does goes by the first rank that came from elsewhere. All ranks must come here.
    """
    own = ""
    with contextlib.suppress(OSError):  # a name that only the others know
        own = address_towards(master)
    outward = "" if own.startswith("127.") else own
    store.set("address/%d" % rank, outward)
    known = [store.get("address/%d" % each).decode() for each in range(world)]
    elsewhere = next((each for each in known if each), "")
    if not elsewhere or os.environ.get(GLOO_INTERFACE):
        return
    name = interface_of(outward or address_towards(elsewhere))
    if name:
        os.environ[GLOO_INTERFACE] = name


class Exchange:
    """Averages gradients as DDP does - scaled, copied into flat buckets, all-reduced - but all at once.

    Buckets follow DDP's order (last layers first) and sizes, so that `comm_only` measures
    what the native step has to hide.
    """

    def __init__(self, parameters: Sequence[torch.Tensor], world: int, limits: Tuple[int, ...]) -> None:
        """`limits`: see `buckets`. The buckets are allocated when they are first needed: a native run has DDP's own."""
        self._parameters, self._scale = list(reversed(parameters)), 1.0 / world
        self._flats: List[torch.Tensor] = []
        self._views: List[torch.Tensor] = []
        self._local: List[torch.Tensor] = []
        self._limits = limits

    def average(self) -> None:
        """Replace every `.grad` by the ranks' average; asked again, it averages the same gradients again."""
        if not self._flats:
            for bucket in buckets(self._parameters, self._limits):
                self._allocate(bucket)
        if not self._local:
            self._local = [parameter.grad for parameter in self._parameters]  # type: ignore[misc]
        for view, gradient in zip(self._views, self._local):
            torch.mul(gradient, self._scale, out=view)
        for work in [dist.all_reduce(flat, async_op=True) for flat in self._flats]:
            work.wait()
        for parameter, view in zip(self._parameters, self._views):
            parameter.grad = view

    def forget(self) -> None:
        """Drop the local gradients: the next `average` takes new ones."""
        self._local = []

    def _allocate(self, bucket: List[torch.Tensor]) -> None:
        flat = torch.zeros(sum(x.numel() for x in bucket), dtype=bucket[0].dtype, device=bucket[0].device)
        begin = 0
        for parameter in bucket:
            # With the parameter's own strides: a gradient in channels_last is copied straight.
            self._views.append(flat.as_strided(parameter.size(), parameter.stride(), begin))
            begin += parameter.numel()
        self._flats.append(flat)


def limits_of(ddp: Any) -> Tuple[int, ...]:
    """The bytes after which a DistributedDataParallel closes its buckets: the first one, the others."""
    # A first bucket that is small lets the exchange begin early. Older releases of torch always make one,
    # newer ones where nobody set bucket_cap_mb, and their DDP remembers which.
    small_first = getattr(ddp, "bucket_bytes_cap_default", True)
    return (dist._DEFAULT_FIRST_BUCKET_BYTES,) * small_first + (ddp.bucket_bytes_cap,)


def buckets(tensors: Sequence[torch.Tensor], limits: Sequence[int]) -> List[List[torch.Tensor]]:
    """Neighbours joined until a bucket has reached its limit in bytes, DDP's rule; the last limit is the rest's too."""
    result: List[List[torch.Tensor]] = []
    room = 0
    for tensor in tensors:
        if room <= 0:
            room = limits[min(len(result), len(limits) - 1)]
            result.append([])
        result[-1].append(tensor)
        room -= tensor.numel() * tensor.element_size()
    return result
