"""Parameter servers over torch.distributed.rpc: some ranks, or all, serve a share of the parameters each."""

import os
import socket
import threading
import warnings
from typing import Any, Dict, List, Optional, Sequence, Set, Tuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import rpc

from stagebench.adapters.pytorch.comm import GLOO_INTERFACE
from stagebench.adapters.pytorch.optimisers import make_optimiser
from stagebench.suite.worker.contract import Setup
from stagebench.suite.worker.rendezvous import free_port, meeting_place

Future = Any  # torch.futures.Future
Tensors = Sequence[Tensor]  # of a share's parameters, in their order: weights or gradients
Answer = Tuple[Tensors, int, bool]  # new weights, or mean gradients; the updates so far; whether a push was dropped

CALLS_INTERFACE = "TP_SOCKET_IFNAME"  # TensorPipe's; unset, it takes what the host's own name means
PATIENCE = 1e6  # seconds: a call waits for the slowest rank, and who waits too long is the launcher's affair

# Of TensorPipe's transports and channels those that use no memory of the host.
OVER_WIRES = {"_transports": ["ibv", "uv"], "_channels": ["mpt_uv", "basic"]}

_served: Dict[str, Any] = {}  # what this process serves; calls come in threads of torch's


class Share:
    """Some of the parameters, with their optimiser, in host memory."""

    def __init__(self, tensors: Tensors, setup: Setup) -> None:
        """Copy a worker's parameters; the knob `backups` says how many ranks' gradients no step waits for."""
        self._tensors = [torch.nn.Parameter(tensor.detach().to("cpu", copy=True)) for tensor in tensors]
        self._optimiser = make_optimiser(self._tensors, setup.optimiser, setup.tuned) if tensors else None
        self._lock = threading.Lock()
        self._updates = 0
        self.dropped = 0
        self._world = setup.world
        self._wanted = max(1, setup.world - int(setup.knobs["backups"]))
        self._given: Dict[int, Tensors] = {}  # gradients by rank
        self._resting: Set[int] = set()
        self._answer: Future = torch.futures.Future()  # of all ranks that wait

    def push_together(self, rank: int, step: int, gradients: Tensors, apply: bool) -> Future:
        """Take a rank's gradients of a step; return a future `Answer`: means unless these are to `apply`.

        It waits for all ranks but the backups. Gradients of a step that is over are dropped: Chen et al. 2016,
        "Revisiting distributed synchronous SGD" (arXiv 1604.00981).
        """
        with self._lock:
            self._resting.discard(rank)
            if step < self._updates:
                self.dropped += 1
                return known((self._copies(), self._updates, True))
            answer = self._answer
            self._given[rank] = gradients
            found = self._joined(apply)
        if found is not None:
            answer.set_result(found)  # after the lock is given back: what waits may call again at once
        return answer

    def rest(self, rank: int) -> None:
        """Let no rank wait for this one until it pushes again, or all rest."""
        with self._lock:
            self._resting.add(rank)
            answer = self._answer
            found = self._joined(apply=True)
            if len(self._resting) == self._world:
                self._resting.clear()
        if found is not None:
            answer.set_result(found)

    def push_alone(self, gradients: Tensors) -> Future:
        """Apply one rank's share of the global batch's gradients at once; return an `Answer`, known already."""
        with self._lock:
            self._take([gradients], self._world)
            self._update()
            return known((self._copies(), self._updates, False))

    def _joined(self, apply: bool) -> Optional[Answer]:
        """Return the answer to the ranks that wait, where no more are to come; else None."""
        if len(self._given) < max(1, min(self._wanted, self._world - len(self._resting))):
            return None
        given = self._given
        self._given = {}
        self._answer = torch.futures.Future()
        # In the ranks' order: the same sum in every run.
        self._take([given[rank] for rank in sorted(given)], len(given))
        if not apply:
            return [tensor.grad for tensor in self._tensors], self._updates, False
        self._update()
        if self._wanted < self._world:
            return self._copies(), self._updates, False
        # No rank pushes before all have these.
        return [tensor.detach() for tensor in self._tensors], self._updates, False

    def _take(self, given: Sequence[Tensors], count: int) -> None:
        """Set the gradients to the sum of some ranks' means over a number of ranks."""
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

    def _copies(self) -> Tensors:
        """Return copies of the weights: while these travel the next gradients may come."""
        return [tensor.detach().clone() for tensor in self._tensors]


