"""`parameter_server`: ranks serve a share of the parameters each; gradients go there, weights come back."""

from typing import Any, Dict, List, Optional

import numpy as np
import torch
from torch.distributed import rpc

from adapters.pytorch import servers
from adapters.pytorch.base import to_numpy
from adapters.pytorch.optimisers import make_optimiser
from adapters.pytorch.replica import ReplicaTrainer
from suite.worker.contract import Batch, Joined, Setup
from suite.worker.staleness import Staleness


class ParameterServer(ReplicaTrainer):
    """A worker next to its rank's server; sending, the servers' update and receiving make up the stage `update`."""

    def __init__(self, setup: Setup) -> None:
        """Synchronous servers wait for all ranks' gradients but `backups`, asynchronous ones for none."""
        super().__init__(setup)
        self._synchronous, self._bound = setup.knobs["mode"] == "sync", setup.knobs["staleness"]
        self._freely = not self._synchronous or setup.knobs["backups"] > 0  # workers take as many steps as they can
        asked = setup.knobs["server_ranks"]
        self._servers = setup.world if asked == "all" else min(int(asked), setup.world)
        self._own: Any = None

    def start(self) -> Joined:
        joined = super().start()
        servers.open_calls(self.setup)
        return joined._replace(transport="tensorpipe")  # the group's own carries no gradient

    def step_alone(self, batch: Batch) -> None:
        """With an optimiser of this rank's own; the next whole step brings the servers' weights back."""
        if self._own is None:
            self._own = make_optimiser(self._tensors, self.setup.optimiser, self._fused)
        _, loss = self._evaluate(self._staged_net, batch)
        loss.backward()
        self._own.step()
        self._own.zero_grad(set_to_none=True)
        self._loss = loss.detach()

    def gradients(self) -> Dict[str, np.ndarray]:
        """The means that the servers would apply; asynchronous: this rank's own."""
        if not self._synchronous:
            return super().gradients()
        means = self._push_together(apply=False)
        names = [name for name, _ in self._net.trainable()]
        return {name: to_numpy(means[index]) for index, name in enumerate(names)}

    def maximum(self, value: float) -> float:
        """Take part as a worker that makes no steps: no other worker must wait for it."""
        if self._freely and self.setup.world > 1:
            rpc.rpc_sync(servers.name_of(0), servers.rest, args=(self.setup.rank,))
        return super().maximum(value)

    def begin_training(self) -> None:
        self._staleness.begin()

    def joint_steps(self) -> Optional[int]:
        """An update is a step of all ranks where the servers wait for some, else one rank's part of it."""
        return self._updates // (1 if self._synchronous else self.setup.world) if self._freely else None

    def dropped_steps(self) -> int:
        return self._dropped

    def notes(self) -> Dict[str, Any]:
        served = "every rank" if self._servers == self.setup.world else "each of %d ranks" % self._servers
        notes = dict(super().notes(), servers="a share of the parameters on %s, over torch.distributed.rpc" % served)
        if not self._synchronous:
            notes["servers"] += "; gradients are divided by the global batch"
        elif self._freely:
            notes["dropped"] = self._share.dropped  # gradients that came too late to this rank's server
        return dict(notes, **self._staleness.notes())

    def close(self) -> None:
        servers.close_calls()
        servers.forget()
        super().close()

    def _wrap(self) -> None:
        self._tensors = [tensor for _, tensor in self._net.trainable()]
        self._shares = servers.shares_of(self._tensors, self._servers)
        own = self._shares[self.setup.rank] if self.setup.rank < self._servers else []
        self._share = servers.Share([self._tensors[index] for index in own], self.setup)
        servers.serve(self._share, servers.Clocks(self.setup.world, int(self._bound) if self._bounded else 0))
        self._staleness, self._updates, self._dropped = Staleness(), 0, 0
        self.group.maximum(0.0)  # every server is there

    def _make_optimiser(self, parameters: List[torch.Tensor]) -> Any:
        return None  # the servers'

    def _optimise(self) -> None:
        weights = self._push_together(apply=True) if self._synchronous else self._push_alone()
        with torch.no_grad():
            for index, tensor in enumerate(self._tensors):
                tensor.copy_(weights[index])
                tensor.grad = None

    @property
    def _bounded(self) -> bool:
        return not self._synchronous and self._bound != "any"

    def _push_together(self, apply: bool) -> Dict[int, torch.Tensor]:
        pushed = [(self.setup.rank, self._updates, each, apply) for each in self._pushed()]
        answers = self._called(servers.push_together, pushed)
        self._updates = min(updates for _, updates, _ in answers)
        self._dropped += answers[0][2]  # where steps may be dropped, there is one server
        return self._by_index([found for found, _, _ in answers])

    def _push_alone(self) -> Dict[int, torch.Tensor]:
        answers = self._called(servers.push_alone, [(each,) for each in self._pushed()])
        self._updates = min(updates for _, updates in answers)  # whole ones: every share has made them
        self._staleness.exchanged(self._updates)
        if self._bounded:
            rpc.rpc_sync(servers.name_of(0), servers.tick, args=(self.setup.rank,))
        return self._by_index([weights for weights, _ in answers])

    def _pushed(self) -> List[List[torch.Tensor]]:
        return [[self._tensors[index].grad.to("cpu") for index in share] for share in self._shares]  # type: ignore[union-attr]

    def _called(self, function: Any, arguments: List[Any]) -> List[Any]:
        calls = [rpc.rpc_async(servers.name_of(rank), function, args=each) for rank, each in enumerate(arguments)]
        return [call.wait() for call in calls]

    def _by_index(self, answers: List[List[torch.Tensor]]) -> Dict[int, torch.Tensor]:
        return {index: each for share, answer in zip(self._shares, answers) for index, each in zip(share, answer)}

    def _release(self) -> None:
        self._own = None
        super()._release()
