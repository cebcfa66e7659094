"""Caffe's solvers, over any span of the flat buffers in one pass over memory.

SGD: v <- m*v + g + wd*w, w <- w - lr*v. Caffe itself keeps lr inside the velocity; this is the
form that stagebench's contract fixes, equal to Caffe's while lr stays the same. Adam and AdamW: as
`suite.worker.contract.Adam` says; Caffe's Adam has the same order, and keeps weight decay in the gradient too.
"""

import math
from typing import Any

import torch

from adapters.caffempi.net import Span
from suite.worker.contract import Adam, Optimiser


class Momentum:
    """SGD, of an Arena or whatever has its three buffers: they are updated in place."""

    def __init__(self, arena: Any, rule: Any) -> None:
        self._arena = arena
        self._rule = rule

    def begin(self) -> None:
        """All spans that are updated from now on belong to the next update."""

    def set_rate(self, rate: float) -> None:
        self._rule = self._rule._replace(lr=rate)

    @torch.inference_mode()
    def update(self, span: Span) -> None:
        """Update a span of all parameters from its gradients."""
        if span.begin == span.end:
            return
        arena = self._arena
        rule = self._rule
        part = slice(span.begin, span.end)
        torch._fused_sgd_(
            [arena.parameters[part]],
            [arena.gradients[part]],
            [arena.velocities[part]] if rule.momentum else [],
            weight_decay=rule.weight_decay,
            momentum=rule.momentum,
            lr=rule.lr,
            dampening=0.0,
            nesterov=False,
            maximize=False,
            is_first_step=False,
        )


class AdamSolver(Momentum):
    """Adam or AdamW; the arena's velocities are its first moments, the second ones are its own."""

    def __init__(self, arena: Any, rule: Adam) -> None:
        super().__init__(arena, rule)
        self._squares = torch.zeros_like(arena.velocities)
        # Counted here, and where the operator reads it: its own type, exact up to 2^24.
        self._update = 0
        self._updates = torch.zeros((), dtype=torch.float32, device=arena.velocities.device)
        self._epsilon = 0.0

    def begin(self) -> None:
        self._update += 1
        self._updates += 1
        # The operator adds its epsilon to sqrt(v) / sqrt(1 - beta2^t), the rule to sqrt(v).
        self._epsilon = self._rule.epsilon / math.sqrt(1.0 - self._rule.beta2**self._update)

    @torch.inference_mode()
    def update(self, span: Span) -> None:
        if span.begin == span.end:
            return
        arena = self._arena
        rule = self._rule
        part = slice(span.begin, span.end)
        kernel = torch._fused_adamw_ if rule.decoupled else torch._fused_adam_
        kernel(
            [arena.parameters[part]],
            [arena.gradients[part]],
            [arena.velocities[part]],
            [self._squares[part]],
            [],
            [self._updates],
            lr=rule.lr,
            beta1=rule.beta1,
            beta2=rule.beta2,
            weight_decay=rule.weight_decay,
            eps=self._epsilon,
            amsgrad=False,
            maximize=False,
        )


def solver_of(arena: Any, rule: Optimiser) -> Momentum:
    """Return the solver of a rule."""
    return AdamSolver(arena, rule) if isinstance(rule, Adam) else Momentum(arena, rule)
