"""The net: layers in order, run forward and then backward, without any record of operations."""

from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

import torch

from adapters.caffempi.arena import Arena
from adapters.caffempi.layers.base import Layer, SoftmaxLoss, Tensor

# A layer's place in the net: the layer, the blobs that it reads, those that no later layer reads.
# Blob 0 is the input, blob i + 1 the output of layer i.
Slot = NamedTuple("Slot", [("layer", Layer), ("inputs", Tuple[int, ...]), ("last_read", Tuple[int, ...])])
Lap = Optional[Callable[[int], None]]  # called with a layer's index when it is done


class Net:
    """Forward and backward over all layers; parameters live in `arena`."""

    def __init__(self, slots: List[Slot], losses: List[Tuple[int, SoftmaxLoss]], arena: Arena) -> None:
        """`losses` are (blob of the logits, loss)."""
        self.slots, self.losses, self.arena = slots, losses, arena
        self._loss_inputs = {blob for blob, _ in losses}

    @torch.inference_mode()
    def forward(self, images: Tensor, labels: Tensor, lap: Lap = None) -> None:
        """Activations and losses; after the layers, `lap` gets one index more for the losses."""
        blobs = self._blobs(images, lap)
        for blob, loss in self.losses:
            loss.forward(blobs[blob], labels)
        if lap:
            lap(len(self.slots))

    @torch.inference_mode()
    def predict(self, images: Tensor) -> Tensor:
        return self._blobs(images, training=False)[self.losses[-1][0]]  # type: ignore[no-any-return]

    def _blobs(self, images: Tensor, lap: Lap = None, training: bool = True) -> List[Any]:
        """The input and every layer's output, as far as a loss reads it."""
        blobs: List[Any] = [images]
        for index, slot in enumerate(self.slots):
            compute = slot.layer.forward if training else slot.layer.predict
            blobs.append(compute([blobs[i] for i in slot.inputs]))
            for blob in slot.last_read:
                if blob not in self._loss_inputs:
                    blobs[blob] = None  # layers keep what they need; the memory of the rest serves again
            if lap:
                lap(index)
        return blobs

    @torch.inference_mode()
    def backward(self, lap: Lap = None) -> None:
        """Gradients into the arena, from the losses to the first layer; `lap` as in forward, losses first."""
        pending: Dict[int, Tuple[Any, bool]] = {}  # blob -> gradient so far, whether it is ours to overwrite
        for blob, loss in self.losses:
            accumulate(pending, blob, loss.backward(), True)
        if lap:
            lap(len(self.slots))
        for index in range(len(self.slots) - 1, -1, -1):
            layer, inputs, _ = self.slots[index]
            if index + 1 in pending:
                dy, owned = pending.pop(index + 1)
                results = layer.backward(dy, owned)
                fresh = layer.fresh or (layer.aliases and owned)
                for blob, wanted, gradient in zip(inputs, layer.wants, results):
                    if wanted:
                        accumulate(pending, blob, gradient, fresh)
            if lap:
                lap(index)

    def loss(self) -> float:
        return sum(loss.value() for _, loss in self.losses)

    def macs(self) -> int:
        """Multiply-accumulates of one sample, counted on the last forward's layers."""
        return sum(slot.layer.macs() for slot in self.slots)

    def buffers(self) -> Dict[str, Tensor]:
        return {
            "%s.%s" % (slot.layer.name, role): tensor
            for slot in self.slots
            for role, tensor in slot.layer.buffers().items()
        }


def accumulate(pending: Dict[int, Tuple[Any, bool]], blob: int, gradient: Tensor, owned: bool) -> None:
    """Add a consumer's gradient to what a blob has received, in memory that may be overwritten."""
    if blob not in pending:
        pending[blob] = gradient, owned
        return
    sofar, sofar_owned = pending[blob]
    if sofar_owned:
        pending[blob] = sofar.add_(gradient), True
    elif owned:
        pending[blob] = gradient.add_(sofar), True
    else:
        pending[blob] = sofar + gradient, True
