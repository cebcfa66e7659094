"""Parameters in shares, as DTensors: `fsdp` (FSDP2, fully_shard) and `tensor_parallel` (parallelize_module)."""

import warnings
from typing import List

from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

from adapters.pytorch.net import shapes_of
from adapters.pytorch.replica import ReplicaTrainer, SharedTrainer
from suite.worker.contract import Adam, Batch, LayerTimes, Setup, Unsupported
from suite.worker.trainer import Notes
from workloads.graph import size

GROUP = 8 << 20  # bytes of parameters that travel together, or a single layer's that has more


class FSDP(ReplicaTrainer):
    """Groups of layers are gathered when they are needed; their gradients are summed up in shares."""

    contiguous_weights = True  # what it cuts must be

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._fused = setup.tuned and isinstance(setup.optimiser, Adam)  # torch 2.13's fused SGD takes no DTensor

    def step_alone(self, batch: Batch) -> None:
        raise Unsupported("under 'fsdp' a rank holds a share of the parameters and cannot compute without the others")

    def layer_times(self, batch: Batch) -> List[LayerTimes]:
        raise Unsupported("under 'fsdp' a layer's weights have to be gathered first, with a group of others")

    def notes(self) -> Notes:
        return dict(super().notes(), fsdp=f"fully_shard, {self._groups} groups of layers")

    def _wrap(self) -> None:
        mesh = init_device_mesh(self._device.type, (self.setup.world,))
        groups: List[List[nn.Module]] = []
        room = 0
        for layer in self._net.layers:  # neighbours are joined until a group is full
            size = sum(tensor.numel() * tensor.element_size() for tensor in layer.parameters())
            if not size or layer in self._net.shared:  # the root's, which stays whole from forward to backward
                continue
            if room < size:
                groups.append([])
                room = GROUP
            groups[-1].append(layer)
            room -= size
        self._groups = len(groups) + bool(self._net.shared)
        # A dense layer's tokens are a view, and no layer writes into tokens.
        warnings.filterwarnings("ignore", "FSDP2-wrapped module .* returned a view", UserWarning)
        for group in groups:
            fully_shard(group, mesh=mesh)
        fully_shard(self._net, mesh=mesh)


class TensorParallel(SharedTrainer):
    """Every dense layer is cut over all ranks, unless another layer shares its weight; the others are whole on each.

    A rank has some of a dense layer's outputs, all ranks gather them in the forward, and sum up what flows back to the
    layer's input in the backward. All ranks are given the same batch, so that layers without a share compute the same
    everywhere and exchange nothing.
    """

    has_candidates = False  # a DTensor is for torch's own operators alone

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._fused = False  # torch 2.13's fused optimisers take no DTensor together with other tensors

    def notes(self) -> Notes:
        return dict(super().notes(), tensor_parallel=f"parallelize_module, {self._cut} dense layers by columns")

    def _wrap(self) -> None:
        shapes = shapes_of(self._graph)
        world = self.setup.world
        mesh = init_device_mesh(self._device.type, (world,))
        numbers = 0.0
        self._cut = 0
        for name, layer in self._net.made.items():
            if not isinstance(layer, nn.Linear) or layer in self._net.shared:
                continue
            self._cut += 1
            # A share of the outputs is gathered, and a whole gradient of the input summed up.
            numbers += size(shapes[name][:-1]) * (layer.out_features / world + layer.in_features)
            parallelize_module(layer, mesh, ColwiseParallel(output_layouts=Replicate()))
            # The next layer may write into what it is given, and what was gathered is a read-only view.
            layer.register_forward_hook(lambda layer, images, output: output.clone())
        self._exchanged_bytes = int(numbers * self.setup.batch * self._crosses.itemsize)
