"""tf.distribute.MultiWorkerMirroredStrategy, one device a rank: the strategy `multiworker_mirrored`."""

from typing import Any, Dict, Optional

import tensorflow as tf

from adapters.tensorflow.cluster import WorkerGroup
from adapters.tensorflow.optimisers import Tensors
from adapters.tensorflow.strategies.mirrored import Mirrored
from suite.worker.contract import Setup


class MultiWorkerMirrored(Mirrored):
    """All-reduce by a ring over gRPC, or by NCCL between GPUs."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._group: Optional[WorkerGroup] = None

    def join(self) -> None:
        self._group = group = WorkerGroup(self.setup)
        self.rank, self.world, self.transport = self.setup.rank, group.world, group.transport
        self._options = group.options
        self.distribute(group.distribution)

    def close(self) -> None:
        super().close()
        if self._group is not None:
            self._group.close()

    def maximum(self, value: float) -> float:
        assert self._group is not None
        return self._group.maximum(value)

    def average(self, gradients: Tensors) -> Tensors:
        """The strategy's own all-reduce; each gradient is named on this worker's device, which it insists on."""
        with tf.device(self.devices[0]):
            own = [tf.identity(gradient) for gradient in gradients]
        context = tf.distribute.get_replica_context()
        return context.all_reduce(tf.distribute.ReduceOp.MEAN, own, self._options)

    def notes(self) -> Dict[str, Any]:
        return dict(super().notes(), pack_mb=self.setup.knobs["pack_mb"])


TRAINER = MultiWorkerMirrored
