"""The base of all layers, and the softmax cross-entropy after the last one."""

from typing import Any, Dict, Sequence, Tuple

import torch

from workloads.graph import Layer as Node

Tensor = Any  # torch.Tensor


class Layer:
    """A layer: `forward` keeps what `backward` needs, `backward` forgets it again.

    Parameters and their gradients are views into the net's flat buffers (see
    `adapters.caffempi.arena`): a backward writes gradients, it never adds to them.
    """

    fresh = True  # whether backward's results are new memory, which the receiver may overwrite
    aliases = False  # whether forward returns a view of its input

    def __init__(self, node: Node) -> None:
        self.name, self.kind, self.attrs = node.name, node.kind, node.attrs
        self.node = node
        self.wants: Tuple[bool, ...] = (True,) * len(node.inputs)  # whether each input's gradient is needed
        self.output_shape: Tuple[int, ...] = ()  # of the last forward, without the batch

    def bind(self, parameters: Dict[str, Tensor], gradients: Dict[str, Tensor]) -> None:
        """Take the views of this layer's parameters and gradients, by role; most kinds have none."""

    def buffers(self) -> Dict[str, Tensor]:
        return {}

    def forward(self, xs: Sequence[Tensor]) -> Tensor:
        """The output for these inputs, each (samples, ...)."""
        raise NotImplementedError

    def predict(self, xs: Sequence[Tensor]) -> Tensor:
        """The output in use; most layers compute what they do in training."""
        return self.forward(xs)

    def backward(self, dy: Tensor, owned: bool) -> Sequence[Any]:
        """The gradients of the inputs, None where not wanted; `owned` tells that dy may be overwritten."""
        raise NotImplementedError

    def macs(self) -> int:
        """Multiply-accumulates of one sample, from the real weights and the last forward's real output."""
        return 0


class SoftmaxLoss:
    """weight x mean cross-entropy over this rank's samples, and its gradient over all ranks' samples.

    The gradient is divided by the number of ranks here, where it is smallest, so that
    the sum which the exchange forms is already the average.
    """

    kind = "softmax_loss"

    def __init__(self, layer: str, weight: float, world: int) -> None:
        self.layer, self.name, self._weight, self._world = layer, layer + "_loss", weight, world
        self.logits: Any = None
        self._value: Any = None

    def forward(self, logits: Tensor, labels: Tensor) -> None:
        """Logits (samples, classes), labels int64 (samples,)."""
        shifted = logits - logits.amax(1, keepdim=True)
        self._log = shifted.sub_(shifted.exp().sum(1, keepdim=True).log_())
        self._labels, self.logits = labels.unsqueeze(1), logits
        self._value = self._log.gather(1, self._labels)

    def value(self) -> float:
        return -self._weight * float(self._value.mean())

    def backward(self) -> Tensor:
        """(softmax - one hot) x weight / global batch."""
        factor = self._weight / (len(self._log) * self._world)
        gradient = self._log.exp_().mul_(factor)
        gradient.scatter_add_(1, self._labels, torch.full_like(self._value, -factor))
        return gradient
