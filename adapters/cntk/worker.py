"""CNTK's trainer: alone, or data-parallel over MPI.

Oldest Python: 3.6.
"""

from typing import Any, Dict, Iterator, List, Optional

import numpy as np

from adapters.cntk import imagemap, machine, packed, reading
from adapters.cntk.framework import cntk as C  # noqa: N812 - the name everybody gives it
from adapters.cntk.group import Group
from adapters.cntk.learners import distributed, learner
from adapters.cntk.net import Net
from suite.worker.contract import Batch, Joined, Setup
from suite.worker.trainer import Trainer
from workloads.graph import Graph


class CNTKTrainer(Trainer):
    """Trains a lowered graph with CNTK's Trainer and its learners."""

    def __init__(self, setup: Setup) -> None:
        """Keep the setup."""
        super().__init__(setup)
        self._dtype = np.float64 if setup.precision == "float64" else np.float32
        self._group: Optional[Group] = None
        self._reader: Any = None
        self._reads = ""  # what reads, in words
        # What `build` makes: the learner that updates, the one that exchanges around it, their trainers.
        self._net: Any = None
        self._local: Any = None
        self._exchanging: Any = None
        self._trainer: Any = None
        self._alone: Any = None
        self._outputs: Any = None
        self._last_trainer: Any = None
        # What an iteration leaves: CNTK's state, what the forward found, gradients (summed over ranks, or not yet).
        self._state: Any = None
        self._found: Dict[Any, Any] = {}
        self._values: Any = None
        self._gradients: Any = None
        self._zeros: Any = None
        self._samples, self._summed, self._last_loss = 0, False, float("nan")

    # --- life ---------------------------------------------------------------

    def start(self) -> Joined:
        """Device, threads, MPI."""
        self._device = machine.prepare(self.setup)
        if self.setup.strategy == "single":
            return Joined(0, 1, "none", machine.versions())
        self._group = Group()
        return Joined(self._group.rank, self._group.world, self._group.transport, machine.versions())

    def build(self, graph: Graph, weights: Dict[str, np.ndarray]) -> None:
        """Lower, make the learners; a second call starts afresh."""
        self._release()
        setup = self.setup
        # The masks of dropout: every rank its own, the same again after every build.
        seed = (setup.seed * 1000003 + setup.rank * 1009) % 2**32
        self._net = Net(graph, weights, self._dtype, setup.batch, seed, fast=setup.tuning == "tuned")
        # One state, in the local learner: native, lone and staged steps all go through it.
        self._local = learner(setup, self._net.parameters)
        self._exchanging = self._local if self._group is None else distributed(setup, self._local)
        self._trainer = self._trainer_with(self._exchanging)
        # What a staged forward wants: each sample's loss, and the logits.
        self._outputs = C.combine([self._net.loss, self._net.logits])

    def synchronize(self) -> None:
        """A CPU has done it already."""

    def close(self) -> None:
        """Stop the readers, leave MPI."""
        if self._reader is not None:
            self._reader.close()
        self._release()
        if self._group is not None:
            self._group.close()

    # --- data ---------------------------------------------------------------

    def open_input(self, source: Any) -> None:
        """CNTK's own readers for records; what lies in memory is gathered; files are for threads."""
        self._reader, self._reads = reading.opened(source, self.setup, self._device)

    def as_numpy(self, batch: Any) -> Batch:
        """CNTK's memory is copied: the batch after the next will be written there."""
        return self._reader.as_numpy(batch) if isinstance(batch.images, C.io.MinibatchData) else super().as_numpy(batch)

    def open_records(self, records: Any) -> Any:
        """With the images that a map names."""
        return imagemap.MappedImages(records) if records.form == imagemap.FORM else records

    def pack(self, form: str, samples: Iterator[Any], folder: str) -> None:
        """As CNTK's text or binary format, or as a map of the images."""
        if form == imagemap.FORM:
            imagemap.write(samples, folder)
        else:
            packed.write(form, samples, folder)

    def join_parts(self, form: str, parts: List[str], folder: str) -> None:
        """CNTK's deserializers take one file."""
        if form == imagemap.FORM:
            imagemap.join(parts, folder)
        else:
            packed.join(form, parts, folder)

    def to_device(self, batch: Any) -> Batch:
        """CNTK's own values: images, and labels as rows with a one. Images that CNTK has read stay where they are."""
        if isinstance(batch.images, C.io.MinibatchData):
            batch = Batch(reading.images_of(batch, self._net.images.shape), reading.labels_of(batch))
        labels = np.zeros((len(batch.labels), self._net.labels.shape[0]), dtype=self._dtype)
        labels[np.arange(len(labels)), batch.labels] = 1
        return Batch(C.Value(self._placed(batch.images)), C.Value(self._placed(labels)))

    # --- the staged iteration -----------------------------------------------

    def forward(self, batch: Any) -> None:
        """Each sample's loss; CNTK keeps the activations until the backward."""
        self._forget()
        loss = self._net.loss.output
        self._state, self._found = self._outputs.forward(
            self._net.arguments(batch),
            outputs=[loss, self._net.logits.output],
            keep_for_backward={loss},
            device=self._device,
            as_numpy=False,
        )
        # The values lie where the next forward writes: the loss and the logits are a few numbers.
        self._found = {key: np.array(value.asarray()) for key, value in self._found.items()}
        self._last_loss, self._last_trainer = float(self._found[loss].mean()), None

    def backward(self) -> None:
        """Gradients of the sum over this rank's samples, in CNTK's own buffers."""
        loss = self._net.loss.output
        ones = np.ones_like(self._found[loss])
        found = self._outputs.backward(self._state, {loss: ones}, set(self._net.parameters), as_numpy=False)
        self._values = found  # they own what the views show
        self._gradients = {parameter: found[parameter].data for parameter in self._net.parameters}
        self._samples = len(ones)

    def communicate(self) -> None:
        """Sum over the ranks, as the 32-bit learner does; the other learners exchange in `update`."""
        if self._group is None or self.setup.strategy != "data_parallel":
            return
        if not self._summed:
            self._group.sum_in_place([self._gradients[parameter] for parameter in self._net.parameters])
            self._summed = True
            return
        # Asked again, the sums stay as they are and zeros of their sizes travel.
        if self._zeros is None:
            self._zeros = [C.NDArrayView.from_data(np.zeros(each.shape, self._dtype)) for each in self._net.parameters]
        self._group.sum_in_place(self._zeros)

    def update(self) -> None:
        """The learner's; strategies whose exchange is their learner's own business do it here."""
        if self._group is not None and self.setup.strategy != "data_parallel":
            C.cntk_py.DistributedLearner._update(self._exchanging, self._gradients, self._information())
        else:
            self._local.update(self._gradients, self._samples_in_gradients())
        self._forget()

    # --- the native iteration -----------------------------------------------

    def step(self, batch: Any) -> None:
        """Trainer.train_minibatch; the distributed learner exchanges inside."""
        self._step_with(self._trainer, batch)

    def step_alone(self, batch: Any) -> None:
        """The same with the local learner."""
        if self._alone is None:
            self._alone = self._trainer_with(self._local)
        self._step_with(self._alone, batch)

    # --- evidence -----------------------------------------------------------

    def loss(self) -> float:
        """After a native step under MPI the mean over all ranks: CNTK exchanges it with the gradients."""
        if self._last_trainer is not None:
            return float(self._last_trainer.previous_minibatch_loss_average)
        return self._last_loss

    def logits(self) -> np.ndarray:
        """The last head's."""
        return np.array(self._found[self._net.logits.output], dtype=np.float32)

    def predict(self, batch: Any) -> np.ndarray:
        """What CNTK evaluates without a backward to come: dropout off, running statistics."""
        logits = self._net.logits
        found = logits.eval({self._net.images: batch.images}, device=self._device, as_numpy=False)
        return np.array(found.asarray(), dtype=np.float32)

    def gradients(self) -> Dict[str, np.ndarray]:
        """Sums over samples, divided by their number."""
        samples = self._dtype(self._samples_in_gradients())
        return {
            name: held.canonical(self._gradients[held.tensor].asarray()) / samples
            for name, held in self._net.tensors.parameters.items()
        }

    def parameters(self) -> Dict[str, np.ndarray]:
        """With running statistics."""
        return self._net.tensors.values()

    def parameter_count(self) -> int:
        """Of the parameters that CNTK finds below the loss."""
        return self._net.parameter_count()

    def macs(self) -> int:
        """Counted on CNTK's own graph of operations."""
        return self._net.macs()

    # --- what the measuring loop needs ----------------------------------------

    def maximum(self, value: float) -> float:
        """Over MPI."""
        return value if self._group is None else self._group.maximum(value)

    def notes(self) -> Dict[str, Any]:
        """What was chosen."""
        found = machine.notes(self.setup)
        if self._reads:
            found["reader"] = self._reads
        return found

    # --- inside -------------------------------------------------------------

    def _release(self) -> None:
        """Let go of what was built."""
        self._forget()
        self._net = self._local = self._exchanging = self._trainer = self._alone = self._outputs = None
        self._last_trainer = self._zeros = None
        self._found = {}

    def _forget(self) -> None:
        """Before a forward: CNTK refuses one while its gradients are held."""
        self._state = self._values = self._gradients = None
        self._samples, self._summed = 0, False

    def _placed(self, values: Any) -> Any:
        """An array, or a view of what CNTK has read, which is always float32, in the network's type."""
        if isinstance(values, C.cntk_py.NDArrayView):
            if self._dtype == np.float32:
                return values
            values = values.asarray()
        return C.NDArrayView.from_data(np.ascontiguousarray(values, dtype=self._dtype), self._device)

    def _samples_in_gradients(self) -> int:
        return self._samples * self.setup.world if self._summed else self._samples

    def _trainer_with(self, one: Any) -> Any:
        return C.Trainer(self._net.logits, (self._net.loss, None), [one])

    def _step_with(self, trainer: Any, batch: Any) -> None:
        self._forget()
        trainer.train_minibatch(self._net.arguments(batch), device=self._device)
        self._last_trainer = trainer

    def _information(self) -> Any:
        """What a distributed learner wants to know of a batch."""
        about = C.cntk_py.MinibatchInfo()
        about.at_end_of_data = about.at_end_of_sweep = False
        about.number_of_samples = self._samples
        about.training_loss_value = C.NDArrayView.from_data(np.array(self._last_loss * self._samples, self._dtype))
        about.eval_criterion_value = C.NDArrayView.from_data(np.array(0, self._dtype))
        return about
