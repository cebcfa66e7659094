"""Activation checkpointing: segments of a network whose backward computes their activations again."""

from typing import Dict, List

from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from stagebench.adapters.pytorch.candidates import Ways
from stagebench.adapters.pytorch.net import Heads, Named, Net
from stagebench.suite.worker.contract import Unsupported
from stagebench.suite.worker.pipeline_stages import stages
from stagebench.suite.worker.trainer import Arrays
from stagebench.workloads.graph import Graph


class Segments(nn.Module):
    """A network of which all segments but the last keep what enters them alone, until its backward (Chen 2016)."""

    def __init__(self, graph: Graph, weights: Arrays, fast: bool, ways: Ways, count: int) -> None:
        """Cut the network where one value crosses; Unsupported for one with running statistics, or too few places."""
        super().__init__()
        if graph.buffers:
            raise Unsupported(
                f"checkpoint_segments = {count} computes layers twice, and the running statistics of {graph.name} "
                "would count each batch twice; ask for 1"
            )
        made: Dict[str, nn.Module] = {}
        self._stages = stages(graph, count, one_value=True)
        self.nets = nn.ModuleList(Net(graph, weights, fast, stage, ways, made) for stage in self._stages)

    def forward(self, inputs: Tensor) -> Heads:
        """Return the heads, of inputs; torch draws a segment's dropout again from the same state."""
        values = {"input": inputs}
        leaving: List[Tensor] = []
        for stage, net in zip(self._stages, self.nets):
            entering = [values[name] for name in stage.entering]
            last = stage is self._stages[-1]
            leaving = net(*entering) if last else checkpoint(net, *entering, use_reentrant=False)
            values = dict(zip(stage.leaving, leaving))
        return leaving

    def trainable(self) -> Named:
        """Yield the parameters, in the graph's order."""
        for net in self.nets:
            yield from net.trainable()

    tensors = trainable  # there are no running statistics
