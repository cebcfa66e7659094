"""`branch_parallel`: the branches of every block are distributed over the ranks, the other layers are whole on each.

Two exchanges a block: where the branches end, every rank sends its outputs to all; where they begin, the backward sums
up what flows back to their common input. All ranks are given the same batch, as for `tensor_parallel`.
"""

from typing import Any, Callable, Dict, List, Optional

import numpy as np
import torch

from adapters.pytorch.base import to_numpy
from adapters.pytorch.branches import BlockExchange, BranchNet
from adapters.pytorch.replica import SharedTrainer, counted_macs
from adapters.pytorch.stages import Gather
from suite.worker.contract import Batch, LayerTimes, Unsupported
from suite.worker.pipeline_stages import blocks
from workloads.graph import Graph, size


class BranchParallel(SharedTrainer):
    """A trainer of one network on all ranks: GoogLeNet's blocks have four branches and two exchanges each."""

    # Set by `build`.
    _exchange: Any = None
    _gather: Any = None
    _cut: Any = None
    _bubble: Any = None

    # --- the staged iteration -----------------------------------------------

    def forward(self, batch: Batch) -> None:
        self._exchange.begin()
        super().forward(batch)
        self._bubble = {"forward": self._exchange.end()}

    def backward(self) -> None:
        self._exchange.begin()
        super().backward()
        self._bubble["backward"] = self._exchange.end()

    def bubble(self) -> Optional[Dict[str, float]]:
        """Seconds in exchanges, until the slowest rank's branches are done and have come."""
        return self._bubble

    # --- evidence: of the whole network, on every rank ----------------------------

    def gradients(self) -> Dict[str, np.ndarray]:
        return self._whole({name: tensor.grad for name, tensor in self._net.trainable()})

    def parameters(self) -> Dict[str, np.ndarray]:
        return self._whole(dict(self._net.tensors()))

    def parameter_count(self) -> int:
        return self._counted(lambda net, shapes: sum(each.numel() for each in net.parameters()))

    def macs(self) -> int:
        options = {"dtype": self._dtype, "device": self._device}
        return self._counted(
            lambda net, shapes: counted_macs(net, *[torch.zeros((1,) + shape, **options) for shape in shapes])
        )

    def layer_times(self, batch: Batch) -> List[LayerTimes]:
        raise Unsupported("a rank has some of the branches and waits for the others within the network")

    def notes(self) -> Dict[str, Any]:
        owners = "; ".join(", ".join(map(str, block.owners)) for block in self._cut)
        return dict(super().notes(), branch_parallel="ranks of every block's branches: %s" % owners)

    # --- what ReplicaTrainer.build asks for -----------------------------------------

    def _network(self, graph: Graph, weights: Dict[str, np.ndarray]) -> BranchNet:
        """A network without blocks stays whole; plans refuse one (`Strategy.cut`)."""
        setup, self._cut = self.setup, blocks(graph, self.setup.world)
        branches = [branch for block in self._cut for branch in block.branches]
        owners = [owner for block in self._cut for owner in block.owners]
        self._gather = Gather(graph, branches, owners, self.group.pipeline_on_hosts(setup.world), self._dtype)
        self._exchange = BlockExchange(setup.rank, self._crosses, self._layout)
        shapes = dict({layer.name: layer.shape for layer in graph.layers}, input=graph.input_shape)
        made = sum(size(shapes[branch.leaving[0]]) for branch in branches)
        summed = sum(size(shapes[block.branches[0].entering[0]]) for block in self._cut)
        self._exchanged_bytes = int((made / setup.world + summed) * setup.batch * self._crosses.itemsize)
        return BranchNet(graph, self._cut, setup.rank, weights, setup.tuned, self._exchange, self._ways)

    def _whole(self, mine: Dict[str, Any]) -> Dict[str, np.ndarray]:
        """This rank's own copy of what all have, and every rank's branches."""
        branches = {name for net, _ in self._net.nets(shared=False) for name, _ in net.tensors()}
        found = {name: to_numpy(tensor) for name, tensor in mine.items() if name not in branches}
        found.update(self._gather.tensors({name: tensor for name, tensor in mine.items() if name in branches}))
        return found

    def _counted(self, count: Callable[[Any, Any], int]) -> int:
        """Add up the trunk's count, once, and those of every rank's branches."""
        shared, own = self._net.nets(own=False), self._net.nets(shared=False)
        return sum(count(*each) for each in shared) + int(self._gather.total(sum(count(*each) for each in own)))

    def _release(self) -> None:
        self._exchange = self._gather = None
        super()._release()
