"""The strategy `allreduce` over PyTorch: its trainer, its gradients averaged by Horovod's all-reduce.

As in hvd.DistributedOptimizer, hooks begin an all-reduce for each gradient during the backward, and the update waits
for all of them. That class wraps only optimisers that are built from parameters alone, and always exchanges; these
hooks can be switched off, which separates the stages.
On GPUs the gradients stay on the device: Horovod hands them to NCCL, on a separate stream.
"""

from functools import partial
from typing import Any, Dict, List, Tuple

import horovod.torch as hvd
import torch

from stagebench.adapters.horovod.ranks import Ring
from stagebench.adapters.pytorch.replica import ReplicaTrainer
from stagebench.suite.worker.contract import Batch, Joined, Unavailable

Named = List[Tuple[str, torch.Tensor]]

WITHOUT_NCCL = (
    "Horovod is built without NCCL, by which it exchanges between GPUs; make its environment with a PyTorch "
    "that has CUDA, and nvcc (stagebench env make horovod-pytorch --gpu), or ask for device = 'cpu'"
)
WORDS = "an all-reduce a gradient, begun by hooks during the backward, as hvd.DistributedOptimizer does"


class AllReduce(ReplicaTrainer):
    """A replica per rank."""

    grouped = False  # Horovod's ring is the group
    contiguous_weights = True  # and so gradients, which Horovod accepts in no other format
    _averages: Any = None  # stays None on a single rank

    def start(self) -> Joined:
        joined = super().start()
        if self.setup.device == "cuda" and not hvd.nccl_built():
            raise Unavailable(WITHOUT_NCCL)
        self.group = Ring(hvd, self.setup)
        return self.group.joined(joined.versions)

    def communicate(self) -> None:
        """Begin all, wait for all. A second call averages averages, which changes nothing."""
        if self._averages is not None:
            self._averages.begin()
            self._averages.wait()

    def step(self, batch: Batch) -> None:
        """Exchange during the backward."""
        if self._averages is None:
            super().step(batch)
            return
        _, loss = self._evaluate(self._native_net, batch)
        self._averages.listening = True
        self._scaler.scale(loss).backward()
        self._averages.listening = False
        self._averages.wait()
        self._optimise()
        self._loss = loss.detach()

    def step_alone(self, batch: Batch) -> None:
        """Step with the hooks switched off."""
        super().step(batch)

    def notes(self) -> Dict[str, Any]:
        if self.group is None:
            return dict(super().notes(), exchange=WORDS)
        return dict(super().notes(), exchange=f"{WORDS}, over {self.group.transport}", **self.group.notes())

    def _wrap(self) -> None:
        if self.setup.world > 1:
            self._averages = Averages(list(self._net.named_parameters()))

    def _release(self) -> None:
        self._averages = None
        super()._release()


class Averages:
    """The all-reduces of a network's gradients, in place."""

    def __init__(self, parameters: Named) -> None:
        """`parameters` have the same names on all ranks."""
        self.listening = False  # True: a gradient's all-reduce begins as soon as the gradient is complete
        self._parameters, self._handles = parameters, []  # type: Named, List[int]
        for name, parameter in parameters:
            parameter.register_post_accumulate_grad_hook(partial(self._on_gradient, name))

    def begin(self) -> None:
        """Begin all of them, the last layer's first: the order of a backward."""
        for name, parameter in reversed(self._parameters):
            self._begin(name, parameter)

    def wait(self) -> None:
        """Wait for all that have begun."""
        for handle in self._handles:
            hvd.synchronize(handle)
        self._handles = []

    def _on_gradient(self, name: str, parameter: torch.Tensor) -> None:
        if self.listening:
            self._begin(name, parameter)

    def _begin(self, name: str, parameter: torch.Tensor) -> None:
        self._handles.append(hvd.allreduce_async_(parameter.grad, name=name, op=hvd.Average))
