"""Parameter servers over torch.distributed.rpc: some ranks, or all, serve a share of the parameters each."""

import os
import socket
import threading
import warnings
from typing import Any, Dict, List, Sequence, Set, Tuple

import torch
import torch.distributed as dist
from torch.distributed import rpc

from adapters.pytorch.comm import GLOO_INTERFACE
from adapters.pytorch.optimisers import make_optimiser
from suite.worker.contract import Setup
from suite.worker.rendezvous import free_port, meeting_place

CALLS_INTERFACE = "TP_SOCKET_IFNAME"  # TensorPipe's; unset, it takes what the host's own name means
PATIENCE = 1e6  # seconds: a call waits for the slowest rank, and who waits too long is the launcher's affair

OVER_WIRES = {"_transports": ["ibv", "uv"], "_channels": ["mpt_uv", "basic"]}

_served: Dict[str, Any] = {}  # what this process serves; calls come in threads of torch's


class Share:
    """Some of the parameters, with their optimiser, in host memory."""

    def __init__(self, tensors: Sequence[torch.Tensor], setup: Setup) -> None:
        """Copies of a worker's parameters; the knob `backups` says how many ranks' gradients no step waits for."""
        self._tensors = [torch.nn.Parameter(tensor.detach().to("cpu", copy=True)) for tensor in tensors]
        self._optimiser = make_optimiser(self._tensors, setup.optimiser, setup.tuned) if tensors else None
        self._lock, self._updates, self.dropped = threading.Lock(), 0, 0
        self._world, self._wanted = setup.world, max(1, setup.world - int(setup.knobs["backups"]))
        self._given: Dict[int, Sequence[torch.Tensor]] = {}
        self._resting: Set[int] = set()
        self._answer: Any = torch.futures.Future()

    def push_together(self, rank: int, step: int, gradients: Sequence[torch.Tensor], apply: bool) -> Any:
        """Take a rank's gradients of a step; a future of (new weights or mean gradients, steps so far, if dropped).

        It waits for all ranks but the backups. Gradients of a step that is over are dropped: Chen et al. 2016,
        "Revisiting distributed synchronous SGD" (arXiv 1604.00981).
        """
        with self._lock:
            self._resting.discard(rank)
            if step < self._updates:
                self.dropped += 1
                late: Any = torch.futures.Future()
                late.set_result((self._copies(), self._updates, True))
                return late
            answer, self._given[rank] = self._answer, gradients
            found = self._joined(apply)
        return _answered([answer] if found else [], answer, found)

    def rest(self, rank: int) -> None:
        """Let no rank wait for this one until it pushes again, or all rest."""
        with self._lock:
            self._resting.add(rank)
            answer, found = self._answer, self._joined(apply=True)
            if len(self._resting) == self._world:
                self._resting.clear()
        _answered([answer] if found else [], answer, found)

    def _joined(self, apply: bool) -> Any:
        """Return the answer to the ranks that wait, where no more are to come; else None."""
        if len(self._given) < max(1, min(self._wanted, self._world - len(self._resting))):
            return None
        given, self._given, self._answer = self._given, {}, torch.futures.Future()
        # In the ranks' order: the same sum in every run.
        self._take([given[each] for each in sorted(given)], len(given))
        if not apply:
            return [tensor.grad for tensor in self._tensors], self._updates, False
        self._update()
        alone = self._wanted == self._world  # then no rank pushes before all have these
        return [tensor.detach() for tensor in self._tensors] if alone else self._copies(), self._updates, False

    def push_alone(self, gradients: Sequence[torch.Tensor]) -> Tuple[List[torch.Tensor], int]:
        """Apply one rank's share of the global batch's gradients at once; returns new weights and updates so far."""
        with self._lock:
            self._take([gradients], self._world)
            self._update()
            return self._copies(), self._updates

    def _take(self, given: Sequence[Sequence[torch.Tensor]], count: int) -> None:
        """The sum of some ranks' means over a number of ranks."""
        for tensor, row in zip(self._tensors, zip(*given)):
            # In the parameter's own layout: fused optimisers take it for the gradient's without a look.
            tensor.grad = torch.empty_like(tensor).copy_(row[0])
            for more in row[1:]:
                tensor.grad.add_(more)
            tensor.grad.div_(count)

    def _update(self) -> None:
        if self._optimiser is not None:
            self._optimiser.step()
        self._updates += 1

    def _copies(self) -> List[torch.Tensor]:
        """While these travel the next gradients may come."""
        return [tensor.detach().clone() for tensor in self._tensors]


class Clocks:
    """How many steps each worker has made: who is more than `bound` ahead of the slowest one waits for it.

    Bounded staleness: Ho et al. 2013, "More effective distributed ML via a stale synchronous parallel parameter
    server".
    """

    def __init__(self, world: int, bound: int) -> None:
        """Kept by rank 0."""
        self._steps, self._bound, self._lock = [0] * world, bound, threading.Lock()
        self._resting: Set[int] = set()
        self._waiting: List[Tuple[int, Any]] = []

    def tick(self, rank: int) -> Any:
        """A rank has made a step; a future of the moment when it may make the next one."""
        answer: Any = torch.futures.Future()
        with self._lock:
            self._resting.discard(rank)
            self._steps[rank] += 1
            self._waiting.append((self._steps[rank], answer))
            free = self._free()
        return _answered(free, answer)

    def rest(self, rank: int) -> Any:
        """Let no rank wait for this one until it ticks again. When all rest, all are even again."""
        answer: Any = torch.futures.Future()
        with self._lock:
            self._resting.add(rank)
            free = [*self._free(), answer]
            if len(self._resting) == len(self._steps):
                self._steps = [0] * len(self._steps)
                self._resting.clear()
        return _answered(free, answer)

    def _free(self) -> List[Any]:
        moving = [steps for rank, steps in enumerate(self._steps) if rank not in self._resting]
        most = min(moving, default=max(self._steps)) + self._bound
        free = [answer for steps, answer in self._waiting if steps <= most]
        self._waiting = [(steps, answer) for steps, answer in self._waiting if steps > most]
        return free


def _answered(free: List[Any], answer: Any, found: Any = None) -> Any:
    """After the lock is given back: what waits for an answer may call again at once."""
    for each in free:
        each.set_result(found)
    return answer


def serve(share: Share, clocks: Clocks) -> None:
    """Answer with these from now on; callers must be kept away until all ranks do."""
    _served.update(share=share, clocks=clocks)


def forget() -> None:
    _served.clear()


@rpc.functions.async_execution
def push_together(rank: int, step: int, gradients: List[torch.Tensor], apply: bool) -> Any:
    """`Share.push_together` of the rank that is called."""
    return _served["share"].push_together(rank, step, gradients, apply)


def push_alone(gradients: List[torch.Tensor]) -> Tuple[List[torch.Tensor], int]:
    """`Share.push_alone` of the rank that is called."""
    found: Tuple[List[torch.Tensor], int] = _served["share"].push_alone(gradients)
    return found


@rpc.functions.async_execution
def tick(rank: int) -> Any:
    """`Clocks.tick` of the rank that is called."""
    return _served["clocks"].tick(rank)


@rpc.functions.async_execution
def rest(rank: int) -> Any:
    """`Share.rest` and `Clocks.rest` of the rank that is called."""
    _served["share"].rest(rank)
    return _served["clocks"].rest(rank)


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
