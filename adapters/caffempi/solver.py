"""Caffe's solver: v <- m*v + g + wd*w, w <- w - lr*v, for every parameter alike.

Caffe itself keeps lr inside the velocity; this is the form that stagebench's contract
fixes, equal to Caffe's while lr stays the same.

Oldest Python: 3.6.
"""

import torch

from adapters.caffempi.arena import Arena, Span
from suite.worker.trainer import Optimiser


class Solver:
    """Updates any span of the flat buffers in one pass over memory."""

    def __init__(self, arena: Arena, optimiser: Optimiser) -> None:
        """The arena's buffers are updated in place."""
        self._arena, self._optimiser = arena, optimiser

    @torch.inference_mode()
    def update(self, span: Span) -> None:
        """One update of a span of all parameters, from its gradients."""
        if span.begin == span.end:
            return
        arena, optimiser = self._arena, self._optimiser
        part = slice(span.begin, span.end)
        torch._fused_sgd_(
            [arena.parameters[part]],
            [arena.gradients[part]],
            [arena.velocities[part]] if optimiser.momentum else [],
            weight_decay=optimiser.weight_decay,
            momentum=optimiser.momentum,
            lr=optimiser.lr,
            dampening=0.0,
            nesterov=False,
            maximize=False,
            is_first_step=False,
        )
