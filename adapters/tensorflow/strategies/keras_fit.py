"""Keras's `model.fit` on a data set that MirroredStrategy distributes: what TensorFlow's guides begin with.

The loop over the batches, its callbacks, the training function and the optimiser are Keras's own; network and loss are
those of the strategy `mirrored`, on each replica. `fit` returns only when training is over, so it runs in a separate
thread, and a callback halts it between two steps. To Keras all steps are one endless epoch: the measuring loop decides
when an epoch ends and what is evaluated.
"""

import atexit
import itertools
from functools import partial
from threading import Semaphore, Thread
from typing import Any, Callable, Dict, Iterable, List, Optional, Tuple

import numpy as np
import tensorflow as tf
from keras.src.trainers.data_adapters.data_adapter import DataAdapter

from stagebench.adapters.tensorflow.input import TensorReader, input_reader, mapped, refusal
from stagebench.adapters.tensorflow.lower import Inputs, Labels
from stagebench.adapters.tensorflow.optimisers import adam, adam_rate, number
from stagebench.adapters.tensorflow.strategies.mirrored import Mirrored, replica_of
from stagebench.suite.worker.contract import Adam, Batch, LayerTimes, Setup, decay_of
from stagebench.suite.worker.threaded import Reader
from stagebench.suite.worker.trainer import Notes

Fed = Any  # a DeviceBatch, or the TensorReader whose next batch the step takes itself


class Model(tf.keras.Model):
    """A model whose training step, on one replica, is a function of (inputs, labels) that returns the loss."""

    def __init__(self, optimizer: Any, replica_step: Callable[..., Any]) -> None:
        super().__init__()
        self._replica_step = replica_step
        self.compile(optimizer=optimizer, jit_compile=False)

    def _maybe_symbolic_build(self, *_: Any, **__: Any) -> None:
        """No-op: Keras would take a batch to infer shapes, but the variables exist."""

    def train_step(self, data: Any) -> Dict[str, Any]:
        return {"loss": self._replica_step(*data)}


class Batches(DataAdapter, tf.distribute.DistributedDataset):  # type: ignore[misc]
    """Endless batches that are distributed already: a `fit` continues where the last one ended."""

    num_batches = None  # endless

    def __init__(self, batches: Iterable[Any]) -> None:
        self._batches = batches

    def __iter__(self) -> Any:
        return self._batches

    def get_tf_dataset(self) -> Any:
        return self


class Over(Exception):
    """Ends a `fit`."""


class Fit(tf.keras.callbacks.Callback):
    """`model.fit` in a separate thread, which makes one step per call of `step`."""

    def __init__(self, model: Model, batches: Iterable[Any]) -> None:
        super().__init__()
        self._asked, self._made = Semaphore(0), Semaphore(0)
        self._over, self._logs = False, {}  # type: bool, Any
        self._error: Optional[BaseException] = None
        self._thread = Thread(target=self._fit, args=(model, Batches(batches)), daemon=True)
        self._thread.start()
        atexit.register(self.close)  # the thread holds a reader's iterator: see TensorReader

    def step(self) -> Dict[str, Any]:
        """Make one more step and return its logs; raise what `fit` raised."""
        if self._error is None:
            self._asked.release()
            self._made.acquire()
        if self._error is not None:
            raise self._error
        return dict(self._logs)

    def close(self) -> None:
        self._over = True
        self._asked.release()
        self._thread.join()
        atexit.unregister(self.close)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self._asked.acquire()
        if self._over:
            raise Over

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self._logs = logs
        self._made.release()

    def _fit(self, model: Model, batches: Batches) -> None:
        try:
            model.fit(batches, verbose=0, callbacks=[self])
        except Over:
            pass
        except BaseException as error:
            self._error = error
        self._made.release()


