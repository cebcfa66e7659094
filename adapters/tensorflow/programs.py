"""The compiled functions of one training: a whole step, and its parts.

The parts are functions of their own. A forward run under an eager tape gives a compiled
backward, which reads what the forward kept; so the two can be timed apart, at the price
of handing the kept tensors over.

Oldest Python: 3.6.
"""

from typing import Any, Callable, List, Sequence, Tuple

import tensorflow as tf

from adapters.tensorflow.net import Net
from adapters.tensorflow.spread import Spread
from adapters.tensorflow.updates import Tensors, updating
from suite.worker.contract import Optimiser

PerDevice = Sequence[Any]  # a value a device of this rank


class Programs:
    """Everything that is called with tensors; each function is traced at its first call."""

    def __init__(
        self,
        spread: Spread,
        nets: List[Net],
        users: List[Net],
        states: List[List[Tensors]],
        counts: Tensors,
        optimiser: Optimiser,
        xla: str,
        fast: bool,
    ) -> None:
        """Of `nets`, `users` (the same in use, not in training), `states` and `counts` (see `updates`) one a device.

        `xla` is "off", "update" or "step".
        """
        self._spread, self._nets, self._users = spread, nets, users
        whole = xla == "step"
        alone = len(nets) == 1 and spread.strategy is None
        self._differentiate = [cluster(differentiated(net), whole and not alone) for net in nets]
        kernels = fast and xla == "off"
        self._updates = [
            cluster(updating(optimiser, kernels, net.trainable, *own), xla == "update" or (whole and not alone))
            for net, own in zip(nets, zip(states, counts))
        ]
        # Tensors side by side: sorting out nested arguments costs each call more than 0.1 ms.
        self._first_label = len(nets)
        self.step = compiled(lambda *tensors: self._step(tensors, True), whole and alone)
        self.step_alone = compiled(lambda *tensors: self._step(tensors, False))
        # A function a device: TensorFlow puts the backward of one function over several devices on the first.
        # For who exchanges outside: the first device's loss and gradients.
        self.differentiate = compiled(self._differentiate[0])
        self.forward = [compiled(net.loss, whole) for net in nets]
        self.communicate = compiled(self._communicate)
        self.update = compiled(self._update, whole and alone)
        self.predict = compiled(self._predict)

    @property
    def watched(self) -> List[Tensors]:
        """The trainable variables, a list a device."""
        return [net.trainable for net in self._nets]

    def _step(self, tensors: PerDevice, exchange: bool) -> Tensors:
        """`tensors`: the devices' images, then their labels."""
        images, labels = tensors[: self._first_label], tensors[self._first_label :]

        def replica(index: int) -> Tuple[Any, Tensors]:
            loss, gradients = self._differentiate[index](images[index], labels[index])
            return loss, self._spread.average(gradients) if exchange else gradients

        results = self._spread.run(replica)
        self._update([gradients for _, gradients in results])
        return [loss for loss, _ in results]

    def _predict(self, images: PerDevice) -> Tensors:
        logits = []
        for device, net, x in zip(self._spread.devices, self._users, images):
            with tf.device(device):
                logits.append(net.heads(x)[-1])
        return logits

    def _communicate(self, gradients: List[Tensors]) -> List[Tensors]:
        return self._spread.run(lambda index: self._spread.average(gradients[index]))

    def _update(self, gradients: List[Tensors]) -> None:
        for device, update, own in zip(self._spread.devices, self._updates, gradients):
            with tf.device(device):
                update(own)


def compiled(function: Callable[..., Any], by_xla: bool = False) -> Any:
    """A tf.function; nothing here asks AutoGraph to rewrite it: control flow is Python's, unrolled at the trace."""
    return tf.function(function, autograph=False, jit_compile=by_xla or None)


def cluster(function: Callable[..., Any], wanted: bool) -> Callable[..., Any]:
    """A part of another function, as a cluster of XLA's when wanted."""
    return compiled(function, by_xla=True) if wanted else function


def differentiated(net: Net) -> Callable[..., Any]:
    """(images, labels) -> (loss, gradients in the order of the trainable variables)."""

    def run(images: Any, labels: Any) -> Tuple[Any, Tensors]:
        with tf.GradientTape() as tape:
            loss, _ = net.loss(images, labels)
        return loss, tape.gradient(loss, net.trainable)

    return run
