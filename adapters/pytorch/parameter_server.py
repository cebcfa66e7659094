"""`parameter_server`: gradients go to servers, weights come back.

Oldest Python: 3.6.
"""

from typing import Any, Dict, List, Optional

import numpy as np
import torch
from torch.distributed import rpc

from adapters.pytorch import servers
from adapters.pytorch.base import to_numpy
from adapters.pytorch.solvers import solver
from adapters.pytorch.whole import Whole
from suite.worker.contract import Joined, Setup


class ServedTrainer(Whole):
    """A worker beside its rank's server; sending, the servers' update and receiving make up the stage `update`."""

    meets = True

    def __init__(self, setup: Setup) -> None:
        """Synchronous: the servers wait for all ranks' gradients. Asynchronous: they take them as they come."""
        super().__init__(setup)
        self._sync = setup.knobs.get("mode", "sync") == "sync"
        self._own: Any = None
        self._last = 0  # updates that all shares had made when this rank got its weights
        self._stale: Optional[List[int]] = None  # updates of others a step, once they are counted

    def start(self) -> Joined:
        """The group, then the calls."""
        joined = super().start()
        servers.open_calls(self.setup)
        return joined._replace(transport="tensorpipe")  # the group's own carries no gradient

    def step_alone(self, batch: Any) -> None:
        """With an optimiser of this rank's own; the next whole step brings the servers' weights back."""
        if self._own is None:
            self._own = solver(self._tensors, self.setup.optimiser, self._tuned)
        _, loss = self._evaluate(self._alone, batch)
        loss.backward()
        self._own.step()
        self._own.zero_grad(set_to_none=True)
        self._loss = loss.detach()

    def gradients(self) -> Dict[str, np.ndarray]:
        """The means that the servers would apply; where they wait for nobody, this rank's own."""
        if not self._sync:
            return super().gradients()
        means = self._joined(apply=False)
        names = [name for name, _ in self._net.trainable()]
        return {name: to_numpy(means[index]) for index, name in enumerate(names)}

    def begin_training(self) -> None:
        """Count from now on: other passes push without training, or stop in between."""
        self._stale = []

    def notes(self) -> Dict[str, Any]:
        """Who serves, and how stale weights were."""
        notes = dict(super().notes(), servers="a share of the parameters on every rank, over torch.distributed.rpc")
        if not self._sync:
            notes["servers"] += "; gradients are divided by the global batch"
            if self._stale:
                mean = sum(self._stale) / float(len(self._stale))
                notes["staleness"] = {"mean": mean, "max": max(self._stale), "steps": len(self._stale)}
        return notes

    def close(self) -> None:
        """The calls end before the group does."""
        servers.close_calls()
        servers.forget()
        super().close()

    def _wrap(self) -> None:
        assert self._group is not None
        self._tensors = [tensor for _, tensor in self._net.trainable()]
        self._served = servers.shares_of(self._tensors, self.setup.world)
        servers.serve(servers.Share([self._tensors[index] for index in self._served[self.setup.rank]], self.setup))
        self._last, self._stale = 0, None
        self._group.maximum(0.0)  # every server is there

    def _solver(self, parameters: List[torch.Tensor]) -> Any:
        return None  # the servers'

    def _improve(self) -> None:
        weights = self._joined(apply=True) if self._sync else self._added()
        with torch.no_grad():
            for index, tensor in enumerate(self._tensors):
                tensor.copy_(weights[index])
                tensor.grad = None

    def _joined(self, apply: bool) -> Dict[int, torch.Tensor]:
        return self._received(self._asked(servers.joined, [(self.setup.rank, each, apply) for each in self._sent()]))

    def _added(self) -> Dict[int, torch.Tensor]:
        answers = self._asked(servers.added, [(each,) for each in self._sent()])
        now = min(updates for _, updates in answers)  # whole ones: every share has made them
        others, self._last = now - self._last - 1, now
        if self._stale is not None:
            self._stale.append(others)
        return self._received([weights for weights, _ in answers])

    def _sent(self) -> List[List[torch.Tensor]]:
        return [[self._tensors[index].grad.to("cpu") for index in share] for share in self._served]  # type: ignore[union-attr]

    def _asked(self, function: Any, arguments: List[Any]) -> List[Any]:
        calls = [rpc.rpc_async(servers.name_of(rank), function, args=each) for rank, each in enumerate(arguments)]
        return [call.wait() for call in calls]

    def _received(self, answers: List[List[torch.Tensor]]) -> Dict[int, torch.Tensor]:
        return {index: each for share, answer in zip(self._served, answers) for index, each in zip(share, answer)}

    def _release(self) -> None:
        self._own = None
        super()._release()
