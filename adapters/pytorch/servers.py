"""Parameter servers over torch.distributed.rpc: every rank serves a share of the parameters."""

import os
import socket
import threading
import warnings
from typing import Any, Dict, List, Sequence, Tuple

import torch
import torch.distributed as dist
from torch.distributed import rpc

from adapters.pytorch.group import GLOO_INTERFACE
from adapters.pytorch.optimisers import make_optimiser
from suite.worker.contract import Setup
from suite.worker.rendezvous import free_port, meeting_place

CALLS_INTERFACE = "TP_SOCKET_IFNAME"  # TensorPipe's; unset, it takes what the host's own name means
PATIENCE = 1e6  # seconds: a call waits for the slowest rank, and who waits too long is the launcher's affair

OVER_WIRES = {"_transports": ["ibv", "uv"], "_channels": ["mpt_uv", "basic"]}

_served: Dict[str, "Share"] = {}  # what this process serves; calls come in threads of torch's


class Share:
    """Some of the parameters, with their optimiser, in host memory."""

    def __init__(self, tensors: Sequence[torch.Tensor], setup: Setup) -> None:
        """Copies of a worker's parameters."""
        self._tensors = [torch.nn.Parameter(tensor.detach().to("cpu", copy=True)) for tensor in tensors]
        self._optimiser = make_optimiser(self._tensors, setup.optimiser, setup.tuned) if tensors else None
        self._world, self._lock, self._updates = setup.world, threading.Lock(), 0
        self._given: Dict[int, Sequence[torch.Tensor]] = {}
        self._answer: Any = torch.futures.Future()

    def push_together(self, rank: int, gradients: Sequence[torch.Tensor], apply: bool) -> Any:
        """Take a rank's gradients; a future of the new weights, or mean gradients, that waits for all ranks'."""
        with self._lock:
            self._given[rank], answer = gradients, self._answer
            if len(self._given) < self._world:
                return answer
            given, self._given, self._answer = self._given, {}, torch.futures.Future()
        # In the ranks' order: the same sum in every run.
        self._take([given[each] for each in range(self._world)])
        gradients = [tensor.grad for tensor in self._tensors]  # type: ignore[misc]
        answer.set_result(self._updated() if apply else gradients)
        return answer

    def push_alone(self, gradients: Sequence[torch.Tensor]) -> Tuple[List[torch.Tensor], int]:
        """Apply one rank's share of the global batch's gradients at once; returns new weights and updates so far."""
        with self._lock:
            self._take([gradients])
            weights = self._updated()
            self._updates += 1
            # Copies: while these travel the next gradients may come.
            return [tensor.clone() for tensor in weights], self._updates

    def _take(self, given: Sequence[Sequence[torch.Tensor]]) -> None:
        """The sum of some ranks' means over the number of all ranks."""
        for tensor, row in zip(self._tensors, zip(*given)):
            # In the parameter's own layout: fused optimisers take it for the gradient's without a look.
            tensor.grad = torch.empty_like(tensor).copy_(row[0])
            for more in row[1:]:
                tensor.grad.add_(more)
            tensor.grad.div_(self._world)

    def _updated(self) -> List[torch.Tensor]:
        if self._optimiser is not None:
            self._optimiser.step()
        return [tensor.detach() for tensor in self._tensors]


def serve(share: Share) -> None:
    """Answer with this share from now on; callers must be kept away until all ranks do."""
    _served["share"] = share


def forget() -> None:
    _served.clear()


@rpc.functions.async_execution
def push_together(rank: int, gradients: List[torch.Tensor], apply: bool) -> Any:
    """`Share.push_together` of the rank that is called."""
    return _served["share"].push_together(rank, gradients, apply)


def push_alone(gradients: List[torch.Tensor]) -> Tuple[List[torch.Tensor], int]:
    """`Share.push_alone` of the rank that is called."""
    return _served["share"].push_alone(gradients)


def name_of(rank: int) -> str:
    return "rank%d" % rank


def open_calls(setup: Setup) -> None:
    """Begin to answer calls; all ranks of the process group together, which finds a port for it."""
    name_interface()
    cell = [free_port() if setup.rank == 0 else 0]
    dist.broadcast_object_list(cell, 0)
    host, _ = meeting_place("PyTorch's ranks")
    options = rpc.TensorPipeRpcBackendOptions(
        num_worker_threads=setup.world + 1,
        rpc_timeout=PATIENCE,
        init_method="tcp://%s:%d" % (host, cell[0]),
        **transports(setup.world),
    )
    with warnings.catch_warnings():
        # torch makes the calls' own group in a way that torch itself warns of (2.13).
        warnings.filterwarnings("ignore", "You are using a Backend", UserWarning)
        rpc.init_rpc(name_of(setup.rank), rank=setup.rank, world_size=setup.world, rpc_backend_options=options)


def transports(world: int) -> Dict[str, List[str]]:
    """Which of TensorPipe's transports and channels to choose from: all, unless every rank has a host of its own.

    Hosts that share a kernel, such as containers and network namespaces, would be taken for one machine, and
    gradients would go through its memory.
    """
    hosts: List[Any] = [None] * world
    dist.all_gather_object(hosts, socket.gethostname())
    return dict(OVER_WIRES) if world > 1 and len(set(hosts)) == world else {}


def name_interface() -> None:
    """Calls take the group's interface unless another is named: a host's own name may mean one that leads nowhere."""
    found = os.environ.get(GLOO_INTERFACE, "").split(",")[0]  # gloo takes several
    if found:
        os.environ.setdefault(CALLS_INTERFACE, found)


def close_calls() -> None:
    """When all ranks have come here."""
    rpc.shutdown()


def shares_of(tensors: Sequence[torch.Tensor], count: int) -> List[List[int]]:
    """Indices of the tensors by share, of sizes as even as whole tensors allow."""
    shares: List[List[int]] = [[] for _ in range(count)]
    loads = [0] * count
    for index in sorted(range(len(tensors)), key=lambda each: -tensors[each].numel()):
        lightest = loads.index(min(loads))
        shares[lightest].append(index)
        loads[lightest] += tensors[index].numel()
    return [sorted(share) for share in shares]
