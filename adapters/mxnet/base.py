"""The trainer of MXNet: hybridised Gluon on a process's devices; gradients are summed, every device updates.

MXNet's engine is asynchronous: a call returns before its work is done. `step` ends by waiting for the update of the
previous step, so the interpreter is never more than a step ahead.
"""

import gc
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon

from stagebench.adapters.mxnet import machine
from stagebench.adapters.mxnet.comm import compression, described
from stagebench.adapters.mxnet.input import as_numpy, joined, pack, reader_of
from stagebench.adapters.mxnet.lower import Choices
from stagebench.adapters.mxnet.machine import Array, ByDevice, like, placed, there, wait_for
from stagebench.adapters.mxnet.net import ImperativeNodes, JointLoss, Net
from stagebench.adapters.mxnet.optimisers import Documented, Operators, change_rate, clip, name_of, settings
from stagebench.adapters.mxnet.record_files import join
from stagebench.suite.worker.contract import Batch, Joined, LayerTimes, Setup, decay_of, dropout_seed
from stagebench.suite.worker.layers import node_by_node
from stagebench.suite.worker.peaks import Yardstick
from stagebench.suite.worker.step_ends import StepEnds
from stagebench.suite.worker.threaded import Reader
from stagebench.suite.worker.trainer import Arrays, Notes, Trainer
from stagebench.workloads.graph import Graph

# of every device: images (samples, channels, height, width) or int32 tokens (samples, positions); float32 labels
Shares = List[Tuple[Array, Array]]
Mark = Any  # of `StepEnds`

OPERATORS = {"sgd": "sgd_mom_update", "adam": "adam_update", "adamw": "contrib.adamw_update"}
LRN_NOTES = {
    False: "of slices, sums and a power (tuned: exp and log); on two cores of a CPU with one thread an iteration "
    "of AlexNet or GoogLeNet took 1 / 1.4 of the time with MXNet's own operator (tests/validation/mxnet_native.py "
    "measures it on any machine)",
    True: "MXNet's own operator, whose gradient is wrong with oneDNN before a convolution or a pooling",
}


