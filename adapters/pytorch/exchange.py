"""The exchange of gradients: how the staged pass does what DDP does, and what makes gradients smaller in both."""

from typing import Any, List, Optional, Sequence, Tuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

from stagebench.adapters.pytorch.base import TorchTrainer

WORDS = {
    "none": "none",
    "fp16": "fp16_compress_hook",
    "bf16": "bf16_compress_hook",
    "powersgd": "powerSGD_hook of rank 1 with error feedback, after two steps without it",
}


class Exchange:
    """Averages gradients as DDP does - scaled, copied into flat buckets, all-reduced - but all at once.

    Buckets follow DDP's order (last layers first) and sizes, so that `comm_only` measures
    what the native step has to hide.
    """

    def __init__(self, parameters: Sequence[Tensor], ddp: Any, group: Any = None) -> None:
        """`ddp` has the sizes. The buckets are allocated when they are first needed: a native run has DDP's own."""
        self._parameters = list(reversed(parameters))
        self._limits = limits_of(ddp)
        self._group = group
        self._scale = 1.0 / dist.get_world_size(group)
        self._flats: List[Tensor] = []  # a bucket each
        self._views: List[Tensor] = []  # a parameter each, into the buckets
        self._local: List[Any] = []  # this rank's own gradients

    def average(self) -> None:
        """Replace every `.grad` by the ranks' average; asked again, it averages the same gradients again."""
        if not self._flats:
            for bucket in buckets(self._parameters, self._limits):
                numbers = sum(parameter.numel() for parameter in bucket)
                flat = torch.zeros(numbers, dtype=bucket[0].dtype, device=bucket[0].device)
                begin = 0
                for parameter in bucket:
                    # With the parameter's own strides: a gradient in channels_last is copied straight.
                    self._views.append(flat.as_strided(parameter.size(), parameter.stride(), begin))
                    begin += parameter.numel()
                self._flats.append(flat)
        if not self._local:
            self._local = [parameter.grad for parameter in self._parameters]
        self._exchange()
        for parameter, view in zip(self._parameters, self._views):
            parameter.grad = view

    def forget(self) -> None:
        """Drop the local gradients: the next `average` takes new ones."""
        self._local = []

    def _exchange(self) -> None:
        for view, gradient in zip(self._views, self._local):
            torch.mul(gradient, self._scale, out=view)
        for work in [dist.all_reduce(flat, group=self._group, async_op=True) for flat in self._flats]:
            work.wait()


class Averaging(TorchTrainer):
    """A trainer whose stage `communicate` is an exchange of gradients, where several ranks have them."""

    _exchange: Optional[Exchange] = None

    def communicate(self) -> None:
        """All-reduce flat buckets."""
        if self._exchange is not None:
            self._exchange.average()

    def update(self) -> None:
        """Update, and have the next exchange take new gradients."""
        super().update()
        if self._exchange is not None:
            self._exchange.forget()


def compression_hook(name: str, waits: bool) -> Tuple[Any, Any]:
    """Return torch's communication hook of a knob's value with a new state: (state, hook)."""
    if name == "powersgd":
        # Two steps are the fewest that its error feedback and warm start allow; torch's own default is 1000.
        state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=1, start_powerSGD_iter=2)
        return state, waiting if waits else powerSGD_hook.powerSGD_hook
    return None, getattr(default_hooks, f"{name}_compress_hook")


def waiting(state: Any, bucket: Any) -> Any:
    """Compress by PowerSGD over gloo, one bucket after the other.

    A bucket takes three exchanges, two of them asked for in call-backs. gloo pairs exchanges by
    the order in which each rank asks, and its few threads would all wait in call-backs.
    """
    future = powerSGD_hook.powerSGD_hook(state, bucket)
    future.wait()
    return future


# DDP looks at the hints of what it is given; they name a class that cannot be imported everywhere.
waiting.__annotations__.clear()


class CompressedExchange(Exchange):
    """An exchange of the buckets through a compression's hook, which also averages."""

    def __init__(self, parameters: Sequence[Tensor], ddp: Any, hook: Tuple[Any, Any]) -> None:
        super().__init__(parameters, ddp)
        self._state, self._hook = hook
        self._buckets: List[HookBucket] = []

    def _exchange(self) -> None:
        if not self._buckets:
            views = iter(self._views)
            for index, bucket in enumerate(buckets(self._parameters, self._limits)):
                self._buckets.append(HookBucket(self._flats[index], [next(views) for _ in bucket], index))
            self._buckets[-1].is_last = lambda: True
        for view, gradient in zip(self._views, self._local):
            view.copy_(gradient)
        for future in [self._hook(self._state, bucket) for bucket in self._buckets]:
            future.wait()


class HookBucket:
    """The part of torch.distributed.GradBucket that hooks ask for; only DDP can make a real one."""

    def __init__(self, flat: Tensor, views: List[Tensor], index: int) -> None:
        self.buffer = lambda: flat  # the gradients one after the other
        self.gradients = lambda: views  # in their shapes
        self.index = lambda: index
        self.is_last = lambda: False


def limits_of(ddp: Any) -> Tuple[int, ...]:
    """Return the bytes after which a DistributedDataParallel closes its buckets: the first one, the others."""
    # A first bucket that is small lets the exchange begin early. Older releases of torch always make one,
    # newer ones where bucket_cap_mb is not set, and their DDP remembers which.
    small_first = getattr(ddp, "bucket_bytes_cap_default", True)
    return (dist._DEFAULT_FIRST_BUCKET_BYTES,) * small_first + (ddp.bucket_bytes_cap,)


def buckets(tensors: Sequence[Tensor], limits: Sequence[int]) -> List[List[Tensor]]:
    """Join neighbours until a bucket has reached its limit in bytes, DDP's rule; the last limit is the rest's too."""
    result: List[List[Tensor]] = []
    room = 0
    for tensor in tensors:
        if room <= 0:
            room = limits[min(len(result), len(limits) - 1)]
            result.append([])
        result[-1].append(tensor)
        room -= tensor.numel() * tensor.element_size()
    return result
