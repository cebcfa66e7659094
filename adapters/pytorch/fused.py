"""Inference on CPUs in float32: a convolution with the sum and the rectifier after it as one of oneDNN's operators.

torch.compile writes networks so, too. Weights are packed once, as the operator wants them for a number of samples. On
one thread with AVX2 ResNet-50 takes 0.83 of the time with one sample, mnist_small 0.9.
"""

from collections import defaultdict
from typing import Any, Dict, List, Optional, Set, Tuple

import torch
from torch import Tensor, nn

from stagebench.adapters.pytorch.lower import Operation
from stagebench.adapters.pytorch.net import Instruction
from stagebench.workloads.graph import Graph, Layer

Readers = Dict[str, List[Optional[Layer]]]  # of each value, in order; None of a head
KINDS = ("add", "relu")  # what may follow a convolution, in this order


class Fused:
    """A convolution, a sum of two and a rectifier."""

    def __init__(self, conv: Any, entering: Tuple[int, ...], rectified: bool, overwrites: bool) -> None:
        """Take a convolution's tensors, its input's shape of the usual query, and if its sum overwrites the addend."""
        window = list(conv.padding), list(conv.stride), list(conv.dilation), conv.groups
        weight = torch._C._nn.mkldnn_reorder_conv2d_weight(conv.weight.detach().to_mkldnn(), *window, entering)
        self.constants = weight, None if conv.bias is None else conv.bias.detach(), *window
        self.then = "relu" if rectified else None
        operators: Any = torch.ops.mkldnn
        self.run = operators._convolution_pointwise.default
        self.run_with_addend = operators._convolution_pointwise.binary
        self.run_into_addend = operators._convolution_pointwise_.binary if overwrites else None

    def __call__(self, x: Tensor, *addend: Tensor) -> Tensor:
        if addend and self.run_into_addend:
            return self.run_into_addend(*addend, x, *self.constants, "add", 1.0, self.then, [], None)  # type: ignore[no-any-return]
        if addend:
            return self.run_with_addend(x, *addend, *self.constants, "add", 1.0, self.then, [], None)  # type: ignore[no-any-return]
        return self.run(x, *self.constants, self.then or "none", [], None)  # type: ignore[no-any-return]


def fused(program: List[Instruction], graph: Graph, begin: int, samples: int) -> List[Instruction]:
    """Return the program of a network's layers, from number `begin`; what follows a convolution is part of it."""
    layers = graph.layers[begin : begin + len(program)]
    readers: Readers = defaultdict(list)
    for layer in graph.layers:
        for name in layer.inputs:
            readers[name].append(layer)
    for head in graph.heads:
        readers[head.layer].append(None)
    convolved: Set[str] = set()  # values in memory of their own, which a convolution made
    made, index = [], 0
    while index < len(program):
        layer, (operation, output, first, rest) = layers[index], program[index]
        index += 1
        if layer.kind == "conv":
            chain = following(layers, index, readers)
            addends: List[int] = []
            overwrites = False
            for after, (_, place, begin, others) in zip(chain, program[index:]):
                if after.kind == "add":
                    addends = [each for each in (begin, *others) if each != output]
                    read = convolved.intersection(after.inputs)
                    overwrites = any(ends_with(readers[name], after, layer) for name in read)
                output = place
            entering = (samples, *layer.input_shapes[0])
            operation = Fused(operation, entering, bool(chain) and chain[-1].kind == "relu", overwrites)
            rest = tuple(addends)
            index += len(chain)
            convolved.add([layer, *chain][-1].name)
        made.append((bare(operation), output, first, rest))
    return made


def bare(operation: Operation) -> Operation:
    """Return a module's computation alone: its call and look-ups take a tenth of mnist_small's query of one sample."""
    if isinstance(operation, nn.Module):
        vars(operation).update((name, tensor.detach()) for name, tensor in operation.named_parameters(recurse=False))
        operation._parameters.clear()
        return operation.forward  # type: ignore[no-any-return]
    return operation


def ends_with(readers: List[Optional[Layer]], add: Layer, conv: Layer) -> bool:
    """Return whether a value's last reader is a sum, and all others are convolutions before the one it is added to."""
    *before, last = readers
    return last is add and all(each is not None and each.kind == "conv" and each is not conv for each in before)


def following(layers: List[Layer], index: int, readers: Readers) -> List[Layer]:
    """Return those of the layers from `index` that can be part of the convolution before them."""
    chain = [layers[index - 1]]
    for kind in KINDS:
        at = index + len(chain) - 1
        after = layers[at] if at < len(layers) else chain[0]
        alone = len(readers[chain[-1].name]) == 1 and chain[-1].name in after.inputs
        if alone and after.kind == kind and len(set(after.inputs)) == len(after.inputs) <= 2:
            chain.append(after)
    return chain[1:]
