"""`fsdp`: parameters, gradients and the optimiser's state in shares (FSDP2, fully_shard)."""

from typing import Any, Dict, List

import numpy as np
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from adapters.pytorch.base import to_numpy
from adapters.pytorch.replica import ReplicaTrainer
from suite.worker.contract import Adam, Batch, LayerTimes, Setup, Unsupported

GROUP = 8 << 20  # bytes of parameters that travel together, or a single layer's that has more


class FSDP(ReplicaTrainer):
    """Groups of layers are gathered when they are needed; their gradients are summed up in shares."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._fused = setup.tuned and isinstance(setup.optimiser, Adam)  # torch 2.13's fused SGD takes no DTensor

    def step_alone(self, batch: Batch) -> None:
        """A rank does not have the network that it would train."""
        raise Unsupported("under 'fsdp' a rank holds a share of the parameters and cannot compute without the others")

    def layer_times(self, batch: Batch) -> List[LayerTimes]:
        raise Unsupported("under 'fsdp' a layer's weights have to be gathered first, with a group of others")

    def gradients(self) -> Dict[str, np.ndarray]:
        return {name: to_numpy(parameter.grad.full_tensor()) for name, parameter in self._net.trainable()}

    def parameters(self) -> Dict[str, np.ndarray]:
        """Gathered from all ranks; running statistics are this rank's own."""
        return {name: to_numpy(gathered(tensor)) for name, tensor in self._net.tensors()}

    def notes(self) -> Dict[str, Any]:
        return dict(super().notes(), fsdp="fully_shard, %d groups of layers" % self._groups)

    def _wrap(self) -> None:
        mesh = init_device_mesh(self._device.type, (self.setup.world,))
        groups = grouped(self._net.layers)
        self._groups = len(groups)
        for group in groups:
            fully_shard(group, mesh=mesh)
        fully_shard(self._net, mesh=mesh)

    def _weights_format(self) -> Any:
        return torch.contiguous_format  # what it cuts must be


def grouped(layers: Any) -> List[List[nn.Module]]:
    """Layers with parameters, neighbours joined until a group is full."""
    groups: List[List[nn.Module]] = []
    room = 0
    for layer in layers:
        size = sum(tensor.numel() * tensor.element_size() for tensor in layer.parameters())
        if not size:
            continue
        if room < size:
            groups.append([])
            room = GROUP
        groups[-1].append(layer)
        room -= size
    return groups


def gathered(tensor: Any) -> torch.Tensor:
    """The whole of a tensor that ranks have shares of; any other as it is."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
