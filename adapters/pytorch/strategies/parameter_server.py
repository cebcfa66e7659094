"""`parameter_server`: ranks serve a share of the parameters each; gradients go there, weights come back."""

from typing import Any, List, Optional

import torch
from torch import Tensor

from stagebench.adapters.pytorch import servers
from stagebench.adapters.pytorch.base import to_numpy
from stagebench.adapters.pytorch.optimisers import make_optimiser
from stagebench.adapters.pytorch.replica import ReplicaTrainer
from stagebench.suite.worker.contract import Batch, Joined, Setup
from stagebench.suite.worker.staleness import Staleness
from stagebench.suite.worker.trainer import Arrays, Notes


class ParameterServer(ReplicaTrainer):
    """A worker next to its rank's server; sending, the servers' update and receiving make up the stage `update`."""

    _own: Any = None  # an optimiser of this rank's own, for steps without exchange

    def __init__(self, setup: Setup) -> None:
        """Synchronous servers wait for all ranks' gradients but `backups`, asynchronous ones for none."""
        super().__init__(setup)
        self._synchronous = setup.knobs["mode"] == "sync"
        self._freely = not self._synchronous or setup.knobs["backups"] > 0  # workers take as many steps as they can
        staleness = setup.knobs["staleness"]
        self._bound = None if self._synchronous or staleness == "any" else int(staleness)
        asked = setup.knobs["server_ranks"]
        self._servers = setup.world if asked == "all" else min(int(asked), setup.world)

    def start(self) -> Joined:
        joined = super().start()
        servers.open_calls(self.setup)
        return joined._replace(transport="tensorpipe")  # the group's own carries no gradient

    def step_alone(self, batch: Batch) -> None:
        """Step with an optimiser of this rank's own; the next whole step brings the servers' weights back."""
        if self._own is None:
            self._own = make_optimiser(self._tensors, self.setup.optimiser, self._fused)
        _, loss = self._evaluate(self._staged_net, batch)
        loss.backward()
        self._own.step()
        self._own.zero_grad(set_to_none=True)
        self._loss = loss.detach()

    def gradients(self) -> Arrays:
        """Return the means that the servers would apply; asynchronous: this rank's own."""
        if not self._synchronous:
            return super().gradients()
        means = self._exchanged(apply=False)
        return {name: to_numpy(mean) for (name, _), mean in zip(self._net.trainable(), means)}

    def maximum(self, value: float) -> float:
        """Take part as a worker that makes no steps: no other worker must wait for it."""
        if self._freely and self.setup.world > 1:
            servers.ask(0, servers.rest, self.setup.rank).wait()
        return super().maximum(value)

    def begin_training(self) -> None:
        self._staleness.begin()

    def joint_steps(self) -> Optional[int]:
        """Return None where servers wait for all; an update is a step of all ranks, or one rank's part of it."""
        if not self._freely:
            return None
        return self._updates if self._synchronous else self._updates // self.setup.world

    def dropped_steps(self) -> int:
        return self._dropped

    def notes(self) -> Notes:
        served = "every rank" if self._servers == self.setup.world else f"each of {self._servers} ranks"
        notes = dict(super().notes(), servers=f"a share of the parameters on {served}, over torch.distributed.rpc")
        if not self._synchronous:
            notes["servers"] += "; gradients are divided by the global batch"
        elif self._freely:
            notes["dropped"] = self._share.dropped  # gradients that came too late to this rank's server
        return dict(notes, **self._staleness.notes())

    def close(self) -> None:
        servers.close_calls()
        super().close()

    def _wrap(self) -> None:
        rank = self.setup.rank
        self._tensors = [tensor for _, tensor in self._net.trainable()]
        self._shares = servers.shares_of(self._tensors, self._servers)
        own = self._shares[rank] if rank < self._servers else []
        self._share = servers.Share([self._tensors[index] for index in own], self.setup)
        servers.serve(self._share, servers.Clocks(self.setup.world, self._bound or 0))
        self._staleness = Staleness()
        self._updates = 0
        self._dropped = 0
        self.group.maximum(0.0)  # every server is there

    def _make_optimiser(self, parameters: List[Tensor]) -> Any:
        return None  # the servers'

    def _optimise(self) -> None:
        weights = self._exchanged(apply=True)
        with torch.no_grad():
            for tensor, weight in zip(self._tensors, weights):
                tensor.copy_(weight)
                tensor.grad = None

    def _exchanged(self, apply: bool) -> List[Any]:
        """Push all gradients, and return the new weights, or the gradients' means, of all parameters."""
        rank = self.setup.rank
        calls = []
        for server, share in enumerate(self._shares):
            gradients = [self._tensors[index].grad.to("cpu") for index in share]  # type: ignore[union-attr]
            if self._synchronous:
                calls.append(servers.ask(server, servers.push_together, rank, self._updates, gradients, apply))
            else:
                calls.append(servers.ask(server, servers.push_alone, gradients))
        answers = [call.wait() for call in calls]
        self._updates = min(updates for _, updates, _ in answers)  # whole ones: every share has made them
        self._dropped += answers[0][2]  # where steps may be dropped, there is one server
        if not self._synchronous:
            self._staleness.exchanged(self._updates)
            if self._bound is not None:
                servers.ask(0, servers.tick, rank).wait()
        found: List[Any] = [None] * len(self._tensors)
        for share, (tensors, _, _) in zip(self._shares, answers):
            for index, tensor in zip(share, tensors):
                found[index] = tensor
        return found

    def _release(self) -> None:
        self._own = None
        super()._release()
