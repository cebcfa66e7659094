"""The functions that workers run for a coordinator, over variables on parameter servers.

A step's function pulls the weights, computes, and hands its gradients to the servers, which
apply them at once. The staged pass has the same in two functions: the first leaves its
gradients on the servers, so that they travel once, as in a step; the second applies them.
"""

from typing import Any, Callable, Dict, List, Tuple

import numpy as np
import tensorflow as tf

from adapters.tensorflow.base import TensorFlowTrainer
from adapters.tensorflow.lower import Images, Labels, Style
from adapters.tensorflow.net import COUNT, Net, compiled
from adapters.tensorflow.optimisers import Tensors, states, updating, with_end
from adapters.tensorflow.parameter_store import server_of_each
from suite.worker.contract import Optimiser


class Turn:
    """Replaces a network's counter of iterations: the coordinator counts, as workers would race."""

    def __init__(self, number: Any) -> None:
        """`number` counts all shares so far; a tensor."""
        self._number = number

    def assign_add(self, _: int) -> None:
        """No-op: the coordinator has counted."""

    def read_value(self) -> Any:
        return self._number


class Scheduled:
    """A network's variables and functions; each function is traced at its first call."""

    def __init__(
        self, trainer: TensorFlowTrainer, weights: Dict[str, np.ndarray], distribution: Any, servers: int
    ) -> None:
        """Write the first weights; TensorFlow places variables on servers in turn, `tuned` by size."""
        self._trainer, self._distribution, self._shares = trainer, distribution, trainer.setup.devices
        zero, starts = np.zeros((), np.int64), list(trainer.first_values(weights))
        with distribution.scope():
            self._counts = [self._variable(zero, False) for _ in range(servers)]  # one on each server, in turn
            self._finished = self._variable(zero, False)
        loads = [value.nbytes if trainable else 0 for _, value, trainable in starts]
        homes: List[Any] = [None] * len(starts)
        if trainer.setup.tuned:
            homes = [self._counts[server] for server in server_of_each(loads, servers)]
        self.variables: Dict[str, Any] = {
            name: self._beside(home, value, trainable) for home, (name, value, trainable) in zip(homes, starts)
        }
        self.weights = [self.variables[parameter.name] for parameter in trainer.graph.parameters]
        self._update = self._updating(trainer.setup.optimiser)
        self._held: List[Tensors] = []
        self.step = compiled(self._step)
        self.predict = compiled(self._predict)
        self.forward = [compiled(self._forward(share)) for share in range(self._shares)]
        self.update = [compiled(self._apply(share)) for share in range(self._shares)]

    def hold(self) -> None:
        """Make variables on the servers for every share's gradients, which only the staged pass stores."""
        if not self._held:
            self._held = [self._zeros() for _ in range(self._shares)]

    def gradients(self) -> List[np.ndarray]:
        return [sum(each.numpy() for each in own) / self._shares for own in zip(*self._held)]

    # --- functions ------------------------------------------------------------

    def _step(self, images: Images, labels: Labels, turn: Any) -> Tuple[Any, Any]:
        """Return (loss, number of other updates between this step's pull and its end)."""
        before = self._finished.read_value()
        with tf.control_dependencies([before]):
            loss, _, gradients = self._differentiate(images, labels, turn)
        with tf.control_dependencies(self._update(gradients)):
            now = self._finished.assign_add(1, read_value=True)
        return loss, now - before - 1

    def _forward(self, share: int) -> Callable[..., Any]:
        def run(images: Images, labels: Labels, turn: Any) -> Tuple[Any, Any]:
            loss, logits, gradients = self._differentiate(images, labels, turn)
            for held, gradient in zip(self._held[share], gradients):
                held.assign(gradient)
            return loss, logits

        return run

    def _apply(self, share: int) -> Callable[..., Any]:
        return lambda: self._update([held.read_value() for held in self._held[share]])

    def _predict(self, images: Any) -> Any:
        return self.net(self.variables, self._trainer.style._replace(training=False), 0).heads(images)[-1]

    # --- inside -----------------------------------------------------------------

    def net(self, values: Dict[str, Any], style: Style, turn: Any) -> Net:
        trainer = self._trainer
        return Net(trainer.graph, dict(values, **{COUNT: Turn(turn)}), style, (trainer.setup.seed, 0))

    def _differentiate(self, images: Images, labels: Labels, turn: Any) -> Tuple[Any, Any, Tensors]:
        """Return (loss, the last head's logits, gradients) by the present weights."""
        pulled = [weight.read_value() for weight in self.weights]
        names = [parameter.name for parameter in self._trainer.graph.parameters]
        net = self.net(dict(self.variables, **dict(zip(names, pulled))), self._trainer.style, turn)
        with tf.GradientTape() as tape:
            tape.watch(pulled)
            loss, heads = net.loss(images, labels)
        return loss, heads[-1], tape.gradient(loss, pulled)

    def _updating(self, optimiser: Optimiser) -> Callable[[Tensors], Tensors]:
        """Return a function that divides a share's gradients by the shares, and updates on the weights' servers."""
        state = [self._zeros() for _ in range(states(optimiser))]
        rules: Dict[str, Tuple[List[int], Any]] = {}  # by server: (its weights' indices, their rule)
        for count in self._counts:
            places = [place for place, weight in enumerate(self.weights) if weight.device == count.device]
            own = [self.weights[place] for place in places]
            kinds = [[kind[place] for place in places] for kind in state]
            if own:
                rule = updating(optimiser, True, own, kinds, count, locking=True)
                rules[count.device] = places, compiled(with_end(rule))

        def update(gradients: Tensors) -> Tensors:
            ends = []
            for home, (places, rule) in rules.items():
                with tf.device(home):
                    ends.append(rule([gradients[place] / self._shares for place in places]))
            return ends

        return update

    def _variable(self, value: np.ndarray, trainable: bool) -> Any:
        kind = value.dtype if value.dtype == np.int64 else self._trainer.setup.precision
        return tf.Variable(np.asarray(value, kind), trainable=trainable)

    def _beside(self, other: Any, value: np.ndarray, trainable: bool) -> Any:
        """Make a variable on the server of another; None: on the next server in turn."""
        with self._distribution.scope():
            if other is None:
                return self._variable(value, trainable)
            with self._distribution.extended.colocate_vars_with(other):
                return self._variable(value, trainable)

    def _zeros(self) -> Tensors:
        """Make a variable of each weight's shape on its server."""
        return [self._beside(weight, np.zeros(weight.shape), False) for weight in self.weights]
