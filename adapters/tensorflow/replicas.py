"""The whole network on every device of this rank, trained by one fused tf.function.

The stages are functions of their own. A forward run under an eager tape gives a compiled
backward, which reads what the forward kept; so the two can be timed apart, at the price
of handing the kept tensors over.
"""

import gc
from typing import Any, Callable, Dict, List, Sequence, Tuple

import numpy as np
import tensorflow as tf

from stagebench.adapters.tensorflow.base import DeviceBatch, TensorFlowTrainer, concatenated, split
from stagebench.adapters.tensorflow.lower import Inputs, Tensor
from stagebench.adapters.tensorflow.net import COUNT, EagerNodes, Net, compiled, compiled_if, differentiated
from stagebench.adapters.tensorflow.optimisers import Tensors, states, updating
from stagebench.suite.worker.contract import LayerTimes, Unsupported
from stagebench.suite.worker.layers import node_by_node
from stagebench.suite.worker.trainer import Arrays, Notes

ONLY_FIRST = tf.VariableAggregation.ONLY_FIRST_REPLICA


class Replicas(TensorFlowTrainer):
    """Trains on one device; a strategy overrides how a network is replicated and how gradients are averaged."""

    one_cluster = True

    # --- what a strategy overrides ------------------------------------------

    def per_device(self, make: Callable[[], Any]) -> List[Any]:
        """Return the variables that `make` creates, one per device."""
        with tf.device(self.devices[0]):
            return [make()]

    def replicate(self, body: Callable[[int], Any]) -> List[Any]:
        """Run `body(device's number)` on all devices at once; inside a tf.function."""
        return [body(0)]

    def each(self, body: Callable[[int], Any]) -> List[Any]:
        """Run `body(device's number)` on all devices at once; eager."""
        return [body(0)]

    def average(self, gradients: Tensors) -> Tensors:
        """Average a device's gradients over all devices of all ranks; inside `replicate`."""
        return gradients

    # --- life ---------------------------------------------------------------

    def release(self) -> None:
        """Free functions and variables, which are in reference cycles."""
        self.variables: Dict[str, List[Any]] = {}  # by canonical name, one per device
        self.nets: List[Net] = []
        self._nets_in_use: List[Net] = []
        self._forward: List[Any] = []  # a function per device, as the next two lists
        self._differentiate: List[Any] = []
        self._rules: List[Any] = []
        self._rates: List[Any] = []  # a variable per device, if the learning rate changes
        self._step = self._step_alone = self._communicate = self._update = self._predict = None  # type: Any
        self._tapes: Sequence[Any] = ()
        self._losses = self._logits = ()
        self.local: Any = None  # every device's own gradients
        self.averaged: Any = None
        gc.collect()

    def make_variables(self, weights: Arrays) -> None:
        for name, value, trainable in self.first_values(weights):
            self.variables[name] = self._variable(value, trainable)
        self.variables[COUNT] = self._variable(np.zeros((), np.int64), False, "int64")
        names = [parameter.name for parameter in self.graph.parameters]
        state = [
            [self._variable(np.zeros(self.variables[name][0].shape), False) for name in names]
            for _ in range(states(self.setup.optimiser))
        ]
        counts = self._variable(np.zeros((), np.int64), False, "int64")
        if self.setup.changing_rate:  # else a constant of the compiled functions
            self._rates = self._variable(np.asarray(self.setup.optimiser.lr), False)
        xla, one_cluster = self.xla, self.one_cluster
        by_xla, apart = xla == "step" and one_cluster, xla == "step" and not one_cluster
        kernels = self.style.fast and xla == "off"
        for index in range(len(self.devices)):
            net = self._net(index, True)
            moments = [[variables[index] for variables in kind] for kind in state]
            rate = self._rates[index] if self._rates else None
            rule = updating(self.setup.optimiser, kernels, net.trainable, moments, counts[index], rate)
            self.nets.append(net)
            self._nets_in_use.append(self._net(index, False))
            self._rules.append(compiled_if(xla == "update" or apart, rule))
        # The functions are traced at their first calls.
        self._differentiate = [compiled_if(apart, differentiated(net)) for net in self.nets]
        self._step = compiled(lambda *tensors: self._whole_step(tensors, True), by_xla)
        self._step_alone = compiled(lambda *tensors: self._whole_step(tensors, False))
        # A function per device: TensorFlow runs the backward of a function over several devices on the first.
        self._forward = [compiled(net.loss, xla == "step") for net in self.nets]
        self._communicate = compiled(lambda gradients: self.replicate(lambda index: self.average(gradients[index])))
        self._update = compiled(self._update_all, by_xla)
        self._predict = compiled(self._predict_all)

    # --- training -----------------------------------------------------------

    def to_device(self, batch: Any) -> DeviceBatch:
        inputs: List[Any] = []
        labels: List[Any] = []
        for device, own in zip(self.devices, split(batch, len(self.devices))):
            with tf.device(device):
                inputs.append(self.placed(own.inputs))
                labels.append(tf.identity(own.labels))
        return DeviceBatch(tuple(inputs), tuple(labels))

    def forward(self, batch: DeviceBatch) -> None:
        """Run the forward's function under an eager tape, which keeps what its backward reads."""

        def on(index: int) -> Any:
            with tf.device(self.devices[index]), tf.GradientTape() as tape:
                loss, heads = self._forward[index](batch.inputs[index], batch.labels[index])
            return tape, loss, heads[-1]

        self._tapes, self._losses, self._logits = zip(*self.each(on))

    def backward(self) -> None:
        def on(index: int) -> Any:
            with tf.device(self.devices[index]):
                return self._tapes[index].gradient(self._losses[index], self.nets[index].trainable)

        self.local = self.each(on)
        self._tapes = ()

    def communicate(self) -> None:
        """All-reduce all gradients; a second call averages the same local gradients again."""
        if self.setup.world * self.setup.devices > 1:
            self.averaged = self._communicate(self.local)

    def update(self) -> None:
        self._update(self.averaged or self.local)
        self.local = self.averaged = None

    def step(self, batch: DeviceBatch) -> None:
        self._losses = self._step(*batch.inputs, *batch.labels)

    def step_alone(self, batch: DeviceBatch) -> None:
        if self.setup.world * self.setup.devices == 1:
            self.step(batch)
        else:
            self._losses = self._step_alone(*batch.inputs, *batch.labels)

    def set_learning_rate(self, rate: float) -> None:
        for variable in self._rates:
            variable.assign(rate)

    # --- evidence -----------------------------------------------------------

    def predict(self, batch: DeviceBatch) -> np.ndarray:
        return concatenated(self._predict(batch.inputs))

    def native_gradients(self) -> Sequence[Any]:
        """Return the first device's gradients, after averaging equal on all devices."""
        own: Sequence[Any] = (self.averaged or self.local)[0]
        return own

    def parameters(self) -> Arrays:
        return self.canonical((name, own[0]) for name, own in self.variables.items() if name != COUNT)

    def parameter_count(self) -> int:
        return sum(int(np.prod(own[0].shape)) for own in self.variables.values() if own[0].trainable)

    def heads(self, inputs: Inputs) -> List[Tensor]:
        return self._net(0, True).heads(inputs)

    def layer_times(self, batch: DeviceBatch) -> List[LayerTimes]:
        """Time layers eagerly, on the first device."""
        if self.xla == "step":
            raise Unsupported("XLA compiles the layers as one")
        nodes = EagerNodes(self.nets[0], self.devices[0])
        return node_by_node(self, self.graph, nodes, batch.inputs[0], batch.labels[0])

    def notes(self) -> Notes:
        return dict(super().notes(), split=SPLIT)

    # --- one device's part ----------------------------------------------------

    def _variable(self, value: np.ndarray, trainable: bool, dtype: str = "") -> List[Any]:
        value = np.asarray(value, dtype=dtype or self.setup.precision)
        # Each device writes its own component: an assignment to the mirrored variable would aggregate.
        return self.per_device(lambda: tf.Variable(value, trainable=trainable, aggregation=ONLY_FIRST))

    def _net(self, index: int, training: bool) -> Net:
        own = {name: each[index] for name, each in self.variables.items()}
        setup = self.setup
        style = self.style._replace(training=training)
        return Net(self.graph, own, style, (setup.seed, setup.rank * setup.devices + index))

    # --- traced ---------------------------------------------------------------

    def _whole_step(self, tensors: Sequence[Any], exchange: bool) -> Tensors:
        """`tensors`: the devices' inputs, then their labels; nested arguments would cost each call over 0.1 ms."""
        count = len(self.devices)
        inputs, labels = tensors[:count], tensors[count:]

        def replica(index: int) -> Tuple[Any, Tensors]:
            loss, gradients = self._differentiate[index](inputs[index], labels[index])
            return loss, self.average(gradients) if exchange else gradients

        results = self.replicate(replica)
        self._update_all([gradients for _, gradients in results])
        return [loss for loss, _ in results]

    def _update_all(self, gradients: List[Tensors]) -> None:
        for device, rule, own in zip(self.devices, self._rules, gradients):
            with tf.device(device):
                rule(own)

    def _predict_all(self, inputs: Sequence[Any]) -> Tensors:
        logits = []
        for device, net, x in zip(self.devices, self._nets_in_use, inputs):
            with tf.device(device):
                logits.append(net.heads(x)[-1])
        return logits


SPLIT = (
    "staged runs a compiled forward under an eager tape, then its compiled backward, then the update, three "
    "functions instead of one; what that costs is staged over native"
)
