"""What a layer of the net is."""

from typing import Any, Dict, Sequence, Tuple

from workloads.graph import Layer as Node

Tensor = Any  # torch.Tensor


class Layer:
    """One layer: `forward` keeps what `backward` needs, `backward` forgets it again.

    Parameters and their gradients are views into the net's flat buffers (see
    `adapters.caffempi.arena`): a backward writes gradients, it never adds to them.
    """

    fresh = True  # whether backward's results are new memory, which the receiver may overwrite
    aliases = False  # whether forward returns a view of its input

    def __init__(self, node: Node) -> None:
        self.name, self.kind, self.attrs = node.name, node.kind, node.attrs
        self.node = node
        self.wants: Tuple[bool, ...] = (True,) * len(node.inputs)  # inputs whose gradient somebody needs
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