class KerasFit(Mirrored):
    """Takes tf.data's batches from the distributed data set; other batches are handed over one by one.

    A batch of the data set is taken by the step itself: until then the reader represents it.
    """

    xla_when_tuned = "off"  # Keras compiles no step of several devices

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._fits: Dict[Tuple[bool, bool], Fit] = {}  # by (reads a data set, devices exchange)

    def release(self) -> None:
        self._end_fits()
        super().release()
        self._models: Dict[bool, Model] = {}
        self._mirrored: Dict[int, Any] = {}  # mirrored variables, by the id of their first component
        self._handed: Any = None  # (the last batch that was handed over, its values per replica)

    # --- data ---------------------------------------------------------------

    def open_input(self, source: Any) -> None:
        self._end_fits()
        super().open_input(source)

    def make_reader(self, source: Any) -> Reader:
        """Distribute tf.data's pipeline; records, and what tf.data does not read, are read as in `mirrored`."""
        if refusal(source) is not None or source.records is not None:
            return super().make_reader(source)
        return input_reader(source, self.setup, self._distributed)

    def next_batch(self) -> Any:
        reader = self._reader
        return reader if isinstance(reader, TensorReader) and reader.distributed else super().next_batch()

    def skip_batch(self) -> None:
        batch = self.next_batch()
        if isinstance(batch, TensorReader):
            batch.take(next)

    def to_device(self, batch: Any) -> Any:
        return batch if isinstance(batch, TensorReader) else super().to_device(batch)

    def as_numpy(self, batch: Any) -> Batch:
        if not isinstance(batch, TensorReader):
            return super().as_numpy(batch)
        inputs, labels = (np.concatenate([one.numpy() for one in each]) for each in self._taken(batch))
        if self._images == "NHWC" and inputs.ndim == 4:
            inputs = inputs.transpose(0, 3, 1, 2)
        return Batch(inputs, labels)

    # --- training -----------------------------------------------------------

    def step(self, batch: Fed) -> None:
        self._fit_on(batch, exchange=True)

    def step_alone(self, batch: Fed) -> None:
        """Step by Keras as well, so that the cost of `fit` does not count as communication."""
        self._fit_on(batch, exchange=len(self.devices) == 1)

    def set_learning_rate(self, rate: float) -> None:
        super().set_learning_rate(rate)
        for model in self._models.values():
            optimizer = model.optimizer
            for velocity in getattr(optimizer, "momentums", []):  # SGD's, which contains the rate: see Trainer
                velocity.assign(velocity * (rate / optimizer.learning_rate))
            optimizer.learning_rate = rate

    def forward(self, batch: Fed) -> None:
        super().forward(self._taken(batch))

    def layer_times(self, batch: Fed) -> List[LayerTimes]:
        return super().layer_times(self._taken(batch))

    def per_device(self, make: Callable[[], Any]) -> List[Any]:
        with self.distribution.scope():
            whole = make()
        parts = list(self.distribution.experimental_local_results(whole))
        self._mirrored[id(parts[0])] = whole
        return parts

    def notes(self) -> Notes:
        return dict(
            super().notes(), loop="Keras's model.fit", optimiser=f"Keras's {type(self.setup.optimiser).__name__}"
        )

    # --- inside -------------------------------------------------------------

    def _fit_on(self, batch: Fed, exchange: bool) -> None:
        reads = isinstance(batch, TensorReader)

        def step(batches: Iterable[Any]) -> Dict[str, Any]:
            if (reads, exchange) not in self._fits:
                self._fits[reads, exchange] = Fit(self._model(exchange), batches)
            return self._fits[reads, exchange].step()

        if reads:
            logs = batch.take(step)
        else:
            if self._handed is None or self._handed[0] is not batch:
                self._handed = batch, tuple(map(self._per_replica, batch))
            logs = step(self._handed[1] for _ in itertools.count())
        self._losses = (logs["loss"],)

    def _end_fits(self) -> None:
        while self._fits:
            self._fits.popitem()[1].close()

    def _model(self, exchange: bool) -> Model:
        """Return a model, made at the first call: each has its own velocity."""
        if exchange not in self._models:
            rule = self.setup.optimiser
            with self.distribution.scope():
                rate = float(self._rates[0].numpy()) if self._rates else rule.lr
                # Without weight decay, which Keras would decouple from the gradient.
                if isinstance(rule, Adam):
                    optimizer = PreciseAdam(rule, rate)
                else:
                    optimizer = tf.keras.optimizers.SGD(rate, momentum=rule.momentum)
                optimizer.build(self._trained())
                if not exchange:
                    optimizer._all_reduce_sum_gradients = lambda pairs: pairs
                self._models[exchange] = Model(optimizer, partial(self._replica_step, optimizer, exchange))
        return self._models[exchange]

    def _trained(self) -> List[Any]:
        return [self._mirrored[id(self.variables[parameter.name][0])] for parameter in self.graph.parameters]

    def _replica_step(self, optimizer: Any, exchange: bool, inputs: Inputs, labels: Labels) -> Any:
        """Run a replica's step, traced: Keras's own, with the workload's weight decay as an L2 regulariser."""
        net = self.nets[replica_of(self.distribution)]
        joined = len(self.devices) if exchange else 1  # devices whose gradients Keras sums
        with tf.GradientTape() as tape:
            loss, _ = net.loss(inputs, labels)
            share = loss / joined
        rule = self.setup.optimiser
        gradients = tape.gradient(share, net.trainable)
        if rule.weight_decay and not (isinstance(rule, Adam) and rule.decoupled):
            decays = [decay_of(rule, weight.shape) / joined for weight in net.trainable]
            gradients = [gradient + decay * weight for gradient, decay, weight in zip(gradients, decays, net.trainable)]
        optimizer.apply(gradients, self._trained())
        return loss

    def _distributed(self, pipeline: Any) -> Any:
        """Return an iterator of the data set; tf.distribute splits only what it sees being batched."""
        batches = pipeline.unbatch().batch(self.setup.batch, drop_remainder=True)
        placed = mapped(lambda inputs, labels: (self.placed(inputs), labels), batches, None)
        return iter(self.distribution.experimental_distribute_dataset(placed))

    def _taken(self, batch: Fed) -> Batch:
        """Return a batch on the devices, taken from the data set if the reader represents it."""
        if not isinstance(batch, TensorReader):
            return batch
        return Batch(*(self.distribution.experimental_local_results(each) for each in batch.take(next)))

    def _per_replica(self, tensors: Any) -> Any:
        return self.distribution.experimental_distribute_values_from_function(
            lambda context: tensors[context.replica_id_in_sync_group]
        )


class PreciseAdam(tf.keras.optimizers.Adam):  # type: ignore[misc]
    """Keras's Adam, or AdamW, with an exact 1 - 0.999^t, which in float32 has four digits, too few for a proof."""

    def __init__(self, rule: Adam, rate: float) -> None:
        super().__init__(rate, beta_1=rule.beta1, beta_2=rule.beta2, epsilon=rule.epsilon)
        self._adam = rule

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        index = self._get_variable_index(variable)
        moments = self._momentums[index].value, self._velocities[index].value
        if self._adam.decoupled:
            decay = decay_of(self._adam, variable.shape)
            variable.assign_sub(variable * (number(learning_rate, gradient.dtype) * decay))
        adam(self._adam)(variable, moments, gradient, adam_rate(self._adam, learning_rate, self.iterations + 1))
