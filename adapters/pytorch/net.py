"""A graph, or a stage of one, as one nn.Module: a flat program of native layers, run in order; what it costs."""

from collections import Counter
from functools import partial
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from stagebench.adapters.pytorch.candidates import Ways
from stagebench.adapters.pytorch.lower import Operation, Weight, lower
from stagebench.suite.worker.contract import LayerTimes
from stagebench.suite.worker.layers import LayerClock, repeated
from stagebench.suite.worker.pipeline_stages import Stage
from stagebench.suite.worker.trainer import Arrays, Trainer
from stagebench.workloads.graph import Graph, Shape

Named = Iterator[Tuple[str, Tensor]]  # by canonical name
# Logits (samples, classes), or (samples, positions, classes), of every head, the network's answer last.
Heads = List[Tensor]
# what to call, where its result goes, its first input, its other inputs (places in a list of values)
Instruction = Tuple[Operation, int, int, Tuple[int, ...]]


class Net(nn.Module):
    """Runs a graph, or a stage of it.

    Everything that depends on the graph is decided here, once: a call of `forward` costs
    a tuple and an index a layer beyond the layers themselves.
    """

    def __init__(
        self,
        graph: Graph,
        weights: Arrays,
        fast: bool,
        stage: Optional[Stage] = None,
        ways: Optional[Ways] = None,
        made: Optional[Dict[str, nn.Module]] = None,
    ) -> None:
        """Lower every layer (of a stage) and set its weights; KeyError names a missing one.

        `made` has the modules of earlier stages by layer, with whose weights this one may compute; it gets this one's.
        """
        super().__init__()
        self.layers = nn.ModuleList()
        self._states: List[Tuple[str, Any, str]] = []  # name, module, role
        self.shared: List[nn.Module] = []  # layers whose weight a later one computes with, too
        self.copies: List[str] = []  # weights of other ranks' layers
        self.made = {} if made is None else made
        heads = tuple(head.layer for head in graph.heads)
        if stage is None:
            stage = Stage(0, len(graph.layers), ("input",), heads)
        readers = Counter(name for layer in graph.layers for name in layer.inputs)
        places = Places(graph, stage)
        self.program: List[Instruction] = []
        overwritable = set()  # layers of this stage whose output may be written over by its one reader
        for index in range(stage.begin, stage.end):
            layer = graph.layers[index]
            if layer.overwritable and readers[layer.name] == 1 and layer.name not in heads:
                overwritable.add(layer.name)
            way = (ways or {}).get(layer.name, "torch")
            owners = {role: self._owner(name, weights) for role, name in layer.shares.items()}
            self.shared += owners.values()
            operation = lower(layer, fast, layer.inputs[0] in overwritable, way, owners)
            if isinstance(operation, nn.Module):
                self.made[layer.name] = operation
                self.layers.append(operation)
                for role in ("weight", "bias", "running_mean", "running_var"):
                    if getattr(operation, role, None) is not None:
                        self._states.append((f"{layer.name}.{role}", operation, role))
            (first, *rest), output = places.of(index)
            self.program.append((operation, output, first, tuple(rest)))
        self._size = places.size
        self._leaving = [places.now[name] for name in stage.leaving]
        with torch.no_grad():
            for name, parameter in self.trainable():
                parameter.copy_(torch.from_numpy(weights[name]))

    def _owner(self, name: str, weights: Arrays) -> nn.Module:
        """Return the module that has a weight; where its layer is another rank's, one with a copy."""
        layer, _, role = name.rpartition(".")
        if layer not in self.made:
            self.made[layer] = Weight(weights[name].shape)
            self.layers.append(self.made[layer])
            self._states.append((name, self.made[layer], role))
            self.copies.append(name)
        return self.made[layer]

    def forward(self, *entering: Tensor) -> List[Tensor]:
        """Return the heads, for images (samples, channels, height, width) or tokens; of a stage what leaves it."""
        values: List[Any] = [*entering] + [None] * (self._size - len(entering))
        for operation, output, first, rest in self.program:
            if rest:
                values[output] = operation(values[first], *[values[place] for place in rest])
            else:
                values[output] = operation(values[first])
        return [values[place] for place in self._leaving]

    def follow(self, original: "Net") -> None:
        """Run the layers of one's own, which a copy of a network has in place of the original's, in its order."""
        own = dict(zip(original.layers, self.layers))
        self.program = [(own.get(operation, operation), *places) for operation, *places in original.program]

    def layer_by_layer(self, inputs: Tensor, done: Callable[[int, Tensor, bool], None]) -> Heads:
        """`forward` of the whole network; after each layer `done(its index, output, whether autograd recorded it)`."""
        values: List[Any] = [inputs] + [None] * (self._size - 1)
        for index, (operation, output, first, rest) in enumerate(self.program):
            before = values[first].grad_fn
            made = values[output] = operation(values[first], *[values[place] for place in rest])
            done(index, made, made.grad_fn is not before)
        return [values[place] for place in self._leaving]

    def trainable(self) -> Named:
        """Yield the parameters, in the graph's order."""
        return ((name, tensor) for name, tensor in self.tensors() if isinstance(tensor, nn.Parameter))

    def tensors(self) -> Named:
        """Yield parameters and running statistics."""
        return ((name, getattr(module, role)) for name, module, role in self._states)


