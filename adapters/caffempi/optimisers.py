"""Caffe's solvers, over any span of the flat buffers in one pass over memory.

SGD: v <- m*v + g + wd*w, w <- w - lr*v. Caffe itself keeps lr inside the velocity; this is the
form that stagebench's contract fixes, equal to Caffe's while lr stays the same. Adam and AdamW: as
`stagebench.suite.worker.contract.Adam` says; Caffe's Adam has the same order, and keeps weight decay in the gradient
too.
"""

import math
from typing import Any, Dict, List

import torch

from stagebench.adapters.caffempi.net import Span
from stagebench.suite.worker.contract import Adam, Optimiser, decay_of


class Momentum:
    """SGD, of an Arena or whatever has its three buffers and `shapes`: they are updated in place."""

    def __init__(self, arena: Any, rule: Any) -> None:
        self._arena = arena
        self._rule = rule
        self._by_decay: Dict[Span, Dict[float, List[slice]]] = {}

    def begin(self) -> None:
        """All spans that are updated from now on belong to the next update."""

    @torch.inference_mode()
    def clip(self) -> None:
        """Scale all gradients down to the rule's global norm, if it has one; the gaps between them are 0."""
        if self._rule.clip:
            gradients = self._arena.gradients
            gradients.mul_((self._rule.clip / torch.linalg.vector_norm(gradients)).clamp(max=1.0))

    def set_rate(self, rate: float) -> None:
        self._rule = self._rule._replace(lr=rate)

    @torch.inference_mode()
    def update(self, span: Span) -> None:
        """Update a span of all parameters from its gradients."""
        if span not in self._by_decay:
            self._by_decay[span] = self._parts(span)
        for decay, parts in self._by_decay[span].items():
            self._apply(decay, parts)

    def _parts(self, span: Span) -> Dict[float, List[slice]]:
        """Return the parts of a span by their weight decay: neighbours that have the same are one."""
        found: Dict[float, List[slice]] = {}
        for place, shape in self._arena.shapes:
            begin, end = max(place.begin, span.begin), min(place.end, span.end)
            if begin < end:
                parts = found.setdefault(decay_of(self._rule, shape), [])
                if parts and parts[-1].stop == begin:
                    begin = parts.pop().start
                parts.append(slice(begin, end))
        return found

    def _apply(self, decay: float, parts: List[slice]) -> None:
        arena, rule = self._arena, self._rule
        torch._fused_sgd_(
            [arena.parameters[part] for part in parts],
            [arena.gradients[part] for part in parts],
            [arena.velocities[part] for part in parts] if rule.momentum else [],
            weight_decay=decay,
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

    def _apply(self, decay: float, parts: List[slice]) -> None:
        arena, rule = self._arena, self._rule
        kernel = torch._fused_adamw_ if rule.decoupled else torch._fused_adam_
        kernel(
            [arena.parameters[part] for part in parts],
            [arena.gradients[part] for part in parts],
            [arena.velocities[part] for part in parts],
            [self._squares[part] for part in parts],
            [],
            [self._updates] * len(parts),
            lr=rule.lr,
            beta1=rule.beta1,
            beta2=rule.beta2,
            weight_decay=decay,
            eps=self._epsilon,
            amsgrad=False,
            maximize=False,
        )


def solver_of(arena: Any, rule: Optimiser) -> Momentum:
    """Return the solver of a rule."""
    return AdamSolver(arena, rule) if isinstance(rule, Adam) else Momentum(arena, rule)
