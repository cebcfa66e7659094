"""Layer kinds as PyTorch's own layers.

torch's conventions that matter: LRN takes the graph's alpha (it divides by the size
itself); batch-norm momentum is the share of the *new* value, 1 - m, and its running
variance is the unbiased one; a ceil-mode window that begins beyond the input and its
left padding is dropped, as the graph says.
"""

from functools import partial
from typing import Any, Callable, Dict, Optional, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from stagebench.adapters.pytorch.candidates import Run, random
from stagebench.adapters.pytorch.kernels import Dense, FastLRN, Pointwise
from stagebench.suite.worker.contract import Unsupported
from stagebench.workloads.graph import Layer

# Called with a layer's inputs: (samples, channels, height, width), (samples, features), (samples, positions, width), or
# whole numbers (samples, positions).
Operation = Callable[..., Tensor]
Owners = Dict[str, Any]  # the modules that have the weights which a layer shares, by the layer's roles
CODE = (__file__,)  # files besides candidates.py whose code decides how a layer is computed


def lower(layer: Layer, fast: bool, exclusive: bool, way: str = "torch", owners: Optional[Owners] = None) -> Operation:
    """Return the layer as something to call with its inputs: an nn.Module where it has state or a mode.

    `fast` allows what is faster than torch's own layer; `exclusive` says that the first input may be written over;
    `way` is one of `candidates.WAYS`.
    """
    operation: Operation = getattr(Lowering(layer, fast, exclusive, way, owners or {}), layer.kind)()
    return operation


class PaddedAverage(nn.AvgPool2d):
    """On CUDA its backward forgets the padding where memory is channels-last (pytorch/pytorch#188344, torch 2.11)."""

    def forward(self, input: Tensor) -> Tensor:
        """Pool; on CUDA after a copy to contiguous memory."""
        return super().forward(input.contiguous() if input.is_cuda else input)


class Weight(nn.Module):
    """The base of layers whose only tensor is a weight of the graph's shape."""

    def __init__(self, shape: Sequence[int]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(shape))


