"""MXNet's trainer: hybridised Gluon on one device, on several of one process, or over parameter servers.

MXNet's engine is asynchronous: a call returns before it is done. `step` ends by waiting
for its own loss, as every loop that looks at its loss does; the backward and the update
go on meanwhile, and the interpreter is never more than a step ahead.

Oldest Python: 3.6.
"""

import gc
from typing import Any, Dict, Iterator, List, Optional

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon

from adapters.mxnet import machine
from adapters.mxnet.compression import compression, described
from adapters.mxnet.counting import macs
from adapters.mxnet.exchange import Renumbered, Served, Sums
from adapters.mxnet.group import Group
from adapters.mxnet.lower import Choices
from adapters.mxnet.net import JointLoss, Net
from adapters.mxnet.reading import as_numpy, joined, reader_of
from adapters.mxnet.records import join, pack
from adapters.mxnet.updates import Direct, Documented, name_of, settings
from suite.worker.contract import Batch, Joined, Setup
from suite.worker.trainer import Trainer
from workloads.graph import Graph

STORES = {"kvstore_local": "local", "kvstore_device": "device"}


class MXNetTrainer(Trainer):
    """Trains a lowered graph; `default` with gluon.Trainer, `tuned` with the operators beneath it."""

    def __init__(self, setup: Setup) -> None:
        """Nothing is built yet."""
        super().__init__(setup)
        self._tuned = setup.tuning == "tuned"
        self._choices = Choices(setup.knobs.get("lrn", "composed"), self._tuned, setup.precision)
        self._dtype = setup.precision
        self._normalises = False  # has the graph an LRN?
        self._asynchronous = setup.strategy == "dist_async"
        self._compression = compression(setup)
        self._share = setup.batch // setup.devices  # samples of a device
        self._global_batch = setup.batch * setup.world
        self._contexts: List[Any] = []
        self._group: Optional[Group] = None
        self._reader: Any = None
        self._net: Any = None
        self._joint: Any = None
        self._parameters: List[Any] = []
        self._updates: Any = None
        self._trainer: Any = None
        self._sums: Optional[Sums] = None
        self._served: Optional[Served] = None
        self._summed: Optional[List[List[Any]]] = None
        self._heads: List[Any] = []
        self._losses: List[Any] = []

    # --- life ---------------------------------------------------------------

    def start(self) -> Joined:
        """Devices; the distributed store, which numbers its workers in its own order: nothing depends on it."""
        setup = self.setup
        self._contexts = machine.contexts(setup)
        if setup.strategy.startswith("dist_"):
            self._group = Group(setup.strategy, self._compression)
            return Joined(setup.rank, self._group.world, "ps-lite", machine.versions(), len(self._contexts))
        return Joined(0, 1, "none", machine.versions(), len(self._contexts))

    def build(self, graph: Graph, weights: Dict[str, np.ndarray]) -> None:
        """Lower, place, hybridise; a second call starts afresh."""
        self._release()
        # The masks of dropout: every rank its own, the same again after every build.
        mx.random.seed((self.setup.seed * 1000003 + self.setup.rank) % 2**31)
        self._shape = graph.input_shape
        self._normalises = any(layer.kind == "lrn" for layer in graph.layers)
        self._net = Net(graph, weights, self._contexts, self._dtype, self._share, self._choices)
        self._joint = JointLoss([head.weight for head in graph.heads])
        for block in (self._net, self._joint):
            block.hybridize(active=True, static_alloc=True, static_shape=True)
        self._parameters = [parameter for _, parameter in self._net.trainable()]
        self._updates = (Direct if self._tuned else Documented)(self._parameters, self.setup.optimiser)
        self._connect()

    def synchronize(self) -> None:
        """Wait for the engine."""
        mx.nd.waitall()

    def close(self) -> None:
        """Stop the readers, leave the group."""
        if self._reader is not None:
            self._reader.close()
        if self._group is not None:
            mx.nd.waitall()
            self._release()
            self._group.close()
            gc.collect()

    # --- data ---------------------------------------------------------------

    def open_input(self, source: Any) -> None:
        """RecordIO by ImageRecordIter, files by threads, memory by indices."""
        self._reader = reader_of(source, self.setup)

    def as_numpy(self, batch: Any) -> Batch:
        """Of a reader's pieces."""
        return Batch(as_numpy(batch.images), as_numpy(batch.labels).astype(np.int64))

    def pack(self, form: str, samples: Iterator[Any], folder: str) -> None:
        """As RecordIO, the only form that is declared."""
        pack(samples, folder)

    def join_parts(self, form: str, parts: List[str], folder: str) -> None:
        """ImageRecordIter takes one file."""
        join(parts, folder)

    def to_device(self, batch: Any) -> List[Any]:
        """(images, labels) for every device: contiguous shares in the devices' order."""
        images, labels = joined(batch.images), joined(batch.labels)
        parts = []
        for number, context in enumerate(self._contexts):
            own = slice(number * self._share, (number + 1) * self._share)
            parts.append((placed(images[own], context, self._dtype), placed(labels[own], context, "float32")))
        return parts

    # --- the staged iteration -----------------------------------------------

    def forward(self, batch: Any) -> None:
        """Every device's network and loss, recorded."""
        self._heads, self._losses = [], []
        with autograd.record(train_mode=True):
            for images, labels in batch:
                heads = self._net(images)
                self._losses.append(self._joint(labels, *heads))
                self._heads.append(heads)

    def backward(self) -> None:
        """Every device's gradients, summed over its samples."""
        self._summed = None
        autograd.backward(self._losses)

    def communicate(self) -> None:
        """Sum over all devices, in place as `step` does; a "dist_async" store updates and sends the weights."""
        if self._served is not None:
            exchanged = self._served.beside()
        elif self._sums is None:
            return
        elif self._summed is None:
            exchanged = self._summed = self._sums.in_place()
        else:  # asked again without a backward between
            exchanged = self._sums.again()
        for devices in exchanged:
            for array in devices:
                array.wait_to_read()

    def update(self) -> None:
        """The optimiser on every device; with a "dist_async" store it has happened on the servers."""
        if self._served is None:
            gradients, samples = self._current()
            self._updates.apply(gradients, 1.0 / samples)
        self._summed = None

    # --- the native iteration -----------------------------------------------

    def step(self, batch: Any) -> None:
        """Backward, exchange and update are handed to the engine at once: it overlaps them."""
        self.forward(batch)
        autograd.backward(self._losses)
        if self._served is not None:
            self._served.native()
        elif self._trainer is not None:
            self._trainer.step(self._global_batch)
        else:
            gradients = self._local() if self._sums is None else self._sums.in_place()
            self._updates.apply(gradients, 1.0 / self._global_batch)
        self._pace()

    def step_alone(self, batch: Any) -> None:
        """Every device updates its weights with its own gradients."""
        self.forward(batch)
        autograd.backward(self._losses)
        self._updates.apply(self._local(), 1.0 / self._share)
        self._pace()

    # --- evidence -----------------------------------------------------------

    def loss(self) -> float:
        """This rank's own, the mean over its samples."""
        return float(np.mean([loss.asnumpy() for loss in self._losses], dtype=np.float64))

    def logits(self) -> np.ndarray:
        """The last head's, of the last staged forward, of all devices."""
        return np.concatenate([heads[-1].asnumpy() for heads in self._heads])

    def gradients(self) -> Dict[str, np.ndarray]:
        """Between backward and update: the first device's own, after `communicate` the average of all."""
        gradients, samples = self._current()
        names = [name for name, _ in self._net.trainable()]
        return {name: devices[0].asnumpy() / samples for name, devices in zip(names, gradients)}

    def parameters(self) -> Dict[str, np.ndarray]:
        """Of the first device, with running statistics."""
        return self._net.tensors(self._contexts[0])

    def parameter_count(self) -> int:
        """Of the block's parameters that take gradients."""
        own = self._net.collect_params().values()
        return sum(int(np.prod(parameter.shape)) for parameter in own if parameter.grad_req != "null")

    def macs(self) -> int:
        """Counted on the operators of the traced graph, with the shapes that MXNet infers."""
        return macs(self._net, self._shape)

    def predict(self, batch: Any) -> np.ndarray:
        """All shares by the first device's network: running statistics are every device's own."""
        first = self._contexts[0]
        return np.concatenate([self._net.in_use(images.as_in_context(first), first) for images, _ in batch])

    # --- what the measuring loop needs ----------------------------------------

    def maximum(self, value: float) -> float:
        """Over sockets: a store can only sum."""
        return value if self._group is None else self._group.maximum(value)

    def begin_training(self) -> None:
        """Count how stale the weights are, where workers do not wait for each other."""
        if self._served is not None:
            self._served.count()

    def notes(self) -> Dict[str, Any]:
        """What was chosen."""
        direct = self._trainer is None and self._served is None
        rule = name_of(self.setup.optimiser)
        notes = {
            "hybridize": "static_alloc, static_shape",
            "optimiser": "%s, one a parameter" % OPERATORS[rule] if direct else "gluon.Trainer, %s" % rule,
            "pace": "a step waits for its loss",
            "reader": self._reader.words if self._reader else "none",
            "compression": described(self._compression, self.setup),
        }
        if self._normalises:
            notes["lrn"] = LRN_NOTES[self._choices.lrn]
        if self._sums is not None:
            notes["exchange"] = "in place, as the native step; comm_only repeats it with zeros of the gradients' shapes"
        if self._served is not None:
            megabytes = self._served.copied_bytes / 1e6
            notes["exchange"] = "staged and comm_only first copy the gradients, %.1f MB; native does not" % megabytes
            notes["optimiser"] = "%s on the servers; gradients are divided by the global batch" % rule
            if self._served.staleness:
                notes["staleness"] = self._served.staleness
        return notes

    # --- inside -------------------------------------------------------------

    def _release(self) -> None:
        """Let go of what was built; the Trainer stands in reference cycles."""
        self._net = self._joint = self._updates = self._trainer = None
        self._sums = self._served = self._summed = None
        self._parameters, self._heads, self._losses = [], [], []
        gc.collect()

    def _connect(self) -> None:
        """The stores of this strategy: the staged exchange's, and the native one's where it has its own."""
        setup, count = self.setup, len(self._parameters)
        native: Any = STORES.get(setup.strategy)  # by name: gluon.Trainer makes its own
        if self._group is not None and self._asynchronous:
            keys = self._group.keys(count + 1)
            self._served = Served(
                self._group.store, keys, self._parameters, setup.optimiser, samples=self._global_batch
            )
            return
        if self._group is not None:
            self._sums = Sums(self._group.store, self._group.keys(count), self._parameters)
            native = None if self._tuned else Renumbered(self._group.store, self._group.keys(count))
        elif native is not None and setup.devices > 1:
            self._sums = Sums(self._own_store(native), range(count), self._parameters)
        if not self._tuned:
            self._trainer = gluon.Trainer(
                self._parameters,
                name_of(setup.optimiser),
                settings(setup.optimiser),
                kvstore=native,
                compression_params=None if self._group else self._compression,  # a distributed store has it already
                update_on_kvstore=None,
            )

    def _own_store(self, kind: str) -> Any:
        """This process's, of a kind."""
        store = mx.kv.create(kind)
        if self._compression is not None:
            store.set_gradient_compression(self._compression)
        return store

    def _local(self) -> List[List[Any]]:
        return [parameter.list_grad() for parameter in self._parameters]

    def _current(self) -> Any:
        """(gradients by parameter and device, samples that they sum over)."""
        if self._summed is not None:
            return self._summed, self._global_batch
        return self._local(), self._share

    def _pace(self) -> None:
        for loss in self._losses:
            loss.wait_to_read()


def placed(values: Any, context: Any, dtype: str) -> Any:
    """NumPy's array as a copy on a device; MXNet's own where they are, if that is the place."""
    if isinstance(values, np.ndarray):
        return mx.nd.array(values, ctx=context, dtype=dtype)
    return values.astype(dtype, copy=False).as_in_context(context)


OPERATORS = {"sgd": "sgd_mom_update", "adam": "adam_update"}
LRN_NOTES = {
    "composed": "of slices, sums and a power (tuned: exp and log); on two cores of a CPU with one thread an iteration "
    "of AlexNet or GoogLeNet took 1 / 1.4 of the time with MXNet's own operator (tests/benchmarks/mxnet_native.py "
    "measures it on any machine)",
    "native": "MXNet's own operator, whose gradient is wrong with oneDNN before a convolution or a pooling",
}
