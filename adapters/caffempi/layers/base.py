"""The base of all layers, and the softmax cross-entropy after the last one."""

from typing import Any, Dict, Sequence, Tuple

import torch
from torch import Tensor

from stagebench.workloads.graph import Layer as Node

# inputs: (samples, channels, height, width), (samples, features) or (samples, positions, width); the numbers of tokens,
# int64, are (samples, positions)
Blobs = Sequence[Tensor]
Gradients = Sequence[Any]  # of the inputs, tensors of their shapes; None where not wanted
Roles = Dict[str, Tensor]  # a layer's tensors by role: "weight", "bias", ...


class Layer:
    """A layer: `forward` keeps what `backward` needs, `backward` forgets it again.

    Parameters and their gradients are views into the net's flat buffers (see
    `stagebench.adapters.caffempi.net.Arena`): a backward writes gradients, it never adds to them.
    """

    fresh = True  # whether backward's results are new memory, which the receiver may overwrite
    aliases = False  # whether forward returns a view of its input
    kept: Any = None  # what backward needs

    def __init__(self, node: Node) -> None:
        self.node = node
        self.name = node.name
        self.kind = node.kind
        self.attrs = node.attrs
        self.wants: Tuple[bool, ...] = (True,) * len(node.inputs)  # whether each input's gradient is needed

    def bind(self, parameters: Roles, gradients: Roles) -> None:
        """Take the views of this layer's parameters and gradients; most kinds have none."""

    def buffers(self) -> Roles:
        return {}

    def forward(self, xs: Blobs) -> Tensor:
        raise NotImplementedError

    def predict(self, xs: Blobs) -> Tensor:
        """Return the output in inference, and keep nothing; most layers compute what they do in training."""
        y = self.forward(xs)
        self.kept = None
        return y

    def backward(self, dy: Tensor, owned: bool) -> Gradients:
        """Return the gradients of the inputs; `owned` tells that dy may be overwritten."""
        raise NotImplementedError

    def taken(self) -> Any:
        """Return what the forward kept, and forget it."""
        kept = self.kept
        self.kept = None
        return kept

    def macs(self) -> int:
        """Return one sample's multiply-accumulates, from the real weights and the last forward's real output."""
        return 0


class SoftmaxLoss:
    """weight x mean cross-entropy over this rank's labels, and its gradient over all ranks' labels.

    The gradient is divided by the number of ranks here, where it is smallest, so that
    the sum which the exchange forms is already the average.
    """

    kind = "softmax_loss"

    def __init__(self, layer: str, weight: float, world: int) -> None:
        self.layer = layer
        self.name = f"{layer}_loss"
        self._weight = weight
        self._world = world
        self.logits: Any = None
        self._value: Any = None

    def forward(self, logits: Tensor, labels: Tensor) -> None:
        """Take logits (samples, classes) or (samples, positions, classes), and labels int64 without the last axis."""
        shifted = logits - logits.amax(-1, keepdim=True)
        self._log = shifted.sub_(shifted.exp().sum(-1, keepdim=True).log_())
        self._labels = labels.unsqueeze(-1)
        self.logits = logits
        self._value = self._log.gather(-1, self._labels)

    def value(self) -> float:
        return -self._weight * float(self._value.mean())

    def backward(self) -> Tensor:
        """Return (softmax - one hot) x weight / labels of the global batch."""
        factor = self._weight / (self._labels.numel() * self._world)
        gradient = self._log.exp_().mul_(factor)
        gradient.scatter_add_(-1, self._labels, torch.full_like(self._value, -factor))
        return gradient
