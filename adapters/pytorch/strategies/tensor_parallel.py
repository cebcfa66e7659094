"""`tensor_parallel`: every dense layer cut over all ranks, the other layers whole on each of them.

torch's parallelize_module (DTensor): a rank has some of a dense layer's outputs, all ranks gather them in the forward,
and sum up what flows back to the layer's input in the backward. All ranks are given the same batch, so that layers
without a share compute the same everywhere and exchange nothing.
"""

from typing import Any, Dict

import numpy as np
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

from adapters.pytorch.base import to_numpy
from adapters.pytorch.replica import SharedTrainer
from adapters.pytorch.strategies.fsdp import gathered
from suite.worker.contract import Setup


class TensorParallel(SharedTrainer):
    """A trainer of one network on all ranks together."""

    has_candidates = False  # a DTensor is for torch's own operators alone

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._fused = False  # torch 2.13's fused optimisers take no DTensor together with other tensors

    def gradients(self) -> Dict[str, np.ndarray]:
        return {name: to_numpy(gathered(parameter.grad)) for name, parameter in self._net.trainable()}

    def parameters(self) -> Dict[str, np.ndarray]:
        return {name: to_numpy(gathered(tensor)) for name, tensor in self._net.tensors()}

    def notes(self) -> Dict[str, Any]:
        return dict(super().notes(), tensor_parallel="parallelize_module, %d dense layers by columns" % self._cut)

    def _wrap(self) -> None:
        dense = {name: layer for name, layer in self._net.layers.named_children() if isinstance(layer, nn.Linear)}
        self._cut, world = len(dense), self.setup.world
        # A share of the outputs is gathered, and a whole gradient of the input summed up.
        numbers = sum(layer.out_features / world + layer.in_features for layer in dense.values())
        self._exchanged_bytes = int(numbers * self.setup.batch * self._crosses.itemsize)
        mesh = init_device_mesh(self._device.type, (world,))
        plan = {"layers." + name: ColwiseParallel(output_layouts=Replicate()) for name in dense}
        parallelize_module(self._net, mesh, plan)
        for name in dense:
            # The next layer may write into what it is given, and what was gathered is a read-only view.
            self._net.layers[int(name)].register_forward_hook(lambda layer, images, output: output.clone())
