"""The net: its flat buffers, and its layers, run forward and then backward without any record of operations."""

from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

import numpy as np
import torch
from torch import Tensor

from stagebench.adapters.caffempi.layers.base import Layer, Roles, SoftmaxLoss
from stagebench.suite.worker.trainer import Arrays
from stagebench.workloads.graph import Graph, Shape, size
from stagebench.workloads.graph import Layer as Node

ALIGNMENT = 16  # elements: 64 bytes in float32, a cache line and the widest vector

Span = NamedTuple("Span", [("begin", int), ("end", int)])  # elements of the flat buffers
# Neighbouring layers whose gradients leave together. `trigger` is the one whose backward completes the group: the
# first of `layers`, in the graph's order.
Group = NamedTuple("Group", [("trigger", int), ("layers", List[int]), ("span", Span)])
Lap = Optional[Callable[[int], None]]  # called with a layer's index when it is done
Flat = Any  # a one-dimensional tensor over the parameters of all layers


class Slot(NamedTuple):
    """A layer's place in the net. Blob 0 is the input, blob i + 1 the output of layer i."""

    layer: Layer
    inputs: Tuple[int, ...]  # the blobs that it reads
    last_read: Tuple[int, ...]  # those that no later layer reads
    parts: List[Tuple[Tensor, Tensor]]  # its gradients, and what layers that share the weights add to them

    def add_parts(self, written: bool) -> None:
        """Complete the layer's gradients; `written`: it has written its own, as it bears loss itself."""
        if self.parts and not written:
            self.parts[0][0].zero_()
        for gradient, part in self.parts:
            gradient.add_(part)


class Arena:
    """All parameters, all gradients and all velocities, each kind in one flat buffer in forward order.

    Layers hold views. Neighbouring layers' gradients are neighbours in memory, so that fusing their messages needs no
    copy, and one update runs over as much as one likes.
    """

    def __init__(
        self, graph: Graph, channels_last: bool, dtype: torch.dtype, device: Any = "cpu", trains: bool = True
    ) -> None:
        """Fill with zeros; four-dimensional tensors are laid out channels-last where asked."""
        self._channels_last = channels_last
        self._places: Dict[str, Tuple[int, Tuple[int, ...]]] = {}
        self.spans: List[Span] = []  # a span a layer of the graph, empty for those without parameters
        self.shapes: List[Tuple[Span, Shape]] = []  # of each tensor, in order
        offset = 0
        for layer in graph.layers:
            begin = offset
            for parameter in layer.parameters:
                self._places[parameter.name] = offset, parameter.shape
                own = Span(offset, offset - (-size(parameter.shape) // ALIGNMENT) * ALIGNMENT)
                self.shapes.append((own, parameter.shape))
                offset = own.end
            self.spans.append(Span(begin, offset))
        self.parameters = torch.zeros(offset, dtype=dtype, device=device)
        self.gradients = torch.zeros_like(self.parameters, device=device if trains else "meta")
        self.velocities = torch.zeros_like(self.gradients)

    @property
    def size(self) -> int:
        return sum(size(shape) for _, shape in self._places.values())

    def view(self, flat: Flat, name: str) -> Tensor:
        offset, shape = self._places[name]
        piece = flat[offset : offset + size(shape)]
        if self._channels_last and len(shape) == 4:
            out, channels, height, width = shape
            return piece.view(out, height, width, channels).permute(0, 3, 1, 2)
        return piece.view(shape)

    def of(self, flat: Flat, layer: Node) -> Roles:
        """Return a layer's views, of shared tensors too."""
        return {role: self.view(flat, name) for role, name in layer.roles.items()}

    def load(self, weights: Arrays) -> None:
        """Copy weights in and stop: the velocity is zero again; KeyError names a missing tensor."""
        for name in self._places:
            self.view(self.parameters, name).copy_(torch.from_numpy(np.ascontiguousarray(weights[name])))
        self.velocities.zero_()

    def export(self, flat: Flat) -> Arrays:
        return {name: exported(self.view(flat, name)) for name in self._places}


class Net:
    """Forward and backward over all layers; parameters live in `arena`."""

    def __init__(self, slots: List[Slot], losses: List[Tuple[int, SoftmaxLoss]], arena: Arena) -> None:
        """`losses` are (blob of the logits, loss)."""
        self.slots = slots
        self.losses = losses
        self.arena = arena
        self._loss_inputs = {blob for blob, _ in losses}

    @torch.inference_mode()
    def forward(self, inputs: Tensor, labels: Tensor, lap: Lap = None) -> None:
        """Compute activations and losses; after the layers, `lap` gets one index more for the losses."""
        blobs = self._blobs(inputs, lap)
        for blob, loss in self.losses:
            loss.forward(blobs[blob], labels)
        if lap:
            lap(len(self.slots))

    @torch.inference_mode()
    def predict(self, inputs: Tensor) -> Tensor:
        return self._blobs(inputs, training=False)[self.losses[-1][0]]

    def _blobs(self, inputs: Tensor, lap: Lap = None, training: bool = True) -> List[Any]:
        """Return the input and every layer's output, as far as a loss reads it."""
        blobs: List[Any] = [inputs]
        for index, slot in enumerate(self.slots):
            compute = slot.layer.forward if training else slot.layer.predict
            blobs.append(compute([blobs[blob] for blob in slot.inputs]))
            for blob in slot.last_read:
                if blob not in self._loss_inputs:
                    blobs[blob] = None  # layers keep what they need; the memory of the rest serves again
            if lap:
                lap(index)
        return blobs

    @torch.inference_mode()
    def backward(self, lap: Lap = None) -> None:
        """Write gradients into the arena, from the losses to the first layer; `lap` as in forward, losses first."""
        pending: Dict[int, Tuple[Tensor, bool]] = {}  # blob -> gradient so far, whether it is ours to overwrite
        for blob, loss in self.losses:
            accumulate(pending, blob, loss.backward(), True)
        if lap:
            lap(len(self.slots))
        for index in range(len(self.slots) - 1, -1, -1):
            slot, written = self.slots[index], index + 1 in pending
            if written:
                layer = slot.layer
                dy, owned = pending.pop(index + 1)
                results = layer.backward(dy, owned)
                fresh = layer.fresh or (layer.aliases and owned)
                for blob, wanted, gradient in zip(slot.inputs, layer.wants, results):
                    if wanted:
                        accumulate(pending, blob, gradient, fresh)
            slot.add_parts(written)
            if lap:
                lap(index)

    def loss(self) -> float:
        return sum(loss.value() for _, loss in self.losses)

    def macs(self) -> int:
        """Return one sample's multiply-accumulates, counted on the last forward's layers."""
        return sum(slot.layer.macs() for slot in self.slots)

    def buffers(self) -> Dict[str, Tensor]:
        found = {}
        for slot in self.slots:
            for role, tensor in slot.layer.buffers().items():
                found[f"{slot.layer.name}.{role}"] = tensor
        return found


def accumulate(pending: Dict[int, Tuple[Tensor, bool]], blob: int, gradient: Tensor, owned: bool) -> None:
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


def exported(tensor: Tensor) -> np.ndarray:
    """Return a copy in the host's memory."""
    return np.array(tensor.cpu().numpy(), order="C", copy=True)
