"""The strategy `model_parallel`: a network whose layers are spread over several devices of this process."""

import gc
from typing import Any, Dict, List, Optional, Tuple

import numpy as np
import tensorflow as tf

from stagebench.adapters.tensorflow import machine
from stagebench.adapters.tensorflow.base import DeviceBatch, TensorFlowTrainer, concatenated
from stagebench.adapters.tensorflow.lower import Inputs
from stagebench.adapters.tensorflow.net import COUNT, compiled, compiled_if
from stagebench.adapters.tensorflow.optimisers import Tensors, states, updating
from stagebench.adapters.tensorflow.stages import Pipeline, StageNet, differentiated, mean
from stagebench.suite.worker.contract import LayerTimes, Setup, Unsupported
from stagebench.suite.worker.pipeline_stages import exchanged_bytes, stages
from stagebench.suite.worker.trainer import Arrays, Notes


class ModelParallel(TensorFlowTrainer):
    """A stage of the network a device; a batch goes through in `microbatches`, one behind the other."""

    transport = "memory: activations between devices"

    def __init__(self, setup: Setup) -> None:
        """The threads of the staged iteration start with its first."""
        super().__init__(setup)
        self._microbatches = int(setup.knobs["microbatches"])
        self._pipeline = Pipeline(setup.devices)

    # --- life ---------------------------------------------------------------

    def prepare(self) -> List[str]:
        """Set threads: with one microbatch the devices take turns, and each may use all."""
        return machine.prepare(self.setup, at_once=1 if self._microbatches == 1 else self.setup.devices)

    def release(self) -> None:
        """Free functions and variables, which are in reference cycles."""
        self.variables: Dict[str, Any] = {}  # by canonical name
        self._rates: List[Any] = []  # a variable per device, if the learning rate changes
        self._step = self._mean = self._update = self._predict = None  # type: Any
        self._forward: List[Any] = []  # a function per stage
        self._rules: List[Any] = []
        self._stages: List[StageNet] = []
        self._runs: Dict[Tuple[int, int], Any] = {}  # by stage and microbatch: (tape, outputs, inputs)
        self._own: Dict[Tuple[int, int], Any] = {}  # gradients, by stage and microbatch
        self._losses = self._logits = ()
        self._gradients: List[Any] = []  # a list per stage
        self._idle: Dict[str, float] = {}
        gc.collect()

    def make_variables(self, weights: Arrays) -> None:
        self._places = stages(self.graph, len(self.devices))
        homes = {}
        for device, place in zip(self.devices, self._places):
            for layer in self.graph.layers[place.begin : place.end]:
                homes.update(dict.fromkeys([each.name for each in layer.parameters], device))
                homes.update(dict.fromkeys([name for name, _ in layer.buffers], device))
        for name, value, trainable in self.first_values(weights):
            self.variables[name] = self._variable(value, trainable, homes[name])
        self._masks = [self._variable(np.zeros((), np.int64), False, device, "int64") for device in self.devices]
        counts = [self._variable(np.zeros((), np.int64), False, device, "int64") for device in self.devices]
        self._stages, in_use = self._cut(True), self._cut(False)
        by_xla, kernels = self.xla == "update", self.style.fast and self.xla == "off"
        optimiser = self.setup.optimiser
        if self.setup.changing_rate:  # otherwise a constant of the compiled functions
            first = np.asarray(optimiser.lr)
            self._rates = [self._variable(first, False, device) for device in self.devices]
        for index, stage in enumerate(self._stages):
            moments = [
                [self._variable(np.zeros(weight.shape), False, stage.device) for weight in stage.trainable]
                for _ in range(states(optimiser))
            ]
            rate = self._rates[index] if self._rates else None
            rule = updating(optimiser, kernels, stage.trainable, moments, counts[index], rate)
            self._rules.append(compiled_if(by_xla, rule))
        self._step = compiled(self._whole_step)
        self._forward = [compiled(stage.loss if stage.last else stage.outputs) for stage in self._stages]
        self._mean = compiled(mean)
        self._update = compiled(self._update_all)
        self._predict = compiled(lambda inputs: through(in_use, inputs)[-1])

    def close(self) -> None:
        super().close()
        self._pipeline.close()

    def _cut(self, training: bool) -> List[StageNet]:
        style, seed = self.style._replace(training=training), (self.setup.seed, self.setup.rank)
        return [
            StageNet(self.graph, dict(self.variables, **{COUNT: masks}), style, seed, place, device)
            for place, device, masks in zip(self._places, self.devices, self._masks)
        ]

    def set_learning_rate(self, rate: float) -> None:
        for variable in self._rates:
            variable.assign(rate)

    def _variable(self, value: np.ndarray, trainable: bool, device: str, dtype: str = "") -> Any:
        value = np.asarray(value, dtype=dtype or self.setup.precision)
        with tf.device(device):
            return tf.Variable(value, trainable=trainable)

    # --- training -----------------------------------------------------------

    def to_device(self, batch: Any) -> DeviceBatch:
        """Place the microbatches' inputs on the first device, their labels on the last."""
        share, rest = divmod(len(batch.labels), self._microbatches)
        if rest:
            raise Unsupported(f"a batch of {len(batch.labels)} does not divide into {self._microbatches} microbatches")
        inputs, labels = [], []
        for number in range(self._microbatches):
            place = slice(number * share, (number + 1) * share)
            with tf.device(self.devices[0]):
                inputs.append(self.placed(batch.inputs[place]))
            with tf.device(self.devices[-1]):
                labels.append(tf.identity(batch.labels[place]))
        return DeviceBatch(tuple(inputs), tuple(labels))

    def forward(self, batch: DeviceBatch) -> None:
        """Run a function per stage and microbatch, under an eager tape; devices work on different microbatches."""

        def work(index: int, number: int, given: Any) -> Any:
            stage, forward = self._stages[index], self._forward[index]
            with tf.device(stage.device), tf.GradientTape() as tape:
                if index:
                    tape.watch(given)
                if stage.last:
                    made, heads = forward(given, batch.labels[number])
                    losses[number], logits[number] = made, heads[-1]
                else:
                    made = forward(given)
            self._wait(made)
            self._runs[index, number] = tape, made, given
            return made

        losses, logits = [[None] * self._microbatches for _ in range(2)]
        idle = self._pipeline.run(range(len(self._stages)), [[each] for each in batch.inputs], work)
        self._idle, self._losses, self._logits = {"forward": idle}, losses, logits

    def backward(self) -> None:
        """Run the compiled backwards, from the last stage to the first, then average each over the microbatches."""

        def work(index: int, number: int, upstream: Any) -> Any:
            tape, made, given = self._runs[index, number]
            upstream, own = self._stages[index].backward(tape, made, given, upstream)
            self._own[index, number] = own
            self._wait(own)
            return upstream

        order, numbers = range(len(self._stages) - 1, -1, -1), range(self._microbatches)
        self._idle["backward"] = self._pipeline.run(order, [None] * self._microbatches, work)
        self._gradients = []
        for index, stage in enumerate(self._stages):
            with tf.device(stage.device):
                self._gradients.append(self._mean([self._own[index, number] for number in numbers]))
        self._runs, self._own = {}, {}

    def update(self) -> None:
        self._update(self._gradients)
        self._gradients = []

    def bubble(self) -> Optional[Dict[str, float]]:
        """Return the mean of the devices' waiting seconds."""
        return self._idle if len(self.devices) > 1 else None

    def step(self, batch: DeviceBatch) -> None:
        self._losses = self._step(batch.inputs, batch.labels)

    def step_alone(self, batch: DeviceBatch) -> None:
        raise Unsupported("a network in stages exchanges activations within its forward and its backward")

    def _wait(self, made: Any) -> None:
        """Wait for a GPU, so that its time counts for this stage: fetch a number of the last result."""
        if self.setup.device == "cuda":
            for each in tf.nest.flatten(made)[-1:]:
                tf.reshape(each, [-1])[:1].numpy()

    # --- traced ---------------------------------------------------------------

    def _whole_step(self, inputs: Tensors, labels: Tensors) -> Tensors:
        results = [differentiated(self._stages, *microbatch) for microbatch in zip(inputs, labels)]
        averaged = []
        for index, stage in enumerate(self._stages):
            with tf.device(stage.device):
                averaged.append(mean([gradients[index] for _, gradients in results]))
        self._update_all(averaged)
        return [loss for loss, _ in results]

    def _update_all(self, gradients: List[Tensors]) -> None:
        for stage, rule, own in zip(self._stages, self._rules, gradients):
            with tf.device(stage.device):
                rule(own)

    # --- evidence -----------------------------------------------------------

    def predict(self, batch: DeviceBatch) -> np.ndarray:
        """Predict one microbatch after the other."""
        return concatenated([self._predict(inputs) for inputs in batch.inputs])

    def native_gradients(self) -> List[Any]:
        return [each for stage in self._gradients for each in stage]

    def parameters(self) -> Arrays:
        return self.canonical(self.variables.items())

    def parameter_count(self) -> int:
        return sum(int(np.prod(each.shape)) for stage in self._stages for each in stage.trainable)

    def heads(self, inputs: Inputs) -> Tensors:
        return through(self._stages, inputs)

    def layer_times(self, batch: DeviceBatch) -> List[LayerTimes]:
        raise Unsupported("devices hold some of the layers each, and the batch goes through them in pieces")

    def notes(self) -> Notes:
        rows, itemsize = [], np.dtype(self.setup.precision).itemsize
        for device, place in zip(self.devices, self._places):
            layers = self.graph.layers[place.begin : place.end]
            share = 100.0 * sum(layer.macs for layer in layers) / max(1, self.graph.macs)
            held = sum(layer.gradient_bytes(itemsize) for layer in layers) / 2.0**20
            values = (device, layers[0].name, layers[-1].name, share, held)
            rows.append("%s: %s to %s (%.0f %% of the arithmetic, %.3g MiB of parameters)" % values)
        found = dict(super().notes(), stages="; ".join(rows), microbatches=self._microbatches)
        exchanged = exchanged_bytes(self.graph, self._places, self.setup.batch, itemsize)
        return dict(found, bubble=BUBBLE, split=SPLIT, exchanged_bytes=exchanged)


def through(stages: List[StageNet], inputs: Inputs) -> Tensors:
    """Return the heads' logits of a batch that goes through all stages."""
    values = [inputs]
    for stage in stages:
        with tf.device(stage.device):
            values = stage.outputs(values)
    return values


BUBBLE = "of forward and backward: the mean over the devices of the time in which a device had nothing to do"
SPLIT = "staged runs a thread and compiled functions a device, native one function of all devices and microbatches"
