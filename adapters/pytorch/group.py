"""The process group: where ranks meet, over which interface, and the smaller groups of a pipeline."""

import contextlib
import os
from datetime import timedelta
from typing import Any, Dict, List

import torch
import torch.distributed as dist

# Before any group exists: the defaults of its functions name the group of the moment, and
# DDP, which imports it when first used, would tie the group to them for ever.
import torch.distributed.nn

from suite.worker.contract import Group, Setup
from suite.worker.gpus import driven
from suite.worker.rendezvous import address_towards, interface_of, meeting_place

GLOO_INTERFACE = "GLOO_SOCKET_IFNAME"
MEET = timedelta(minutes=30)  # torch's own limit; the controller's watchdog is long awake


class ProcessGroup(Group):
    """torch.distributed as one rank sees it."""

    def __init__(self, setup: Setup) -> None:
        """Join at `meeting_place`; ValueError when the launcher has not set it."""
        address, port = meeting_place("PyTorch's ranks")
        store = dist.TCPStore(address, port, setup.world, setup.rank == 0, MEET)
        backend = "nccl" if setup.device == "cuda" and not shared_gpus(store, setup) else "gloo"
        name_interface(store, setup.rank, setup.world, address)
        dist.init_process_group(backend, store=store, rank=setup.rank, world_size=setup.world)
        self.rank, self.world, self.transport = dist.get_rank(), dist.get_world_size(), str(dist.get_backend())
        # The loop's questions are about host numbers: they must not touch the device's queue.
        self._host: Any = dist.group.WORLD if backend == "gloo" else dist.new_group(backend="gloo")
        self._groups: Dict[str, Any] = {}

    def pipeline(self, stages: int) -> Any:
        """The group of the ranks that hold one network with this one; all ranks must ask."""
        return self._subgroup("pipeline", self._pipelines(stages), None)

    def pipeline_on_hosts(self, stages: int) -> Any:
        """The same ranks over gloo; all ranks must ask."""
        return self._subgroup("pipeline on hosts", self._pipelines(stages), "gloo")

    def same_stage(self, stages: int) -> Any:
        """The group of the ranks that hold the same stage of other networks; all ranks must ask."""
        return self._subgroup("stage", [list(range(stage, self.world, stages)) for stage in range(stages)], None)

    def _pipelines(self, stages: int) -> List[List[int]]:
        return [list(range(first, first + stages)) for first in range(0, self.world, stages)]

    def _subgroup(self, name: str, ranks: List[List[int]], backend: Any) -> Any:
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
        dist.barrier(group=self._host)
        self._host, self._groups = None, {}
        dist.destroy_process_group()


def shared_gpus(store: Any, setup: Setup) -> bool:
    """Whether ranks drive the same GPU, as far as that is allowed: NCCL refuses them. All ranks must come here."""
    if not setup.share_devices:
        return False
    store.set("gpus/%d" % setup.rank, ",".join(driven(setup)))
    known = [store.get("gpus/%d" % each).decode() for each in range(setup.world)]
    return "" in known or len(set(known)) < len(known)


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
