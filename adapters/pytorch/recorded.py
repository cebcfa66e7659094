"""A whole training step recorded as a CUDA graph: what launches its kernels is then the GPU, not Python.

A recording wants everything to lie where it will lie, so steps are run before it, as torch's documentation has it; on
the stream that records, since autograd remembers on which one it has summed up gradients. They train: what they
changed is put back before the first step that counts.
"""

from typing import Any, Callable, Dict, List

import torch

from suite.worker.contract import Batch

WARM = 3  # steps before the recording, in which cuDNN and the optimiser make what they keep


class RecordedStep:
    """A step on batches of one shape, replayed."""

    def __init__(
        self, step: Callable[[Any], torch.Tensor], batch: Batch, state: Callable[[], List[torch.Tensor]]
    ) -> None:
        """`step` trains with a batch and returns its loss; `state` gives what that changes, as far as it is there yet.

        What the first steps make anew (momentum) is 0 then, from where the optimiser's rule takes its first step, too.
        """
        self._batch = Batch(*(part.clone() for part in batch))
        # Detached: a clone that autograd knows would keep its nodes, which go by the stream they were made on.
        masks, kept = torch.cuda.get_rng_state(), {each.data_ptr(): each.detach().clone() for each in state()}
        beside = torch.cuda.Stream()
        beside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(beside):
            for _ in range(WARM):
                step(self._batch)
        torch.cuda.current_stream().wait_stream(beside)
        self._graph = torch.cuda.CUDAGraph()
        # Threads that pin batches may continue during the recording.
        with torch.cuda.graph(self._graph, stream=beside, capture_error_mode="thread_local"):
            self.loss = step(self._batch)
        put_back(kept, state())
        torch.cuda.set_rng_state(masks)

    def takes(self, batch: Batch) -> bool:
        """Return whether a batch has the recorded one's shape."""
        return bool(batch.images.shape == self._batch.images.shape)

    def __call__(self, batch: Batch) -> None:
        """Train with this batch; `loss` is its loss when that is done."""
        for place, values in zip(self._batch, batch):
            place.copy_(values)
        self._graph.replay()


@torch.no_grad()
def put_back(kept: Dict[int, torch.Tensor], now: List[torch.Tensor]) -> None:
    """Restore the values at these addresses, and set new tensors to 0."""
    for tensor in now:
        if tensor.data_ptr() in kept:
            tensor.copy_(kept[tensor.data_ptr()])
        else:
            tensor.zero_()


def state_of(network: torch.nn.Module, optimiser: torch.optim.Optimizer) -> List[torch.Tensor]:
    """Return all tensors that a step changes and that exist by now."""
    kept = [value for values in optimiser.state.values() for value in values.values()]
    return [*network.parameters(), *network.buffers(), *(each for each in kept if isinstance(each, torch.Tensor))]
