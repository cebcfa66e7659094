"""The compiled functions of a network whose layers lie on several devices.

Every operation is made under its device's name, those of the backward too: left to itself
TensorFlow puts the backward of a function over several devices on the first of them. In
the whole step nothing but data and the running statistics orders the work, so the
executor lets several devices work on different pieces of the batch at a time.

Oldest Python: 3.6.
"""

from typing import Any, Dict, List, Sequence, Tuple

import tensorflow as tf

from adapters.tensorflow.cutting import crossing
from adapters.tensorflow.lower import Style
from adapters.tensorflow.net import Net, joint_loss
from adapters.tensorflow.programs import cluster, compiled
from adapters.tensorflow.updates import Tensors, updating
from suite.worker.contract import Optimiser
from workloads.graph import Graph


class Part(Net):
    """Consecutive layers on one device; the last part has the loss."""

    def __init__(
        self,
        graph: Graph,
        variables: Dict[str, Any],
        style: Style,
        seed: Tuple[int, int],
        between: Tuple[int, int],
        device: str,
    ) -> None:
        """The layers from the first of `between` to before the second."""
        begin, end = between
        super().__init__(graph, variables, style, seed, graph.layers[begin:end])
        self.device, self.last = device, end == len(graph.layers)
        self._takes, self._gives = crossing(graph, begin), crossing(graph, end)
        self._whole = graph

    def outputs(self, inputs: Sequence[Any]) -> List[Any]:
        """What the parts after this one read; of the last the heads' logits. `inputs`: what the one before gives."""
        values = dict(zip(self._takes, inputs))
        self.run(values)
        names = [head.layer for head in self._whole.heads] if self.last else self._gives
        return [tf.identity(values[name]) if name in self._takes else values[name] for name in names]

    def loss(self, inputs: Any, labels: Any) -> Tuple[Any, List[Any]]:
        """Of the last part: (the loss, the heads' logits)."""
        heads = self.outputs(inputs)
        return joint_loss(self._whole, heads, labels), heads

    def backward(self, tape: Any, made: Any, given: Any, upstream: Any) -> Tuple[Any, Tensors]:
        """(gradients of what was given, of the trainable variables); `upstream`: of what was made, None of a loss.

        Of the images none are asked for.
        """
        with tf.device(self.device):
            if self._takes == ["input"]:
                return None, tape.gradient(made, self.trainable, output_gradients=upstream)
            found: Tuple[Any, Tensors] = tape.gradient(made, (given, self.trainable), output_gradients=upstream)
            return found


class PartPrograms:
    """A whole step of several parts, and the functions that stages are made of."""

    def __init__(
        self,
        parts: List[Part],
        users: List[Part],
        states: List[List[Tensors]],
        counts: Tensors,
        optimiser: Optimiser,
        by_xla: bool,
        kernels: bool,
    ) -> None:
        """Of `users` (the same in use, not in training), `states` and `counts` (see `updates`) one a part."""
        self._parts, self._users = parts, users
        self._updates = [
            cluster(updating(optimiser, kernels, part.trainable, *own), by_xla)
            for part, own in zip(parts, zip(states, counts))
        ]
        self.step = compiled(self._step)
        self.forward = [compiled(part.loss if part.last else part.outputs) for part in parts]
        self.mean = compiled(self._mean)
        self.update = compiled(self._update)
        self.predict = compiled(self._predict)

    def _step(self, images: Tensors, labels: Tensors) -> Tensors:
        """Of all pieces; returns their losses."""
        found = [self._differentiated(*piece) for piece in zip(images, labels)]
        own = []
        for index, part in enumerate(self._parts):
            with tf.device(part.device):
                own.append(self._mean([gradients[index] for _, gradients in found]))
        self._update(own)
        return [loss for loss, _ in found]

    def _differentiated(self, images: Any, labels: Any) -> Tuple[Any, List[Tensors]]:
        """(loss, every part's gradients) of one piece."""
        run: List[Any] = []
        values: Any = [images]
        for part in self._parts:
            with tf.device(part.device), tf.GradientTape() as tape:
                tape.watch(values)
                given, values = values, part.loss(values, labels)[0] if part.last else part.outputs(values)
            run.append((part, tape, given, values))
        loss, upstream = values, None
        gradients: List[Tensors] = []
        for part, tape, given, made in reversed(run):
            upstream, own = part.backward(tape, made, given, upstream)
            gradients.insert(0, own)
        return loss, gradients

    def _mean(self, pieces: List[Tensors]) -> Tensors:
        """Over the pieces, of one part."""
        if len(pieces) == 1:
            return pieces[0]
        return [tf.add_n(each) / len(pieces) for each in zip(*pieces)]

    def _update(self, gradients: List[Tensors]) -> None:
        for part, update, own in zip(self._parts, self._updates, gradients):
            with tf.device(part.device):
                update(own)

    def _predict(self, images: Any) -> Any:
        values = [images]
        for part in self._users:
            with tf.device(part.device):
                values = part.outputs(values)
        return values[-1]
