"""A graph, or a stage of one, as one nn.Module: a flat program of native layers, run in order."""

from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from adapters.pytorch.lower import Operation, lower, overwritable
from suite.worker.pipeline_stages import Stage
from workloads.graph import Graph

# what to call, where its result goes, its first input, its other inputs (places in a list of values)
Instruction = Tuple[Operation, int, int, Tuple[int, ...]]


class Net(nn.Module):
    """Runs a graph; `forward` gives the logits of every head, the network's answer last.

    Everything that depends on the graph is decided here, once: a call of `forward` costs
    a tuple and an index a layer beyond the layers themselves.
    """

    def __init__(
        self,
        graph: Graph,
        weights: Dict[str, np.ndarray],
        fast: bool,
        stage: Optional[Stage] = None,
        ways: Optional[Dict[str, str]] = None,
    ) -> None:
        """Lower every layer (of a stage) and set its weights (canonical names); KeyError names a missing one.

        `ways`: how `candidates.choose` has layers computed, by their names.
        """
        super().__init__()
        self.layers = nn.ModuleList()
        self._states: List[Tuple[str, Any, str]] = []
        if stage is None:
            stage = Stage(0, len(graph.layers), ("input",), tuple(head.layer for head in graph.heads))
        # What another stage made may be read there again.
        mine = overwritable(graph, read_counts(graph)) - set(stage.entering)
        places = Places(graph, stage)
        self._program: List[Instruction] = []
        for index in range(stage.begin, stage.end):
            layer = graph.layers[index]
            operation = lower(layer, fast, layer.inputs[0] in mine, (ways or {}).get(layer.name, "torch"))
            if isinstance(operation, nn.Module):
                self._keep(operation, layer.name)
            inputs, output = places.of(index)
            self._program.append((operation, output, inputs[0], inputs[1:]))
        self._size, self._leaving = places.size, [places.now[name] for name in stage.leaving]
        self._load(weights)

    def forward(self, *entering: torch.Tensor) -> List[torch.Tensor]:
        """Logits (samples, classes) of every head, for images (samples, channels, height, width); or a stage's."""
        values: List[Any] = [*entering] + [None] * (self._size - len(entering))
        for operation, output, first, rest in self._program:
            if rest:
                values[output] = operation(values[first], *[values[place] for place in rest])
            else:
                values[output] = operation(values[first])
        return [values[place] for place in self._leaving]

    def layer_by_layer(self, images: torch.Tensor, done: Callable[[int, torch.Tensor, bool], None]) -> List[Any]:
        """`forward` of the whole network; after each layer `done(its index, output, whether autograd recorded it)`."""
        values: List[Any] = [images] + [None] * (self._size - 1)
        for index, (operation, output, first, rest) in enumerate(self._program):
            before = values[first].grad_fn
            made = values[output] = operation(values[first], *[values[place] for place in rest])
            done(index, made, made.grad_fn is not before)
        return [values[place] for place in self._leaving]

    def trainable(self) -> Iterator[Tuple[str, nn.Parameter]]:
        """(canonical name, parameter), in the graph's order."""
        return ((name, tensor) for name, tensor in self.tensors() if isinstance(tensor, nn.Parameter))

    def tensors(self) -> Iterator[Tuple[str, torch.Tensor]]:
        """(canonical name, tensor) of parameters and running statistics."""
        return ((name, getattr(module, role)) for name, module, role in self._states)

    def _keep(self, module: nn.Module, name: str) -> None:
        self.layers.append(module)
        for role in ("weight", "bias", "running_mean", "running_var"):
            if getattr(module, role, None) is not None:
                self._states.append((name + "." + role, module, role))

    def _load(self, weights: Dict[str, np.ndarray]) -> None:
        with torch.no_grad():
            for name, parameter in self.trainable():
                parameter.copy_(torch.from_numpy(weights[name]))


class Places:
    """Gives every value a place in a short list; a place is used again once its last reader has run.

    So an activation lives exactly as long as in a hand-written forward that overwrites `x`.
    """

    def __init__(self, graph: Graph, stage: Stage) -> None:
        """Walk the stage's layers once with `of`, in order."""
        self._graph = graph
        indices = range(stage.begin, stage.end)
        self._last = {name: index for index in indices for name in graph.layers[index].inputs}
        self._last.update((name, stage.end) for name in stage.leaving)
        self.now: Dict[str, int] = {name: place for place, name in enumerate(stage.entering)}
        self._free: List[int] = []
        self.size = len(stage.entering)

    def of(self, index: int) -> Tuple[Tuple[int, ...], int]:
        """Places of a layer's inputs and of its output."""
        layer = self._graph.layers[index]
        inputs = tuple(self.now[name] for name in layer.inputs)
        for name in set(layer.inputs):
            if self._last[name] == index:
                self._free.append(self.now.pop(name))
        if not self._free:
            self._free.append(self.size)
            self.size += 1
        output = self._free.pop()
        if layer.name in self._last:
            self.now[layer.name] = output
        else:
            self._free.append(output)  # no layer reads it
        return inputs, output


def read_counts(graph: Graph) -> Dict[str, int]:
    counts: Dict[str, int] = {}
    for layer in graph.layers:
        for name in layer.inputs:
            counts[name] = counts.get(name, 0) + 1
    return counts


def joint_loss(heads: List[torch.Tensor], shares: List[float], labels: torch.Tensor) -> torch.Tensor:
    """Sum over heads of share x mean softmax cross-entropy; in float32 at least."""
    total: Optional[torch.Tensor] = None
    for logits, share in zip(heads, shares):
        wide = logits.float() if logits.dtype in (torch.bfloat16, torch.float16) else logits
        loss = functional.cross_entropy(wide, labels)
        loss = loss if share == 1.0 else loss * share
        total = loss if total is None else total + loss
    assert total is not None, "a graph has at least one head"
    return total