class MXNetTrainer(Trainer):
    """Synchronous training; `default` with gluon.Trainer, `tuned` with the operators beneath it.

    As it is, the strategy `single`; another one overrides `_connect`.
    """

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        # Horovod's adapter builds on this one without its knobs.
        self._choices = Choices(setup.knobs.get("lrn") == "native", setup.tuned, setup.precision)
        self._compression = compression(setup)
        self._share = setup.batch // setup.devices  # samples of a device
        self._global_batch = setup.batch * setup.world
        self._contexts: List[Any] = []
        self._release()

    def _connect(self) -> None:
        """Set up the exchange of a built network: `_exchange_by` a store, and `_train_by` it. Here: no exchange."""
        self._train_by(None)

    # --- life ---------------------------------------------------------------

    def _release(self) -> None:
        """Free the network; gluon.Trainer is in reference cycles."""
        self._ends = StepEnds(1, there)
        self._net: Any = None
        self._joint: Any = None
        self._parameters: List[Any] = []
        self._optimiser: Any = None
        self._trainer: Any = None  # the native step's exchange and update; None: `_store` and `_optimiser` do it
        self._trainer_batch = self._global_batch  # samples by which it divides its sums
        self._store: Any = None  # exchanges gradients; None: no exchange
        self._keys: List[int] = []  # the parameters' in `_store`
        self._stand_ins: ByDevice = []
        self._summed = False  # over all devices, between `communicate` and `update`
        self._heads: List[Any] = []
        self._losses: List[Any] = []
        gc.collect()

    def start(self) -> Joined:
        self._contexts = machine.contexts(self.setup)
        return Joined(0, 1, "none", machine.versions(), len(self._contexts))

    def build(self, graph: Graph, weights: Arrays) -> None:
        self._release()
        # MXNet adds each device's number within the rank.
        mx.random.seed(dropout_seed(self.setup.seed, self.setup.rank * self.setup.devices))
        self._net = Net(graph, weights, self._contexts, self.setup.precision, self._share, self._choices)
        self._joint = JointLoss([head.weight for head in graph.heads], self._net.positions_first)
        for block in (self._net, self._joint):
            block.hybridize(active=True, static_alloc=True, static_shape=True)
        self._parameters = [parameter for _, parameter in self._net.trainable()]
        for parameter in self._parameters:
            parameter.wd_mult = decay_of(self.setup.optimiser._replace(weight_decay=1.0), parameter.shape)
        self._optimiser = (Operators if self.setup.tuned else Documented)(self._parameters, self.setup.optimiser)
        self._connect()

    def _exchange_by(self, store: Any, keys: Sequence[int]) -> None:
        """Initialise a key-value store that sums pushes, under a key for each parameter."""
        self._store, self._keys = store, list(keys)
        for key, parameter in zip(self._keys, self._parameters):
            store.init(key, parameter.list_data()[0])

    def _train_by(self, store: Any, compressed: Optional[Dict[str, Any]] = None) -> None:
        """Make the native step's gluon.Trainer, unless tuned, over a store or the name of one."""
        if not self.setup.tuned:
            rule = self.setup.optimiser
            self._trainer = gluon.Trainer(
                self._parameters,
                name_of(rule),
                settings(rule),
                kvstore=store,
                compression_params=compressed,
                update_on_kvstore=False if rule.clip else None,
            )

    def synchronize(self) -> None:
        self._ends.settle()
        mx.nd.waitall()

    # --- data ---------------------------------------------------------------

    def make_reader(self, source: Any) -> Reader:
        return reader_of(source, self.setup)

    def as_numpy(self, batch: Any) -> Batch:
        """Copy a reader's pieces, joined."""
        return Batch(as_numpy(batch.inputs), as_numpy(batch.labels).astype(np.int64))

    def pack(self, form: str, samples: Iterator[Any], folder: str) -> None:
        pack(samples, folder)

    def join_parts(self, form: str, parts: List[str], folder: str) -> None:
        join(parts, folder)

    def to_device(self, batch: Any) -> Shares:
        """Return (inputs, labels) for every device: contiguous shares in the devices' order."""
        inputs, labels = joined(batch.inputs), joined(batch.labels)
        dtype = "int32" if self._net.graph.vocabulary else self.setup.precision
        shares = []
        for number, context in enumerate(self._contexts):
            own = slice(number * self._share, (number + 1) * self._share)
            shares.append((placed(inputs[own], context, dtype), placed(labels[own], context, "float32")))
        return shares

    # --- the staged iteration -----------------------------------------------

    def forward(self, batch: Shares) -> None:
        self._heads, self._losses = [], []
        with autograd.record(train_mode=True):
            for inputs, labels in batch:
                heads = self._net(inputs)
                self._losses.append(self._joint(labels, *heads))
                self._heads.append(heads)

    def backward(self) -> None:
        """Compute every device's gradients, summed over its samples."""
        self._summed = False
        autograd.backward(self._losses)

    def communicate(self) -> None:
        """Sum over all devices, in place as in `step`.

        A second call after one backward exchanges zeros of the gradients' shapes, and the sums stay: they would grow
        with every exchange, and copying the gradients back would be timed as communication, though the native step
        does not copy.
        """
        if self._store is None:
            return
        gradients = self._local()
        if self._summed:
            gradients = self._stand_ins = self._stand_ins or like(gradients)
        self._exchange(gradients, into=gradients)
        self._summed = True
        wait_for(gradients)

    def update(self) -> None:
        self._apply(self._local(), self._samples())
        self._summed = False

    def _exchange(self, gradients: ByDevice, into: ByDevice) -> None:
        """Push and pull in forward order; the first parameter has the highest priority, as the next forward needs it.

        Nothing here waits: MXNet's engine starts each exchange when its gradient is complete.
        """
        for place, key in enumerate(self._keys):
            self._store.pushpull(key, gradients[place], out=into[place], priority=-place)

    def _local(self) -> ByDevice:
        return [parameter.list_grad() for parameter in self._parameters]

    def _samples(self) -> int:
        """Return the number of samples that a gradient sums over."""
        return self._global_batch if self._summed else self._share

    # --- the native iteration -----------------------------------------------

    def step(self, batch: Shares) -> None:
        """Queue backward, exchange and update: the engine overlaps them."""
        self.forward(batch)
        autograd.backward(self._losses)
        if self._trainer is not None:
            self._trained()
        else:
            gradients = self._local()
            if self._store is not None:
                self._exchange(gradients, into=gradients)
            self._apply(gradients, self._global_batch)
        self._pace()

    def step_alone(self, batch: Shares) -> None:
        """Update every device's weights with its own gradients."""
        self.forward(batch)
        autograd.backward(self._losses)
        self._apply(self._local(), self._share)
        self._pace()

    def _trained(self) -> None:
        """Exchange and update by gluon.Trainer, in two calls where gradients are clipped between them."""
        if not self.setup.optimiser.clip:
            self._trainer.step(self._trainer_batch)
            return
        self._trainer.allreduce_grads()
        clip(self._local(), self.setup.optimiser.clip * self._global_batch)
        self._trainer.update(self._trainer_batch)

    def _apply(self, gradients: ByDevice, samples: int) -> None:
        """Update by gradients that are sums over `samples`."""
        if self.setup.optimiser.clip:
            clip(gradients, self.setup.optimiser.clip * samples)
        self._optimiser.apply(gradients, 1.0 / samples)

    def _pace(self) -> None:
        """Note a step's end: the last parameter's weights are written last, and a copy of them is kept."""
        self._ends.asked([weights.copy() for weights in self._parameters[-1].list_data()])

    def set_learning_rate(self, rate: float) -> None:
        self._optimiser.set_rate(rate)
        if self._trainer is not None:
            by_store = self._trainer._update_on_kvstore  # None until the first step
            updaters = [self._trainer._kvstore._updater] if by_store else self._trainer._updaters
            change_rate(self._trainer._optimizer, updaters, rate)

    # --- evidence -----------------------------------------------------------

    def loss(self) -> float:
        return float(np.mean([loss.asnumpy() for loss in self._losses], dtype=np.float64))

    def logits(self) -> np.ndarray:
        return np.concatenate([self._net.logits(heads) for heads in self._heads])

    def gradients(self) -> Arrays:
        """Return the first device's gradients, after `communicate` the average of all devices."""
        canonical, samples = self._net.canonical, self._samples()
        return {name: canonical(name, own.list_grad()[0]) / samples for name, own in self._net.trainable()}

    def parameters(self) -> Arrays:
        return self._net.tensors(self._contexts[0])

    def parameter_count(self) -> int:
        """Count the block's parameters that take gradients."""
        own = self._net.collect_params().values()
        return sum(int(np.prod(parameter.shape)) for parameter in own if parameter.grad_req != "null")

    def gradient_bytes(self) -> Optional[int]:
        """Return the bytes of an exchange: compressed, two bits per number."""
        return super().gradient_bytes() if self._compression is None else -(-self.parameter_count() // 4)

    def macs(self) -> int:
        return self._net.macs()

    def predict(self, batch: Shares) -> np.ndarray:
        """Predict all shares on the first device: every device has its own running statistics."""
        first = self._contexts[0]
        return np.concatenate([self._net.predict(inputs.as_in_context(first), first) for inputs, _ in batch])

    def mark(self) -> Mark:
        """Mark the end of the last step's update: MXNet has no device events."""
        return self._ends.mark()

    def layer_times(self, batch: Shares) -> List[LayerTimes]:
        """Time layers on the first device; the engine's backward runs in the layers' reverse order, by dependencies."""
        params = {name: parameter.data(self._contexts[0]) for name, parameter in self._net.params.items()}
        nodes = ImperativeNodes(params, self._joint, self._net.choices)
        return node_by_node(self, self._net.graph, nodes, *batch[0])

    def yardstick(self) -> Optional[Yardstick]:
        return super().yardstick() or machine.yardstick(self.setup, self._contexts)

    def notes(self) -> Notes:
        rule = name_of(self.setup.optimiser)
        notes = dict(
            super().notes(),
            hybridize="static_alloc, static_shape",
            optimiser=f"gluon.Trainer, {rule}" if self._trainer else f"{OPERATORS[rule]}, one a parameter",
            pace="a step waits for the update of the one before",
            compression=described(self._compression, self.setup),
        )
        if self._net is not None and any(layer.kind == "lrn" for layer in self._net.graph.layers):
            notes["lrn"] = LRN_NOTES[self._choices.native_lrn]
        if self._store is not None:
            notes["exchange"] = "in place, as the native step; comm_only repeats it with zeros of the gradients' shapes"
        return notes
