"""What the trainer asks of a way of training: replicas, a network in parts, parameter servers.

Oldest Python: 3.6.
"""

from typing import Any, Dict, Iterator, List, Optional, Tuple

import numpy as np
import tensorflow as tf

from adapters.tensorflow import machine
from adapters.tensorflow.layout import Layout
from adapters.tensorflow.lower import Style
from adapters.tensorflow.net import macs
from adapters.tensorflow.programs import compiled
from suite.worker.contract import Batch, Setup, Unsupported
from workloads.graph import Graph

Tensors = Dict[str, np.ndarray]


class Way:
    """The stages of `suite.worker.trainer.Trainer`, which says what each does; `build` comes first."""

    transport = "none"
    rank, world = 0, 1

    def __init__(self, setup: Setup, devices: List[str], knobs: Dict[str, Any]) -> None:
        """`devices` of this rank, by TensorFlow's names; in `knobs` "auto" is resolved where the tuning decides."""
        self.setup, self.devices, self.knobs = setup, list(devices), knobs

    # --- life ---------------------------------------------------------------

    def build(self, setup: Setup, graph: Graph, weights: Tensors) -> None:
        """Lower and place; a second call starts afresh, after `release`."""
        self.setup, self.graph = setup, graph
        self.layout = Layout(graph, self.knobs["layout"])
        grouped = not any(layer.attrs.get("groups", 1) > 1 for layer in graph.layers) or machine.grouped_gradients(
            self.devices[0], self.knobs["layout"], setup.precision
        )
        tuned = setup.tuning == "tuned"
        self.style = Style(tuned, self.knobs["layout"], setup.precision, grouped, self.layout.folded)
        self._make(weights)

    def _make(self, weights: Tensors) -> None:
        raise NotImplementedError

    def release(self) -> None:
        """Let go of what was built."""

    def maximum(self, value: float) -> float:
        """Over all ranks."""
        return value

    def close(self) -> None:
        """Leave together."""

    # --- training -------------------------------------------------------------

    def to_device(self, batch: Batch) -> Any:
        """Tensors in the network's layout and type, where they are wanted."""
        raise NotImplementedError

    def forward(self, batch: Any) -> None:
        """Stage `forward`."""
        raise NotImplementedError

    def backward(self) -> None:
        """Stage `backward`."""
        raise NotImplementedError

    def communicate(self) -> None:
        """Stage `communication`; nothing to do where it is no stage."""

    def update(self) -> None:
        """Stage `update`; nothing to do where it is no stage."""

    def bubble(self) -> Optional[Dict[str, float]]:
        """Seconds of waiting for other parts, by stage."""
        return None

    def step(self, batch: Any) -> None:
        """The native iteration."""
        raise NotImplementedError

    def step_alone(self, batch: Any) -> None:
        """The same without exchange."""
        raise Unsupported("%s cannot leave its exchange out" % self.setup.strategy)

    def begin_training(self) -> None:
        """What disturbs a speed may be counted from now on."""

    # --- evidence -----------------------------------------------------------

    def loss(self) -> float:
        """Of the last iteration."""
        raise NotImplementedError

    def logits(self) -> np.ndarray:
        """The last head's, of the last staged forward."""
        raise NotImplementedError

    def predict(self, batch: Any) -> np.ndarray:
        """The last head's, with running statistics and without dropout."""
        raise NotImplementedError

    def gradients(self) -> Tensors:
        """Between backward and update."""
        raise NotImplementedError

    def parameters(self) -> Tensors:
        """With running statistics; copies."""
        raise NotImplementedError

    def parameter_count(self) -> int:
        """Of the variables that are trained."""
        raise NotImplementedError

    def heads(self, images: Any) -> List[Any]:
        """Logits of every head, in training: what `macs` traces."""
        raise NotImplementedError

    def macs(self) -> int:
        """Counted on the operations of the traced forward of one sample, by the shapes of their operands."""
        channels, height, width = self.graph.input_shape
        shape = (1, height, width, channels) if self.style.layout == "NHWC" else (1, channels, height, width)
        sample = tf.TensorSpec(shape, self.setup.precision)
        return macs(compiled(self.heads).get_concrete_function(sample).graph)  # traced only: nothing runs

    def notes(self) -> Dict[str, Any]:
        """What a reader of the record should know of it."""
        return {}

    # --- for the ways -----------------------------------------------------------

    def starts(self, weights: Tensors) -> Iterator[Tuple[str, np.ndarray, bool]]:
        """(canonical name, first value in TensorFlow's layout, whether it is trained) of every tensor."""
        for parameter in self.graph.parameters:
            yield parameter.name, self.layout.native(parameter.name, weights[parameter.name]), True
        for name, shape in self.graph.buffers:
            yield name, np.full(shape, float(name.endswith("running_var"))), False

    def laid_out(self, images: Any) -> Any:
        """NumPy's NCHW, or tf.data's NHWC, as a tensor in the network's layout."""
        channels_last = self.knobs["layout"] == "NHWC"
        if not tf.is_tensor(images):
            return tf.constant(np.ascontiguousarray(images.transpose(0, 2, 3, 1)) if channels_last else images)
        return images if channels_last else tf.transpose(images, [0, 3, 1, 2])


def shares(batch: Batch, count: int) -> List[Batch]:
    """Equal contiguous shares, in the samples' order."""
    if count == 1:
        return [batch]
    size = len(batch.labels) // count
    parts = [slice(index * size, (index + 1) * size) for index in range(count)]
    return [Batch(batch.images[part], batch.labels[part]) for part in parts]


def joined(logits: Any) -> np.ndarray:
    """Pieces in the samples' order; float32 as the contract says."""
    return np.concatenate([each.numpy() for each in logits]).astype(np.float32)
