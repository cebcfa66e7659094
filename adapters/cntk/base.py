"""The trainer of CNTK: a lowered graph, CNTK's Trainer with the local learner; here of a single rank."""

from functools import partial
from typing import Any, Dict, Iterator, List

import numpy as np

from stagebench.adapters.cntk import imagemap, machine, optimisers, packing
from stagebench.adapters.cntk.input import ImageReader, PackedReader, TakingReader, images_of, labels_of
from stagebench.adapters.cntk.machine import cntk as C  # noqa: N812 - the usual name
from stagebench.adapters.cntk.net import FunctionNodes, Net
from stagebench.suite.worker.contract import Batch, Joined, LayerTimes, Setup, dropout_seed
from stagebench.suite.worker.layers import node_by_node
from stagebench.suite.worker.threaded import Reader
from stagebench.suite.worker.trainer import Arrays, Notes, Trainer
from stagebench.workloads.graph import Graph

# cntk.Value: images (samples, channels, height, width) or the numbers of tokens (samples, positions), labels one-hot
DeviceBatch = Batch
Learner = Any  # cntk.Learner


class CNTKTrainer(Trainer):
    """Trains on a single rank; another strategy adds a learner that exchanges."""

    share = 1.0  # the part of the global batch that an update takes
    several_learners = True  # of CNTK's own, for parameters that decay differently

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._dtype = machine.number(setup)
        self._last_loss = float("nan")
        self._release()

    # --- life ---------------------------------------------------------------

    def _release(self) -> None:
        self._forget()
        # Made by `build`: the learners that exchange (or the local ones), and the trainers of both.
        self._net = self._learners = self._trainer = self._local_trainer = None  # type: Any
        self.local = None  # type: Any  # an `optimisers.Local`, whose learners update
        self._outputs = self._last_trainer = None  # type: Any
        self._found: Dict[Any, Any] = {}  # the last staged forward's values, by CNTK variable

    def _forget(self) -> None:
        """Free an iteration's results: CNTK refuses a forward while gradients are held."""
        # CNTK's state, the buffers of the gradients, views of them, and the samples that they are summed over.
        self._state = self._values = self._gradients = None  # type: Any
        self._samples = 0

    def start(self) -> Joined:
        """Set device and threads; a strategy of several ranks also joins MPI."""
        self._device = machine.prepare(self.setup)
        return Joined(0, 1, "none", machine.versions())

    def build(self, graph: Graph, weights: Arrays) -> None:
        self._release()
        setup = self.setup
        mask_seed = partial(dropout_seed, setup.seed, setup.rank)
        self._net = Net(graph, weights, self._dtype, setup.batch, mask_seed, fast=setup.tuned)
        # The state is in the local learners: step, step_alone and the stages all use them.
        self.local = optimisers.local(setup, self._net.parameters, self.share, self.several_learners)
        self._learners = list(map(self.distributed_learner, self.local.learners))
        self._trainer = self._trainer_with(self._learners)
        # A staged forward computes each sample's loss, and the logits.
        self._outputs = C.combine([self._net.loss, self._net.logits])

    def distributed_learner(self, local: Learner) -> Learner:
        """Return a learner that exchanges around the local one; a single rank needs none."""
        return local

    def close(self) -> None:
        self._release()
        super().close()

    # --- data ---------------------------------------------------------------

    def make_reader(self, source: Any) -> Reader:
        """Return CNTK's own reader of records; arrays in memory are gathered, files are read by threads."""
        if source.records is not None and source.records.form == imagemap.FORM:
            return ImageReader(source.records, source.random, self.setup, self._device)
        if source.records is not None:
            return PackedReader(source.records, self.setup, self._device)
        if source.arrays is not None:
            return TakingReader(source, self.setup)
        reader = super().make_reader(source)
        reader.words = "threads; CNTK's image reader takes an order of its own (format 'imagemap')"
        return reader

    def as_numpy(self, batch: Any) -> Batch:
        """Copy CNTK's memory: the batch after the next will be written there."""
        if isinstance(batch.inputs, C.io.MinibatchData):
            reader: Any = self._reader  # a PackedReader knows the shape, also before anything is built
            return reader.as_numpy(batch)  # type: ignore[no-any-return]
        return super().as_numpy(batch)

    def open_records(self, records: Any) -> Any:
        return imagemap.MappedImages(records) if records.form == imagemap.FORM else records

    def pack(self, form: str, samples: Iterator[Any], folder: str) -> None:
        if form == imagemap.FORM:
            imagemap.write(samples, folder)
        else:
            packing.write(form, samples, folder)

    def join_parts(self, form: str, parts: List[str], folder: str) -> None:
        if form == imagemap.FORM:
            imagemap.join(parts, folder)
        else:
            packing.join(form, parts, folder)

    def to_device(self, batch: Any) -> DeviceBatch:
        """Return CNTK values: images, and labels as one-hot rows. Images that CNTK has read are not moved."""
        if isinstance(batch.inputs, C.io.MinibatchData):
            batch = Batch(images_of(batch, self._net.inputs.shape), labels_of(batch))
        labels = np.zeros((len(batch.labels), *self._net.labels.shape), dtype=self._dtype)
        np.put_along_axis(labels, batch.labels[..., np.newaxis], 1, axis=-1)
        placed = [C.Value(machine.placed(each, self._dtype, self._device)) for each in (batch.inputs, labels)]
        return DeviceBatch(*placed)

    # --- the staged iteration -----------------------------------------------

    def forward(self, batch: DeviceBatch) -> None:
        """Compute each sample's loss; CNTK keeps the activations until the backward."""
        self._forget()
        loss = self._net.loss.output
        self._state, self._found = self._outputs.forward(
            self._net.arguments(batch),
            outputs=[loss, self._net.logits.output],
            keep_for_backward={loss},
            device=self._device,
            as_numpy=False,
        )
        # Copied, since the next forward writes to the same memory; loss and logits are small.
        self._found = {key: np.array(value.asarray()) for key, value in self._found.items()}
        self._last_loss, self._last_trainer = float(self._found[loss].mean()), None

    def backward(self) -> None:
        """Compute the gradients of the sum over this rank's samples, in CNTK's own buffers."""
        loss = self._net.loss.output
        ones = np.ones_like(self._found[loss])
        values = self._outputs.backward(self._state, {loss: ones}, set(self._net.parameters), as_numpy=False)
        self._values = values  # they own the memory of the views
        self._gradients = {parameter: values[parameter].data for parameter in self._net.parameters}
        self._samples = len(ones)

    def communicate(self) -> None:
        """No-op: a single rank exchanges nothing, and some learners exchange in `update`."""

    def update(self) -> None:
        for learner in self.local.learners:
            learner.update({each: self._gradients[each] for each in learner.parameters}, self._samples)
        self._forget()

    # --- the native iteration -----------------------------------------------

    def step(self, batch: DeviceBatch) -> None:
        """Run Trainer.train_minibatch, in which a distributed learner exchanges."""
        self._step_with(self._trainer, batch)

    def step_alone(self, batch: DeviceBatch) -> None:
        if self._local_trainer is None:
            self._local_trainer = self._trainer_with(self.local.learners)
        self._step_with(self._local_trainer, batch)

    def set_learning_rate(self, rate: float) -> None:
        self.local.set_rate(rate)

    # --- evidence -----------------------------------------------------------

    def loss(self) -> float:
        """Return the loss; after a native step under MPI it is the mean over all ranks."""
        if self._last_trainer is not None:
            return float(self._last_trainer.previous_minibatch_loss_average)
        return self._last_loss

    def logits(self) -> np.ndarray:
        return np.array(self._found[self._net.logits.output], dtype=np.float32)

    def predict(self, batch: DeviceBatch) -> np.ndarray:
        return self._net.predict(batch.inputs, self._device).astype(np.float32)

    def gradients(self) -> Arrays:
        """Return the sums over samples, divided by their number."""
        samples = self._dtype(self._samples)
        return {
            name: held.canonical(self._gradients[held.tensor].asarray()) / samples
            for name, held in self._net.tensors.parameters.items()
        }

    def parameters(self) -> Arrays:
        return self._net.tensors.values()

    def parameter_count(self) -> int:
        return self._net.parameter_count()

    def macs(self) -> int:
        return self._net.macs()

    def layer_times(self, batch: DeviceBatch) -> List[LayerTimes]:
        """Time each layer as a separate function. CNTK's backward visits a network's nodes in reverse order."""
        self._forget()
        nodes = FunctionNodes(self._net, self._device)
        return node_by_node(self, self._net.graph, nodes, batch.inputs, batch.labels)

    def notes(self) -> Notes:
        return dict(super().notes(), **machine.notes(self.setup))

    # --- inside -------------------------------------------------------------

    def _trainer_with(self, learners: List[Learner]) -> Any:
        return C.Trainer(self._net.logits, (self._net.loss, None), learners)

    def _step_with(self, trainer: Any, batch: DeviceBatch) -> None:
        self._forget()
        trainer.train_minibatch(self._net.arguments(batch), device=self._device)
        self._last_trainer = trainer