class Places:
    """Gives every value a place in a short list; a place is used again once its last reader has run.

    So an activation lives exactly as long as in a hand-written forward that overwrites `x`.
    """

    def __init__(self, graph: Graph, stage: Stage) -> None:
        """Walk the stage's layers once with `of`, in order."""
        self._graph = graph
        self._last: Dict[str, int] = {}
        for index in range(stage.begin, stage.end):
            self._last.update((name, index) for name in graph.layers[index].inputs)
        self._last.update((name, stage.end) for name in stage.leaving)
        self.now = {name: place for place, name in enumerate(stage.entering)}
        self._free: List[int] = []
        self.size = len(stage.entering)

    def of(self, index: int) -> Tuple[List[int], int]:
        """Return the places of a layer's inputs and of its output."""
        layer = self._graph.layers[index]
        inputs = [self.now[name] for name in layer.inputs]
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


def joint_loss(heads: Heads, shares: List[float], labels: Tensor) -> Tensor:
    """Sum over heads of share x mean softmax cross-entropy, over samples and their tokens; in float32 at least."""
    total: Any = None
    for logits, share in zip(heads, shares):
        wide = logits.float() if logits.dtype in (torch.bfloat16, torch.float16) else logits
        loss = functional.cross_entropy(wide.flatten(0, -2), labels.flatten())
        loss = loss if share == 1.0 else loss * share
        total = loss if total is None else total + loss
    return total


def shapes_of(graph: Graph) -> Dict[str, Shape]:
    """Return the shapes of all values, of one sample each."""
    return dict({layer.name: layer.shape for layer in graph.layers}, input=graph.input_shape)


def blank(graph: Graph, names: Sequence[str], samples: int, dtype: torch.dtype, device: Any) -> List[Tensor]:
    """Return zeros in the shapes of these layers' values, or the input's; tokens are whole numbers."""
    shapes = shapes_of(graph)
    types = {"input": torch.int64} if graph.vocabulary else {}
    return [torch.zeros((samples, *shapes[name]), dtype=types.get(name, dtype), device=device) for name in names]


def counted_macs(network: nn.Module, *samples: Tensor) -> int:
    """Count a forward pass's multiply-accumulates, one being two of FlopCounterMode's operations."""
    counter = FlopCounterMode(display=False)
    network.eval()  # the running statistics stay as they are
    with torch.no_grad(), counter:
        network(*samples)
    network.train()
    return int(counter.get_total_flops()) // 2


def layer_times(
    trainer: Trainer, graph: Graph, net: Net, evaluate: Callable[[Any], Tuple[Heads, Tensor]]
) -> List[LayerTimes]:
    """Time each layer within a real forward and backward: laps between layers, and in autograd's hooks.

    `evaluate(network)` gives the heads and the loss of a batch; gradients are dropped. Autograd works through the
    forward's record in the opposite order, so a layer's backward lasts from the moment its output's gradient is there
    until the next layer's is; sums over a value's readers are in the last one's.
    """
    clock = LayerClock(trainer, graph)
    running = 0  # the row whose backward is running

    def complete(index: int, parameter: Tensor) -> None:
        clock.ready(index)

    def reached(index: int, gradient: Tensor) -> None:
        nonlocal running
        clock.backward(running)
        running = index

    def done(index: int, output: Tensor, fresh: bool) -> None:
        clock.forward(index)
        if fresh and output.requires_grad:
            output.register_hook(partial(reached, index))

    def once() -> None:
        nonlocal running
        running = len(graph.layers)
        clock.begin()
        _, loss = evaluate(lambda inputs: net.layer_by_layer(inputs, done))
        clock.forward(running)
        clock.begin()
        loss.backward()
        clock.backward(running)
        net.zero_grad(set_to_none=True)

    handles = []
    places = {layer.name: index for index, layer in enumerate(graph.layers)}
    for name, parameter in net.trainable():
        # After the accumulation, as DDP's and Horovod's own hooks.
        hook = partial(complete, places[name.rpartition(".")[0]])
        handles.append(parameter.register_post_accumulate_grad_hook(hook))
    try:
        return repeated(clock, once)
    finally:
        for handle in handles:
            handle.remove()