class ClassToken(Weight):
    """A learned token (1, 1, width), before the others."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.weight.to(x.dtype).expand(len(x), 1, -1), x], 1)


class Positions(Weight):
    """A table of learned vectors, (1, rows, width), the first of which are added to the tokens."""

    def forward(self, x: Tensor) -> Tensor:
        return x + self.weight[:, : x.shape[1]].to(x.dtype)


class Lowering:
    """A layer's operation, made by the method that bears the name of the layer's kind."""

    def __init__(self, layer: Layer, fast: bool, exclusive: bool, way: str, owners: Owners) -> None:
        self._layer = layer
        self._attrs = layer.attrs
        self._fast = fast
        # Not in place over tokens: a dense layer's are a view, which autograd would copy.
        self._exclusive = exclusive and len(layer.shape) != 2
        self._way = way
        self._owners = owners
        shape = layer.input_shapes[0]
        self._entering = shape[0] if len(shape) == 3 else shape[-1]  # channels, or features

    def conv(self) -> Operation:
        attrs = self._attrs
        window = {"stride": attrs["stride"], "padding": attrs["pad"], "groups": attrs["groups"], "bias": attrs["bias"]}
        if self._way == "onednn":
            window["dilation"] = 2  # 1x1 has nothing to dilate, and torch gives dilated convolutions to oneDNN
        kind = Pointwise if self._way == "product" else nn.Conv2d
        return nn.utils.skip_init(kind, self._entering, attrs["out"], attrs["kernel"], **window)

    def dense(self) -> Operation:
        kind = Dense if self._way == "onednn" else nn.Linear
        return nn.utils.skip_init(kind, self._entering, self._layer.shape[-1], bias=self._attrs["bias"])

    qkv = dense

    def batch_norm(self) -> Operation:
        return nn.BatchNorm2d(self._entering, eps=self._attrs["eps"], momentum=1 - self._attrs["momentum"])

    def relu(self) -> Operation:
        return torch.relu_ if self._exclusive else torch.relu

    def max_pool(self) -> Operation:
        return partial(torch.max_pool2d, **self._window())

    def avg_pool(self) -> Operation:
        kind = PaddedAverage if self._attrs["pad"] else nn.AvgPool2d
        return kind(count_include_pad=self._attrs["count_padding"], **self._window())

    def lrn(self) -> Operation:
        kind = FastLRN if self._fast else nn.LocalResponseNorm
        return kind(*[self._attrs[name] for name in ("size", "alpha", "beta", "k")])

    def dropout(self) -> Operation:
        return nn.Dropout(self._attrs["rate"]) if self._attrs["rate"] else nn.Identity()

    def concat(self) -> Operation:
        return lambda *xs: torch.cat(xs, 1)

    def add(self) -> Operation:
        if len(self._layer.inputs) == 2:
            return torch.Tensor.add_ if self._exclusive else torch.add
        return lambda first, *rest: sum(rest, first)

    def flatten(self) -> Operation:
        return lambda x: torch.flatten(x, 1)

    def tokens(self) -> Operation:
        patch, (channels, height, width) = self._attrs["patch"], self._layer.input_shapes[0]
        cut, shape = (channels, height // patch, patch, width // patch, patch), self._layer.shape
        return lambda x: x.reshape(-1, *cut).permute(0, 2, 4, 1, 3, 5).reshape(-1, *shape)

    def embedding(self) -> Operation:
        return nn.utils.skip_init(nn.Embedding, self._attrs["vocabulary"], self._attrs["out"])

    def tied(self) -> Operation:
        owner = self._owners["weight"]
        return lambda x: functional.linear(x, owner.weight)  # read each time: FSDP replaces it

    def class_token(self) -> Operation:
        return ClassToken(self._layer.parameters[0].shape)

    def positions(self) -> Operation:
        return Positions(self._layer.parameters[0].shape)

    def layer_norm(self) -> Operation:
        return nn.LayerNorm(self._entering, eps=self._attrs["eps"])

    def attention(self) -> Operation:
        causal, (positions, width) = self._attrs["causal"], self._layer.shape
        d = width // self._attrs["heads"]

        def attend(x: Tensor) -> Tensor:
            heads = x.shape[-1] // (3 * d)  # a rank may have its own alone
            q, k, v = x.view(-1, positions, 3, heads, d).permute(2, 0, 3, 1, 4)
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
            return y.transpose(1, 2).reshape(-1, positions, heads * d)

        return attend

    def gelu(self) -> Operation:
        return partial(functional.gelu, approximate="tanh")

    def select(self) -> Operation:
        position = self._attrs["position"]
        return lambda x: x[:, position]

    def mean(self) -> Operation:
        return lambda x: x.mean(1)

    def _window(self) -> Dict[str, Any]:
        attrs = self._attrs
        if 2 * attrs["pad"] > attrs["kernel"]:
            raise Unsupported(
                f"layer {self._layer.name!r} pads {attrs['pad']} for a window of {attrs['kernel']}; PyTorch pools "
                "with at most half a window of padding"
            )
        names = {"kernel": "kernel_size", "stride": "stride", "pad": "padding", "ceil": "ceil_mode"}
        return {theirs: attrs[ours] for ours, theirs in names.items()}


def attempt(layout: Any, layer: Layer, way: str, samples: int) -> Run:
    """Return what computes a layer forward and backward on random numbers, for `candidates.choose`."""
    module: Any = lower(layer, True, False, way)
    with torch.no_grad():
        for seed, parameter in enumerate(module.parameters()):
            parameter.copy_(random(parameter.shape, seed))
    module.to(memory_format=layout)
    x = random((samples, *layer.input_shapes[0]), 2, layout).requires_grad_()
    dy = random((samples, *layer.shape), 3, layout)

    def run() -> Any:
        y = module(x)
        return [y.detach(), *torch.autograd.grad(y, [x, *module.parameters()], dy)]

    return run
