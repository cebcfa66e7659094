"""Batches on their way to a GPU while it computes: a stream of their own, and two places that take turns.

A copy that is queued behind a step waits for it, though the copy engine is idle. On a stream of its own it begins at
once; a place is written again only when the step that had it is done, so a host that runs ahead fills no memory.
"""

from typing import Any, Dict, List, Sequence

import torch

PLACES = 2  # one that a step computes with, one that is filled meanwhile


class Copies:
    """To one GPU."""

    def __init__(self, device: torch.device) -> None:
        self._device, self._stream = device, torch.cuda.Stream(device)
        self._places: Dict[Any, List[torch.Tensor]] = {}
        self._read: List[Any] = [None] * PLACES  # by place: an event, reached when nobody reads it any more
        self._batches = 0

    def batch(self, *hosts: torch.Tensor) -> Sequence[torch.Tensor]:
        """Its tensors on the device, for what is queued next: a later batch will lie in the same memory."""
        computing, place = torch.cuda.current_stream(self._device), self._batches % PLACES
        self._read[place - 1] = computing.record_event()  # what is queued so far reads the batch before, no later one
        if self._read[place] is not None:
            self._stream.wait_event(self._read[place])
        there = [self._room(number, host)[place] for number, host in enumerate(hosts)]
        with torch.cuda.stream(self._stream):
            for room, host in zip(there, hosts):
                room.copy_(host, non_blocking=True)
        computing.wait_stream(self._stream)
        self._batches += 1
        return there

    def _room(self, number: int, host: torch.Tensor) -> List[torch.Tensor]:
        key = (number, host.dtype, tuple(host.shape))
        if key not in self._places:
            self._places[key] = [torch.empty_like(host, device=self._device) for _ in range(PLACES)]
            # The memory may still be in use on the computing stream, for which it was given out.
            self._stream.wait_stream(torch.cuda.current_stream(self._device))
        return self._places[key]
