"""`allreduce` over TensorFlow: the replica of adapters/tensorflow, its gradients averaged by Horovod's all-reduce.

One fused tf.function a step, as hvd.DistributedGradientTape makes it. An all-reduce is an
operation of its graph: the executor begins it when its gradient is there.
"""

from typing import Any, Dict

import horovod.tensorflow as hvd

from adapters.horovod.ring.ranks import Ring
from adapters.tensorflow.optimisers import Tensors
from adapters.tensorflow.replicas import Replicas
from suite.worker.contract import Joined


class AllReduce(Replicas):
    """One device a rank."""

    one_cluster = False

    def start(self) -> Joined:
        joined = super().start()
        return self.group.joined(joined.versions)

    def join(self) -> None:
        self.group = ring = Ring(hvd, self.setup)
        self.rank, self.world, self.transport = ring.rank, ring.world, ring.transport

    def average(self, gradients: Tensors) -> Tensors:
        """Each by a name of its own, the same on all ranks."""
        if self.world == 1:
            return gradients
        return [hvd.allreduce(each, op=hvd.Average, name="gradient.%d" % n) for n, each in enumerate(gradients)]

    def notes(self) -> Dict[str, Any]:
        return dict(super().notes(), **self.group.notes())


TRAINER = AllReduce
