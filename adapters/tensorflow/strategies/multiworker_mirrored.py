"""tf.distribute.MultiWorkerMirroredStrategy, one device a rank: the strategy `multiworker_mirrored`."""

from typing import Any, Dict

import tensorflow as tf

from adapters.tensorflow.exchange import WorkerGroup
from adapters.tensorflow.optimisers import Tensors
from adapters.tensorflow.strategies.mirrored import Mirrored


class MultiWorkerMirrored(Mirrored):
    """All-reduce by a ring over gRPC, or by NCCL between GPUs."""

    def join(self) -> None:
        self.group = group = WorkerGroup(self.setup)
        self.rank, self.world, self.transport = self.setup.rank, group.world, group.transport
        self._options = group.options
        self.distribute(group.distribution)

    def average(self, gradients: Tensors) -> Tensors:
        """The strategy's own all-reduce; each gradient is named on this worker's device, which it insists on."""
        with tf.device(self.devices[0]):
            own = [tf.identity(gradient) for gradient in gradients]
        context = tf.distribute.get_replica_context()
        return context.all_reduce(tf.distribute.ReduceOp.MEAN, own, self._options)

    def notes(self) -> Dict[str, Any]:
        return dict(super().notes(), pack_mb=self.setup.knobs["pack_mb"])
