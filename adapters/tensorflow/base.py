"""The trainer of TensorFlow without a network: input, evidence, notes."""

from abc import abstractmethod
from typing import Any, Iterable, Iterator, List, Sequence, Tuple

import numpy as np
import tensorflow as tf

from stagebench.adapters.tensorflow import machine
from stagebench.adapters.tensorflow.input import TensorReader, input_reader, record_reader, refusal, write
from stagebench.adapters.tensorflow.lower import Inputs, Tensor, described
from stagebench.adapters.tensorflow.net import compiled, macs, over_tokens
from stagebench.adapters.tensorflow.optimisers import kernel_name
from stagebench.suite.worker.contract import Batch, Joined, Setup, chosen
from stagebench.suite.worker.threaded import Reader
from stagebench.suite.worker.trainer import Arrays, Notes, Trainer
from stagebench.workloads.graph import Graph

# On the devices: tuples with a tensor per device, share or microbatch; images in the network's layout and type, or
# tokens, int64 (samples, positions); labels int64 (samples,) or (samples, positions).
DeviceBatch = Batch


class TensorFlowTrainer(machine.OnDevice, Trainer):
    """A strategy makes its variables in `make_variables`, frees them in `release`, and trains."""

    transport = "none"
    rank, world = 0, 1
    xla_when_tuned = "update"  # the knob `xla`'s "auto", but for networks over tokens whose step may be one cluster
    one_cluster = False  # XLA may compile the whole step: there is no exchange within it

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.xla = "off"
        self._losses: Sequence[Any] = ()  # of the last iteration, one tensor per device, share or microbatch
        self._logits: Sequence[Any] = ()

    # --- life ---------------------------------------------------------------

    def start(self) -> Joined:
        self.devices = self.prepare()
        self.join()
        return Joined(self.rank, self.world, self.transport, machine.versions(self.setup.device), len(self.devices))

    def prepare(self) -> List[str]:
        """Set threads, before TensorFlow runs any operation; return this process's devices."""
        return machine.prepare(self.setup)

    def join(self) -> None:
        """Meet the other processes: set `rank`, `world`, `transport`, and `devices` if they change."""

    def build(self, graph: Graph, weights: Arrays) -> None:
        self.release()
        self.lay_out(graph)
        wholly = over_tokens(graph) and self.one_cluster and self.xla_when_tuned == "update"
        self.xla = chosen(self.setup, "xla", default="off", tuned="step" if wholly else self.xla_when_tuned)
        self.make_variables(weights)

    @abstractmethod
    def make_variables(self, weights: Arrays) -> None:
        """Make variables with these weights, and functions over them; `graph`, `layout` and `style` are set."""

    @abstractmethod
    def release(self) -> None:
        """Free everything that `make_variables` made; also called before its first call."""

    def close(self) -> None:
        self.release()
        super().close()

    # --- data ---------------------------------------------------------------

    def make_reader(self, source: Any) -> Reader:
        """Read by tf.data, or by the suite's threads what tf.data cannot read."""
        why = refusal(source)
        if why is not None:
            reader = super().make_reader(source)
            reader.words = f"Pillow or NumPy, {self.setup.readers} threads, not tf.data: {why}"
            return reader
        if source.records is not None:
            return record_reader(source, self.setup, self.graph.input_shape[-1])
        return input_reader(source, self.setup)

    def as_numpy(self, batch: Any) -> Batch:
        inputs = as_array(batch.inputs)
        if tf.is_tensor(batch.inputs) and inputs.ndim == 4:
            inputs = inputs.transpose(0, 3, 1, 2)
        return super().as_numpy(Batch(inputs, batch.labels))

    def pack(self, form: str, samples: Iterator[Any], folder: str) -> None:
        write(samples, folder)

    # --- for the strategies -------------------------------------------------

    def first_values(self, weights: Arrays) -> Iterator[Tuple[str, np.ndarray, bool]]:
        """Yield (canonical name, value in TensorFlow's layout, whether it is trained) of every tensor."""
        for parameter in self.graph.parameters:
            yield parameter.name, self.layout.native(parameter.name, weights[parameter.name]), True
        for name, shape in self.graph.buffers:
            yield name, np.full(shape, float(name.endswith("running_var"))), False

    @abstractmethod
    def heads(self, inputs: Inputs) -> List[Tensor]:
        """Return every head's logits, in training mode: `macs` traces it."""

    # --- evidence -----------------------------------------------------------

    def loss(self) -> float:
        """Return the mean over the devices or microbatches."""
        return sum(map(float, self._losses)) / len(self._losses)

    def logits(self) -> np.ndarray:
        return concatenated(self._logits)

    def gradients(self) -> Arrays:
        """Return gradients, between backward and update."""
        names = [parameter.name for parameter in self.graph.parameters]
        return self.canonical(zip(names, self.native_gradients()))

    def canonical(self, tensors: Iterable[Tuple[str, Any]]) -> Arrays:
        """Convert (canonical name, TensorFlow's tensor) to the workload's layouts."""
        return {name: self.layout.canonical(name, as_array(each)) for name, each in tensors}

    @abstractmethod
    def native_gradients(self) -> Sequence[Any]:
        """Return every parameter's gradient, in the graph's order and TensorFlow's layouts."""

    def macs(self) -> int:
        """Count on the traced forward of one sample, by its operands' shapes; nothing runs."""
        shape, precision = self.graph.input_shape, self.setup.precision
        if self._images == "NHWC" and not self.graph.vocabulary:
            shape = (*shape[1:], shape[0])
        sample = tf.TensorSpec((1, *shape), tf.int64 if self.graph.vocabulary else precision)
        return macs(compiled(self.heads).get_concrete_function(sample).graph)

    def notes(self) -> Notes:
        notes = dict(super().notes(), layout=self._images, xla=self.xla, **described(self.style))
        if self.style.fast and self.xla == "off":
            notes["optimiser"] = kernel_name(self.setup.optimiser)
        else:
            notes["optimiser"] = f"assignments, {'compiled by XLA' if self.xla != 'off' else 'spelled out'}"
        if self.setup.device == "cpu" and isinstance(self._reader, TensorReader):
            notes["h2d"] = UNCOPIED
        if self.setup.device == "cuda":
            notes["steps"] = "TensorFlow has no device events: native steps are marked when they are asked for"
            notes["stages"] = "the host's clock; it waits for the device at every border"
        return notes


UNCOPIED = "a CPU computes on tf.data's own memory: nothing is copied, unless a batch is cut, converted or transposed"


def split(batch: Batch, count: int) -> List[Batch]:
    """Split a batch into equal contiguous shares, in the samples' order."""
    if count == 1:
        return [batch]
    size = len(batch.labels) // count
    places = [slice(index * size, (index + 1) * size) for index in range(count)]
    return [Batch(batch.inputs[place], batch.labels[place]) for place in places]


def concatenated(logits: Any) -> np.ndarray:
    """Join tensors, in the samples' order, to one float32 array."""
    return np.concatenate([as_array(each) for each in logits]).astype(np.float32)


def as_array(tensor: Any) -> np.ndarray:
    """Copy a tensor or variable to NumPy; an array, as a coordinator fetches, is returned as it is."""
    array: np.ndarray = tensor.numpy() if hasattr(tensor, "numpy") else tensor
    return array
