"""Horovod over TensorFlow: the replicas of adapters/tensorflow, their gradients averaged by Horovod's all-reduce.

An all-reduce is an operation of the step's graph: the executor begins it when its gradient is there.

Oldest Python: 3.6.
"""

from typing import Any, Dict, List

import horovod.tensorflow as hvd

from adapters.horovod.ring.ranks import Ring
from adapters.tensorflow import machine
from adapters.tensorflow.replicas import Replicas
from adapters.tensorflow.spread import Spread
from adapters.tensorflow.worker import TensorFlowTrainer
from suite.worker.contract import Joined, Setup


class OverTensorFlow(TensorFlowTrainer):
    """One fused tf.function a step, as hvd.DistributedGradientTape makes it."""

    def start(self) -> Joined:
        """Threads, device, ring."""
        setup = self.setup
        self._way = way = OnRing(setup, machine.prepare(setup), self._knobs)
        return way.ring.joined(machine.versions(setup.device))


class RingSpread(Spread):
    """One device a rank."""

    def __init__(self, ring: Ring, devices: List[str]) -> None:
        """`devices`: one."""
        super().__init__(devices)
        self.ring = ring
        self.rank, self.world, self.transport = ring.rank, ring.world, ring.transport

    def average(self, gradients: List[Any]) -> List[Any]:
        """Each by a name of its own, the same on all ranks."""
        if self.world == 1:
            return gradients
        return [hvd.allreduce(each, op=hvd.Average, name="gradient.%d" % n) for n, each in enumerate(gradients)]

    def maximum(self, value: float) -> float:
        """Beside the ring."""
        return self.ring.maximum(value)

    def close(self) -> None:
        """Together."""
        self.ring.close()


class OnRing(Replicas):
    """The whole network on every rank."""

    def spread(self, setup: Setup, devices: List[str], knobs: Dict[str, Any]) -> RingSpread:
        """Over a ring."""
        self.ring = Ring(hvd, setup)
        return RingSpread(self.ring, devices)

    def notes(self) -> Dict[str, Any]:
        """Horovod's settings beside the rest."""
        return dict(super().notes(), **self.ring.notes())
