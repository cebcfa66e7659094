"""The strategy `allreduce` over TensorFlow: its replica, its gradients averaged by Horovod's all-reduce.

A step is one fused tf.function, as hvd.DistributedGradientTape makes it. An all-reduce is an operation of its graph:
the executor begins it when its gradient is complete.
"""

from typing import Any, Dict

import horovod.tensorflow as hvd

from stagebench.adapters.horovod.ranks import Ring
from stagebench.adapters.tensorflow.optimisers import Tensors
from stagebench.adapters.tensorflow.replicas import Replicas
from stagebench.suite.worker.contract import Joined


class AllReduce(Replicas):
    """A device per rank."""

    one_cluster = False

    def start(self) -> Joined:
        joined = super().start()
        return self.group.joined(joined.versions)

    def join(self) -> None:
        self.group = ring = Ring(hvd, self.setup)
        self.rank = ring.rank
        self.world = ring.world
        self.transport = ring.transport

    def average(self, gradients: Tensors) -> Tensors:
        """All-reduce each gradient under a name that is equal on all ranks."""
        if self.world == 1:
            return gradients
        return [hvd.allreduce(each, op=hvd.Average, name=f"gradient.{n}") for n, each in enumerate(gradients)]

    def notes(self) -> Dict[str, Any]:
        return dict(super().notes(), **self.group.notes())
