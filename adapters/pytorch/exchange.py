"""The staged exchange of gradients.

Oldest Python: 3.6.
"""

from typing import Any, List, Sequence, Tuple

import torch
import torch.distributed as dist


class Exchange:
    """Averages gradients as DDP does - scaled, copied into flat buckets, all-reduced - but all at once.

    Buckets follow DDP's order (last layers first) and sizes, so that `comm_only` measures
    what the native step has to hide.
    """

    def __init__(
        self, parameters: Sequence[torch.Tensor], limits: Tuple[int, ...], group: Any = None, compression: Any = None
    ) -> None:
        """`limits`: see `buckets`. The buckets are allocated when they are first needed: a native run has DDP's own."""
        self._parameters, self._group, self._compression = list(reversed(parameters)), group, compression
        self._scale = 1.0 / dist.get_world_size(group)
        self._flats: List[torch.Tensor] = []
        self._views: List[torch.Tensor] = []
        self._local: List[torch.Tensor] = []
        self._limits = limits

    def average(self) -> None:
        """Replace every `.grad` by the ranks' average; asked again, it averages the same gradients again."""
        if not self._flats:
            for bucket in buckets(self._parameters, self._limits):
                self._allocate(bucket)
        if not self._local:
            self._local = [parameter.grad for parameter in self._parameters]  # type: ignore[misc]
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

    def _allocate(self, bucket: List[torch.Tensor]) -> None:
        flat = torch.zeros(sum(x.numel() for x in bucket), dtype=bucket[0].dtype, device=bucket[0].device)
        begin = 0
        for parameter in bucket:
            # With the parameter's own strides: a gradient in channels_last is copied straight.
            self._views.append(flat.as_strided(parameter.size(), parameter.stride(), begin))
            begin += parameter.numel()
        self._flats.append(flat)


class CompressedExchange(Exchange):
    """The same buckets through one of torch's communication hooks, which average by themselves."""

    _state: Any = None
    _hook: Any = None
    _given: Any = None

    def _exchange(self) -> None:
        if self._given is None:
            self._state, self._hook = self._compression.hook()
            self._given = given(self._flats, self._views)
        for view, gradient in zip(self._views, self._local):
            view.copy_(gradient)
        for future in [self._hook(self._state, bucket) for bucket in self._given]:
            future.wait()


class GivenBucket:
    """What a hook asks of a torch.distributed.GradBucket, which only DDP can make."""

    def __init__(self, flat: torch.Tensor, views: List[torch.Tensor], index: int, last: bool) -> None:
        """`views` are the gradients in `flat`."""
        self._flat, self._views, self._index, self._last = flat, views, index, last

    def buffer(self) -> torch.Tensor:
        """The gradients one after the other."""
        return self._flat

    def gradients(self) -> List[torch.Tensor]:
        """The same in their shapes."""
        return self._views

    def index(self) -> int:
        """Which bucket of the exchange it is."""
        return self._index

    def is_last(self) -> bool:
        """Whether the exchange ends with it."""
        return self._last


def given(flats: List[torch.Tensor], views: List[torch.Tensor]) -> List[GivenBucket]:
    """The buckets with their gradients, told apart by the memory that they lie in."""
    owned = {flat.data_ptr(): [] for flat in flats}  # type: dict
    for view in views:
        owned[view.untyped_storage().data_ptr()].append(view)
    last = len(flats) - 1
    return [GivenBucket(flat, owned[flat.data_ptr()], i, i == last) for i, flat in enumerate(flats)]


def limits_of(ddp: Any) -> Tuple[int, ...]:
    """The bytes after which a DistributedDataParallel closes its buckets: the first one, the others."""
    # A first bucket that is small lets the exchange begin early. Older releases of torch always make one,
    # newer ones where nobody set bucket_cap_mb, and their DDP remembers which.
    small_first = getattr(ddp, "bucket_bytes_cap_default", True)
    return (dist._DEFAULT_FIRST_BUCKET_BYTES,) * small_first + (ddp.bucket_bytes_cap,)


def buckets(tensors: Sequence[torch.Tensor], limits: Sequence[int]) -> List[List[torch.Tensor]]:
    """Neighbours joined until a bucket has reached its limit in bytes, DDP's rule; the last limit is the rest's too."""
    result: List[List[torch.Tensor]] = []
    room = 0
    for tensor in tensors:
        if room <= 0:
            room = limits[min(len(result), len(limits) - 1)]
            result.append([])
        result[-1].append(tensor)
        room -= tensor.numel() * tensor.element_size()
    return result