class Clocks:
    """The steps that each worker has made: who is more than `bound` ahead of the slowest one waits for it.

    Bounded staleness: Ho et al. 2013, "More effective distributed ML via a stale synchronous parallel parameter
    server". Rank 0 keeps them.
    """

    def __init__(self, world: int, bound: int) -> None:
        self._steps = [0] * world
        self._bound = bound
        self._lock = threading.Lock()
        self._resting: Set[int] = set()
        self._waiting: List[Tuple[int, Future]] = []  # steps made, answer

    def tick(self, rank: int) -> Future:
        """Note a rank's step; return a future of the moment when it may make the next one."""
        answer: Future = torch.futures.Future()
        with self._lock:
            self._resting.discard(rank)
            self._steps[rank] += 1
            self._waiting.append((self._steps[rank], answer))
            free = self._free()
        for waiting in free:  # after the lock is given back: a worker may tick again at once
            waiting.set_result(None)
        return answer

    def rest(self, rank: int) -> Future:
        """Let no rank wait for this one until it ticks again. When all rest, all are even again."""
        with self._lock:
            self._resting.add(rank)
            free = self._free()
            if len(self._resting) == len(self._steps):
                self._steps = [0] * len(self._steps)
                self._resting.clear()
        for waiting in free:
            waiting.set_result(None)
        return known(None)

    def _free(self) -> List[Future]:
        moving = [steps for rank, steps in enumerate(self._steps) if rank not in self._resting]
        most = min(moving, default=max(self._steps)) + self._bound
        free = [answer for steps, answer in self._waiting if steps <= most]
        self._waiting = [(steps, answer) for steps, answer in self._waiting if steps > most]
        return free


def known(value: Any) -> Future:
    """Return a future that has its value."""
    future = torch.futures.Future()  # type: Any
    future.set_result(value)
    return future


def serve(share: Share, clocks: Clocks) -> None:
    """Answer with these from now on; callers must be kept away until all ranks do."""
    _served.update(share=share, clocks=clocks)


def ask(rank: int, function: Any, *arguments: Any) -> Future:
    """Begin to call one of the functions below in another rank."""
    return rpc.rpc_async(f"rank{rank}", function, args=arguments)


@rpc.functions.async_execution
def push_together(rank: int, step: int, gradients: Tensors, apply: bool) -> Future:
    """Call `Share.push_together` of this process."""
    return _served["share"].push_together(rank, step, gradients, apply)


@rpc.functions.async_execution
def push_alone(gradients: Tensors) -> Future:
    """Call `Share.push_alone` of this process."""
    return _served["share"].push_alone(gradients)


@rpc.functions.async_execution
def tick(rank: int) -> Future:
    """Call `Clocks.tick` of this process."""
    return _served["clocks"].tick(rank)


@rpc.functions.async_execution
def rest(rank: int) -> Future:
    """Call `Share.rest` and `Clocks.rest` of this process."""
    _served["share"].rest(rank)
    return _served["clocks"].rest(rank)


def open_calls(setup: Setup) -> None:
    """Begin to answer calls; all ranks of the process group together, which finds a port for it."""
    name_interface()
    cell = [free_port() if setup.rank == 0 else 0]
    dist.broadcast_object_list(cell, 0)
    host, _ = meeting_place("PyTorch's ranks")
    hosts: List[Any] = [None] * setup.world
    dist.all_gather_object(hosts, socket.gethostname())
    # Hosts that share a kernel, such as containers and network namespaces, would be taken for one machine, and
    # gradients would go through its memory.
    apart = setup.world > 1 and len(set(hosts)) == setup.world
    options = rpc.TensorPipeRpcBackendOptions(
        num_worker_threads=setup.world + 1,
        rpc_timeout=PATIENCE,
        init_method=f"tcp://{host}:{cell[0]}",
        **(OVER_WIRES if apart else {}),
    )
    with warnings.catch_warnings():
        # torch makes the calls' own group in a way that torch itself warns of (2.13).
        warnings.filterwarnings("ignore", "You are using a Backend", UserWarning)
        name = f"rank{setup.rank}"
        rpc.init_rpc(name, rank=setup.rank, world_size=setup.world, rpc_backend_options=options)


def name_interface() -> None:
    """Calls take the group's interface unless another is named: a host's own name may mean one that leads nowhere."""
    found = os.environ.get(GLOO_INTERFACE, "").split(",")[0]  # gloo takes several
    if found:
        os.environ.setdefault(CALLS_INTERFACE, found)


def close_calls() -> None:
    """Stop answering when all ranks have come here."""
    rpc.shutdown()
    _served.clear()


def shares_of(tensors: Tensors, count: int) -> List[List[int]]:
    """Return indices of the tensors by share, of sizes as even as whole tensors allow."""
    shares: List[List[int]] = [[] for _ in range(count)]
    loads = [0] * count
    for index in sorted(range(len(tensors)), key=lambda index: -tensors[index].numel()):
        lightest = loads.index(min(loads))
        shares[lightest].append(index)
        loads[lightest] += tensors[index].numel()
    return [sorted(share) for share in shares]
