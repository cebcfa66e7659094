"""The memory that MPI sends a flat buffer from, and the copies there and back.

`Host`: the buffer lies in host memory, and is sent from where it lies. `Pinned`: it lies on a GPU; pieces are copied
to a mirror in pinned host memory as they are complete, sent from there, and copied back as they arrive, all during what
the GPU computes. `Device`: it lies on a GPU, and an MPI library that is CUDA-aware takes it from there.

All of them: `values` is what MPI is given; `leave` is called when the device has been asked to compute some spans of
the buffer, `left` says whether one may be sent by now, `arrived` is called when it has been received.
"""

import ctypes
from collections import deque
from typing import Any, Deque, Dict, List, NamedTuple, Tuple

import torch

from stagebench.adapters.caffempi.net import Flat, Span
from stagebench.adapters.caffempi.transfer import MPI
from stagebench.suite.worker.contract import Unavailable
from stagebench.suite.worker.layers import middle
from stagebench.suite.worker.rendezvous import named

RECENT = 5  # copies of a span whose seconds are kept

Copy = NamedTuple("Copy", [("begin", Any), ("end", Any)])  # CUDA events around it


class Host:
    """A buffer in host memory."""

    words = ""  # for the record's notes, where the buffer lies on a device

    def __init__(self, flat: Flat) -> None:
        """`flat` is a one-dimensional tensor."""
        self.values: Any = flat.numpy()

    def leave(self, spans: List[Span]) -> None:
        """No-op: on processors the spans are complete."""

    def left(self, span: Span) -> bool:
        return True

    def arrived(self, span: Span) -> None:
        """No-op on processors: the span is received in place."""

    def copying_s(self) -> float:
        """Seconds that the copies of the whole buffer take, there and back."""
        return 0.0


class Lane:
    """Copies one after the other on a CUDA stream of their own, next to the stream that computes."""

    def __init__(self, device: Any) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)

    def follow(self) -> None:
        """Copies from now on come after all that the device has been asked to compute so far."""
        self._stream.wait_stream(torch.cuda.current_stream(self._device))

    def copy(self, there: Any, here: Any) -> Copy:
        found = Copy(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True))
        with torch.cuda.stream(self._stream):
            found.begin.record()
            there.copy_(here, non_blocking=True)
            found.end.record()
        return found

    def lead(self, copy: Copy) -> None:
        """Let all that the device is asked to compute from now on wait for this copy."""
        torch.cuda.current_stream(self._device).wait_event(copy.end)

    def done(self, copy: Copy) -> bool:
        return reached(copy.end, self._device)

    def seconds(self, copy: Copy) -> float:
        """Return the seconds of a copy, waiting for it."""
        copy.end.synchronize()
        return float(copy.begin.elapsed_time(copy.end)) / 1e3


class Pinned(Host):
    """A GPU's buffer and its mirror in pinned host memory."""

    words = "staged through pinned host memory"

    def __init__(self, flat: Flat, returns: bool = True, lanes: Any = None) -> None:
        """`returns`: whether what arrives is copied back. `lanes`: the ways out and back, two Lanes by default."""
        self._flat = flat
        self._returns = returns
        self._mirror = torch.empty(flat.shape, dtype=flat.dtype, pin_memory=flat.is_cuda)
        self.values = self._mirror.numpy()
        self._out: Any
        self._back: Any
        self._out, self._back = lanes or (Lane(flat.device), Lane(flat.device))
        self._leaving: Dict[int, Copy] = {}  # the last one, by the span's begin
        self._recent: Dict[Tuple[Any, int], Deque[Copy]] = {}

    def leave(self, spans: List[Span]) -> None:
        self._out.follow()
        for span in spans:
            part = slice(span.begin, span.end)
            copy = self._out.copy(self._mirror[part], self._flat[part])
            self._leaving[span.begin] = self._kept(self._out, span, copy)

    def left(self, span: Span) -> bool:
        return bool(self._out.done(self._leaving[span.begin]))

    def arrived(self, span: Span) -> None:
        """Copy the span back during the rest of the backward, and let all that follows wait for the copy."""
        if self._returns:
            part = slice(span.begin, span.end)
            copy = self._back.copy(self._flat[part], self._mirror[part])
            self._back.lead(self._kept(self._back, span, copy))

    def copying_s(self) -> float:
        """The sum over the spans, each the median of its last copies; waits for these."""
        return sum(middle([lane.seconds(copy) for copy in copies]) for (lane, _), copies in self._recent.items())

    def _kept(self, lane: Any, span: Span, copy: Any) -> Any:
        self._recent.setdefault((lane, span.begin), deque(maxlen=RECENT)).append(copy)
        return copy


class Device(Host):
    """A GPU's buffer, for an MPI library that is CUDA-aware."""

    words = "device memory, handed to MPI"

    def __init__(self, flat: Flat) -> None:
        self.values = flat
        self._device = flat.device
        self._written: Dict[int, Any] = {}  # events, by the span's begin

    def leave(self, spans: List[Span]) -> None:
        written = torch.cuda.Event()
        written.record(torch.cuda.current_stream(self._device))
        self._written.update((span.begin, written) for span in spans)

    def left(self, span: Span) -> bool:
        """MPI knows of no streams: what it sends must be complete."""
        return reached(self._written[span.begin], self._device)


def reached(event: Any, device: Any) -> bool:
    # A thread that no device was chosen in makes its queries on the first one, and would begin a context there.
    with torch.cuda.device(device):
        return bool(event.query())


def check(staging: str) -> None:
    """Unavailable where device memory is to be handed to an MPI library that takes none."""
    if staging == "none" and not cuda_aware():
        raise Unavailable(
            f"staging = 'none' hands device memory to MPI, and {named(MPI.Get_library_version())} is not "
            "CUDA-aware here; take an MPI library that is built with CUDA, or staging = 'pinned'"
        )


def cuda_aware() -> bool:
    """Ask the MPI library whether it takes device memory; Open MPI and MPICH have a function for it."""
    try:
        return bool(ctypes.CDLL(MPI.__file__).MPIX_Query_cuda_support())  # found in what the module is linked with
    except (OSError, AttributeError):
        return False
