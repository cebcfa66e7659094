"""Keras's training function on a data set that MirroredStrategy distributes: a step as `model.fit` makes it.

The way that TensorFlow's guides begin with. The strategy shards and rebatches the data set when training begins, and
each step takes its batch from it inside the function; what `fit` adds around it, callbacks and metrics, has no part in
training. Network, loss and update are those of the strategy `mirrored`, on each replica.
"""

from typing import Any, Dict, List

import numpy as np
import tensorflow as tf

from adapters.tensorflow.input import TensorReader, input_reader, mapped, refusal
from adapters.tensorflow.strategies.mirrored import Mirrored, replica_of
from suite.worker.contract import Batch, LayerTimes
from suite.worker.threaded import Reader


class Fitted(tf.keras.Model):
    """A model whose training step, on one replica, is a function of (images, labels) that returns the loss."""

    def __init__(self, replica_step: Any) -> None:
        super().__init__()
        self._replica_step = replica_step
        self.compile(optimizer=None, jit_compile=False)
        self.make_train_function()

    def train_step(self, data: Any) -> Dict[str, Any]:
        return {"loss": self._replica_step(*data)}


class KerasFit(Mirrored):
    """What is read in its own order comes through the distributed data set; other batches are handed over one by one.

    A batch of the data set stays there until the step takes it: the reader itself stands for it.
    """

    def release(self) -> None:
        super().release()
        self._model: Any = None

    def make_variables(self, weights: Dict[str, np.ndarray]) -> None:
        super().make_variables(weights)
        with self.distribution.scope():
            self._model = Fitted(self._replica_step)

    # --- data ---------------------------------------------------------------

    def make_reader(self, source: Any) -> Reader:
        """tf.data's pipeline, distributed; what it does not read, or reads as records, as `mirrored` does."""
        if refusal(source) is not None or source.records is not None:
            return super().make_reader(source)
        return input_reader(source, self.setup, self._distributed)

    def next_batch(self) -> Any:
        reader = self._reader
        return reader if isinstance(reader, TensorReader) and reader.distributed else super().next_batch()

    def to_device(self, batch: Any) -> Any:
        return batch if isinstance(batch, TensorReader) else super().to_device(batch)

    def as_numpy(self, batch: Any) -> Batch:
        if not isinstance(batch, TensorReader):
            return super().as_numpy(batch)
        images, labels = (np.concatenate([one.numpy() for one in each]) for each in self._taken(batch))
        return Batch(images.transpose(0, 3, 1, 2) if self._images == "NHWC" else images, labels)

    # --- training -----------------------------------------------------------

    def step(self, batch: Any) -> None:
        function = self._model.train_function
        if isinstance(batch, TensorReader):
            logs = batch.take(function)
        else:
            logs = function(iter([tuple(map(self._per_replica, batch))]))
        self._losses = (logs["loss"],)

    def step_alone(self, batch: Any) -> None:
        if len(self.devices) == 1:
            self.step(batch)
        else:
            super().step_alone(self._taken(batch))

    def forward(self, batch: Any) -> None:
        super().forward(self._taken(batch))

    def layer_times(self, batch: Any) -> List[LayerTimes]:
        return super().layer_times(self._taken(batch))

    def notes(self) -> Dict[str, Any]:
        return dict(super().notes(), loop="Keras's train_function, which model.fit calls for every step")

    # --- inside -------------------------------------------------------------

    def _distributed(self, pipeline: Any) -> Any:
        """An iterator of the data set; tf.distribute cuts into shares only what it sees being batched."""
        batches = pipeline.unbatch().batch(self.setup.batch, drop_remainder=True)
        placed = mapped(lambda images, labels: (self.placed(images), labels), batches, None)
        return iter(self.distribution.experimental_distribute_dataset(placed))

    def _taken(self, batch: Any) -> Batch:
        """A batch on the devices, taken from the data set where that stands for it."""
        if not isinstance(batch, TensorReader):
            return batch
        return Batch(*(self.distribution.experimental_local_results(each) for each in batch.take(next)))

    def _per_replica(self, tensors: Any) -> Any:
        return self.distribution.experimental_distribute_values_from_function(
            lambda context: tensors[context.replica_id_in_sync_group]
        )

    def _replica_step(self, images: Any, labels: Any) -> Any:
        """Traced, on each replica."""
        index = replica_of(self.distribution)
        loss, gradients = self._differentiate[index](images, labels)
        self._rules[index](self.average(gradients))
        return loss


TRAINER = KerasFit
