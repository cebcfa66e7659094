"""Inference on CPUs in float32: a convolution with the sum and the rectifier after it as one of oneDNN's operators.

torch.compile writes networks so, too. Weights are packed once, as the operator wants them for a number of samples. On
one thread with AVX2 ResNet-50 takes 0.83 of the time with one sample, mnist_small 0.9.
"""

from collections import Counter
from typing import Any, List, Tuple

import torch
from torch import Tensor, nn

from stagebench.adapters.pytorch.lower import Operation
from stagebench.adapters.pytorch.net import Instruction
from stagebench.workloads.graph import Graph, Layer

KINDS = ("add", "relu")  # what may follow a convolution, in this order


class Fused:
    """A convolution, a sum of two and a rectifier."""

    def __init__(self, conv: Any, entering: Tuple[int, ...], rectified: bool) -> None:
        """Take a convolution's tensors; `entering` is its input's shape, of the usual query."""
        window = list(conv.padding), list(conv.stride), list(conv.dilation), conv.groups
        weight = torch._C._nn.mkldnn_reorder_conv2d_weight(conv.weight.detach().to_mkldnn(), *window, entering)
        self.constants = weight, None if conv.bias is None else conv.bias.detach(), *window
        self.then = "relu" if rectified else None
        operator: Any = torch.ops.mkldnn._convolution_pointwise
        self.run, self.run_with_addend = operator.default, operator.binary

    def __call__(self, x: Tensor, *addend: Tensor) -> Tensor:
        if addend:
            return self.run_with_addend(x, *addend, *self.constants, "add", 1.0, self.then, [], None)  # type: ignore[no-any-return]
        return self.run(x, *self.constants, self.then or "none", [], None)  # type: ignore[no-any-return]


def fused(program: List[Instruction], graph: Graph, begin: int, samples: int) -> List[Instruction]:
    """Return the program of a network's layers, from number `begin`; what follows a convolution is part of it."""
    layers = graph.layers[begin : begin + len(program)]
    readers = Counter(name for layer in graph.layers for name in layer.inputs)
    readers.update(head.layer for head in graph.heads)
    made, index = [], 0
    while index < len(program):
        layer, (operation, output, first, rest) = layers[index], program[index]
        index += 1
        if layer.kind == "conv":
            chain = following(layers, index, readers)
            addends: List[int] = []
            for after, (_, place, begin, others) in zip(chain, program[index:]):
                if after.kind == "add":
                    addends = [each for each in (begin, *others) if each != output]
                output = place
            entering = (samples, *layer.input_shapes[0])
            operation = Fused(operation, entering, bool(chain) and chain[-1].kind == "relu")
            rest = tuple(addends)
            index += len(chain)
        made.append((bare(operation), output, first, rest))
    return made


def bare(operation: Operation) -> Operation:
    """Return a module's computation alone: its call and look-ups take a tenth of mnist_small's query of one sample."""
    if isinstance(operation, nn.Module):
        vars(operation).update((name, tensor.detach()) for name, tensor in operation.named_parameters(recurse=False))
        operation._parameters.clear()
        return operation.forward  # type: ignore[no-any-return]
    return operation


def following(layers: List[Layer], index: int, readers: "Counter[str]") -> List[Layer]:
    """Return those of the layers from `index` that can be part of the convolution before them."""
    chain = [layers[index - 1]]
    for kind in KINDS:
        at = index + len(chain) - 1
        after = layers[at] if at < len(layers) else chain[0]
        alone = readers[chain[-1].name] == 1 and chain[-1].name in after.inputs
        if alone and after.kind == kind and len(set(after.inputs)) == len(after.inputs) <= 2:
            chain.append(after)
    return chain[1:]
