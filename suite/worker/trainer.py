"""The contract of the worker side: the methods of an adapter's trainer.

Order of calls, in every process of a case:

    start -> build -> open_input (only when data are read)
          -> any number of iterations, native or staged
          -> close

A native iteration is `step` alone. A staged one is `forward`, `backward`,
`communicate`, `update`, with `synchronize` between them. If data are read,
`next_batch` and `to_device` come before either; synthetic batches stay on the device.
"""

from abc import abstractmethod
from typing import Any, Callable, ContextManager, Dict, Iterator, List, Optional

import numpy as np

from stagebench.suite.worker import member
from stagebench.suite.worker.contract import Batch, LayerTimes, Setup, Unsupported
from stagebench.suite.worker.messages import Kernels
from stagebench.suite.worker.threaded import GatheringReader, Reader, ThreadedReader
from stagebench.workloads.graph import Graph

Arrays = Dict[str, np.ndarray]  # parameters, running statistics or gradients by canonical name, in canonical layouts
Notes = member.Notes
Iteration = Callable[[Callable[[str], ContextManager[Any]]], None]  # runs one, each stage within a context of its name


class Trainer(member.Member):
    """A trainer of one graph in one framework, as one rank of a group.

    If several ranks hold one network (`setup.model_parallel_size`), each is called alike and answers for the whole
    network: loss, logits, gradients, parameters and counts are then collective calls.

    The optimiser, `setup.optimiser`, is SGD with momentum or Adam, for every parameter alike (Adam only if the plugin
    declares it); the loss is the sum over heads of weight x mean cross-entropy over the *global* batch, so gradients
    are averaged over all devices of all ranks.
    """

    def __init__(self, setup: Setup) -> None:
        """Keep the setup; touch neither device nor network yet."""
        super().__init__(setup)
        self._reader: Optional[Reader] = None  # `open_input` opens it, `close` closes it

    # --- life ---------------------------------------------------------------

    @abstractmethod
    def build(self, graph: Graph, weights: Arrays) -> None:
        """Make the network and the optimiser with these weights (canonical names and layouts).

        May be called again: a proof rebuilds between its native and its staged half.
        The optimiser's state starts at zero, running statistics at mean 0 and variance 1.
        """

    def close(self) -> None:
        """Stop reading and leave the group; called once, last, if all went well.

        Override it to release first whatever needs the other ranks.
        """
        reader = self._reader
        self._reader = None
        if reader is not None:
            reader.close()
        super().close()

    # --- data ---------------------------------------------------------------

    def open_input(self, source: Any) -> None:
        """Begin to read a `stagebench.suite.worker.sources.Source`, in place of the one before."""
        if self._reader is not None:
            self._reader.close()
        self._reader = None  # if the next line fails, there is nothing to close
        self._reader = self.make_reader(source)

    def make_reader(self, source: Any) -> Reader:
        """Return a reader of the source with `setup.readers` threads or processes, reading already.

        `source.records` is not None if the source is packed for this framework's own reader; its samples then cannot be
        read one by one. The default reads with threads, and takes batches out of arrays in memory; override it for the
        framework's own loader. `open_input` keeps the reader and `close` closes it: an adapter keeps none itself.
        """
        if source.records is not None:
            raise Unsupported(f"{type(self).__name__} does not read {source.records.form}")
        kind = ThreadedReader if source.arrays is None else GatheringReader
        return kind(source, self.setup)

    def next_batch(self) -> Any:
        """Wait for the next host batch (stage `io`)."""
        assert self._reader is not None, "open_input comes first"
        return self._reader.next_batch()

    def skip_batch(self) -> None:
        """Wait for the next host batch and drop it; for adapters whose `next_batch` returns a placeholder."""
        self.next_batch()

    def as_numpy(self, batch: Any) -> Batch:
        """Return a batch of `next_batch` as NumPy arrays, in the layout that `Batch` states."""
        inputs = np.asarray(batch.inputs)
        if inputs.dtype != np.int64:  # tokens
            inputs = inputs.astype(np.float32, copy=False)
        return Batch(inputs, np.asarray(batch.labels, dtype=np.int64))

    def open_records(self, records: Any) -> Any:
        """Return the packed samples (`stagebench.suite.worker.packed_set.RecordSource`) that open_input gets in a view.

        The default leaves them to the framework's own reader, which takes them in an order of its own. An adapter that
        can read them one by one returns a source that does, and declares its format `ordered`.
        """
        return records

    def pack(self, form: str, samples: Iterator[Any], folder: str) -> None:
        """Write samples (`stagebench.suite.worker.packed_set.Record`) in a record format into an empty folder."""
        raise Unsupported(f"{type(self).__name__} writes no records")

    def join_parts(self, form: str, parts: List[str], folder: str) -> None:
        """Join a set's parts to one, for a reader that takes one file; the parts stay as they are."""

    @abstractmethod
    def to_device(self, batch: Any) -> Any:
        """Bring a host batch (NumPy, or what next_batch returns) to the device (stage `h2d`)."""

    # --- the staged iteration -----------------------------------------------

    @abstractmethod
    def forward(self, batch: Any) -> None:
        """Compute logits and loss of a device batch, keeping what backward needs (stage `forward`).

        As of every stage and of `step`, all its work is done when `synchronize` returns: a lazy framework evaluates it.
        """

    @abstractmethod
    def backward(self) -> None:
        """Compute every device's gradients, without any exchange (stage `backward`)."""

    def communicate(self) -> None:
        """Average the gradients over all devices (stage `communication`); the default, for a single rank, does nothing.

        Also called many times in a row by the `comm_only` pass.
        """
        if self.setup.world > 1:
            raise NotImplementedError(f"{type(self).__name__} does not say how ranks exchange")

    @abstractmethod
    def update(self) -> None:
        """Apply the optimiser and forget the gradients (stage `update`)."""

    def bubble(self) -> Optional[Dict[str, float]]:
        """Return how long this rank's `forward` and `backward` of the last staged iteration waited for other parts.

        Seconds, by the two stages' names; None if no network is held in parts.
        """
        return None

    # --- the native iteration -----------------------------------------------

    @abstractmethod
    def step(self, batch: Any) -> None:
        """Run one whole training step on the framework's own fastest path."""

    def step_alone(self, batch: Any) -> None:
        """Run `step` without any exchange (pass `compute_only`); on a single device, identical to `step`."""
        if self.setup.world * self.setup.devices > 1:
            raise Unsupported(f"{type(self).__name__} cannot leave its exchange out")
        self.step(batch)

    def set_learning_rate(self, rate: float) -> None:
        """Use this rate, in place of the optimiser's, for all updates from now on, until the next `build`.

        Called only if `setup.changing_rate`, and never inside an iteration. The velocity stays what it was (in v <-
        momentum*v + g): a framework that keeps lr*v multiplies it by the new rate over the old (the momentum correction
        of Goyal et al. 2017, arXiv 1706.02677, section 3).
        """
        raise Unsupported(f"{type(self).__name__} cannot change its learning rate")

    # --- evidence -----------------------------------------------------------

    @abstractmethod
    def loss(self) -> float:
        """Return the last iteration's loss on this rank (weighted over heads), waiting for it."""

    @abstractmethod
    def logits(self) -> np.ndarray:
        """Return the last head's logits of the last staged forward: (samples, classes), float32 or float64."""

    @abstractmethod
    def gradients(self) -> Arrays:
        """Return the gradients by canonical name and layout; after `communicate`, the averaged ones."""

    @abstractmethod
    def parameters(self) -> Arrays:
        """Return parameters and running statistics (of this rank's first device) by canonical name and layout."""

    @abstractmethod
    def parameter_count(self) -> int:
        """Return the trainable numbers, counted on what the framework itself would train, not on the graph."""

    @abstractmethod
    def macs(self) -> int:
        """Return the multiply-accumulates of one sample's forward pass, counted on the framework's own layers."""

    def predict(self, batch: Any) -> np.ndarray:
        """Return the last head's logits in inference mode: no dropout, running statistics.

        This default serves networks that have neither; for others the trainer overrides it.
        """
        self.forward(batch)
        return self.logits()

    # --- what the measuring loop needs ----------------------------------------

    def layer_times(self, batch: Any) -> List[LayerTimes]:
        """Return every layer's forward and backward, one row per layer in the graph's order, the losses as a last row.

        Called once, directly after the staged pass, with a device batch. Either the staged pass was timed layer by
        layer, since `forget_layer_times`, or the batch is run anew (`stagebench.suite.worker.layers` helps); nothing is
        exchanged then, and running statistics may move. Unsupported explains why layers cannot be distinguished.
        """
        raise Unsupported(f"{type(self).__name__} does not say how its layers are timed")

    def forget_layer_times(self) -> None:
        """Drop what the layers' clocks hold: the staged pass's warm-up is over."""

    def kernel_times(self, iteration: Iteration, trace: str) -> Kernels:
        """Return the kernels that the framework's own profiler sees in staged iterations.

        This is the pass `kernels`, after all others. `iteration(within)` runs one iteration, each stage `within(NAME)`:
        wait for the device at both ends of it, so that all work that a stage has begun is done in it
        (`stagebench.suite.worker.kernels` gives the number of iterations, and sums up). Every rank runs as many.
        `trace` is the path of the whole profile as Chrome's trace events, gzipped; "" on most ranks. Unsupported
        explains why kernels cannot be distinguished.
        """
        raise Unsupported(f"{type(self).__name__} has no profiler of its kernels")

    def gradient_bytes(self) -> Optional[int]:
        """Return the mean bytes that each of this rank's devices adds to a step's exchange; None if there is none.

        The default: every parameter's gradient in the type of the parameters, which in mixed precision are float32;
        None for a part of a network, unless a strategy averages parts.
        """
        setup = self.setup
        if setup.world * setup.devices == 1 or setup.model_parallel_size > 1:
            return None
        return self.parameter_count() * (8 if setup.precision == "float64" else 4)

    def begin_training(self) -> None:
        """Begin the pass `train`: counts that would disturb a speed may be taken from now on, for `notes`."""

    def joint_steps(self) -> Optional[int]:
        """Return the steps of the joined batch that all ranks have made since the build, after a step of this rank.

        For workers that do not wait for each other: each takes as many batches as it can, and an epoch ends for all
        when its samples have been seen by any of them. None: every rank takes part in every step.
        """
        return None

    def waits_for_ranks(self) -> bool:
        """Return whether steps wait for other ranks; the default follows `joint_steps`."""
        return self.joint_steps() is None

    def notes(self) -> Notes:
        """Return notes for a record's reader: merge plan, memory format, reader, ...

        If the workers of a training do not wait for each other, "staleness": {"mean", "max", "steps"}, the updates by
        other workers between a worker's pull of the weights and its push, per step
        (`stagebench.suite.worker.staleness`). The default names the reader.
        """
        return {} if self._reader is None else {"reader": self._reader.words}
