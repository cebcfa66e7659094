"""`allreduce` over TensorFlow: the replica of adapters/tensorflow, its gradients averaged by Horovod's all-reduce.

One fused tf.function a step, as hvd.DistributedGradientTape makes it. An all-reduce is an
operation of its graph: the executor begins it when its gradient is there.
"""

from typing import Any, Dict, Optional

import horovod.tensorflow as hvd

from adapters.horovod.ring.ranks import Ring
from adapters.tensorflow.optimisers import Tensors
from adapters.tensorflow.replicas import Replicas
from suite.worker.contract import Joined


class AllReduce(Replicas):
    """One device a rank."""

    one_cluster = False
    _ring: Optional[Ring] = None

    def start(self) -> Joined:
        joined = super().start()
        assert self._ring is not None
        return self._ring.joined(joined.versions)

    def join(self) -> None:
        self._ring = ring = Ring(hvd, self.setup)
        self.rank, self.world, self.transport = ring.rank, ring.world, ring.transport

    def close(self) -> None:
        super().close()
        if self._ring is not None:
            self._ring.close()

    def maximum(self, value: float) -> float:
        assert self._ring is not None
        return self._ring.maximum(value)

    def average(self, gradients: Tensors) -> Tensors:
        """Each by a name of its own, the same on all ranks."""
        if self.world == 1:
            return gradients
        return [hvd.allreduce(each, op=hvd.Average, name="gradient.%d" % n) for n, each in enumerate(gradients)]

    def notes(self) -> Dict[str, Any]:
        assert self._ring is not None
        return dict(super().notes(), **self._ring.notes())


TRAINER = AllReduce
