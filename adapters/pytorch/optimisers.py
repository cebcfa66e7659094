"""The contract's update rules by torch.optim."""

import math
from typing import Any, Callable, List, Optional, Sequence, Tuple

import torch
from torch import Tensor

from stagebench.suite.worker.contract import Adam, Optimiser, decay_of
from stagebench.suite.worker.trainer import Notes


class KerasAdam(torch.optim.Adam):
    """torch's Adam or AdamW with its epsilon next to sqrt(v), as Keras and the contract have it.

    torch corrects v before it adds epsilon: sqrt(v / (1 - beta2^t)) + eps. With eps = epsilon /
    sqrt(1 - beta2^t) that is (sqrt(v) + epsilon) / sqrt(1 - beta2^t), the contract's rule to the last bit or two.
    """

    def __init__(self, parameters: List[Any], rule: Adam, fused: Optional[bool]) -> None:
        """Every constant is passed: torch has defaults of its own."""
        self._rule = rule
        self._updates = 0
        super().__init__(
            parameters,
            lr=rule.lr,
            betas=(rule.beta1, rule.beta2),
            eps=rule.epsilon,
            weight_decay=rule.weight_decay,
            amsgrad=False,
            fused=fused,
            decoupled_weight_decay=rule.decoupled,
        )

    def step(self, closure: Optional[Callable[[], Any]] = None) -> Any:
        self._updates += 1
        for group in self.param_groups:
            group["eps"] = self._rule.epsilon / math.sqrt(1.0 - self._rule.beta2**self._updates)
        return super().step(closure)


def arguments(rule: Optimiser, fused: bool) -> Tuple[Any, Notes]:
    """Return the optimiser's class and its arguments after the parameters.

    Fused is one pass over a parameter and its state instead of several.
    """
    if isinstance(rule, Adam):
        return KerasAdam, {"rule": rule, "fused": fused or None}
    options = {"lr": rule.lr, "momentum": rule.momentum, "weight_decay": rule.weight_decay}
    return torch.optim.SGD, dict(options, fused=fused or None)


def groups(parameters: List[Tensor], rule: Optimiser) -> List[Any]:
    """Return the parameters as torch.optim takes them: those without weight decay, if any, in a group of their own."""
    spared = [parameter for parameter in parameters if decay_of(rule, parameter.shape) != rule.weight_decay]
    if not spared:
        return parameters
    decayed = [parameter for parameter in parameters if decay_of(rule, parameter.shape) == rule.weight_decay]
    return [{"params": decayed}, {"params": spared, "weight_decay": 0.0}]


def make_optimiser(parameters: List[Tensor], rule: Optimiser, fused: bool, skips: bool = False) -> Any:
    """Return torch's optimiser that follows a rule over these parameters; `skips`: its first update may be left out.

    The fused kernel makes velocities without filling them, and leaves them so where it skips: they begin at 0 then,
    from where the first update is the same.
    """
    kind, options = arguments(rule, fused)
    made = kind(groups(parameters, rule), **options)
    if skips and options.get("momentum"):
        for parameter in parameters:
            made.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
    return made


def norm_of(gradients: Sequence[Tensor]) -> Tensor:
    """Return the global norm in float64, of shares (DTensors) the whole's; of no gradient 0."""
    by_kind = [[each for each in gradients if hasattr(each, "full_tensor") == shared] for shared in (False, True)]
    found = [torch.nn.utils.get_total_norm(each) for each in by_kind if each] or [torch.zeros(())]
    norms = [norm.full_tensor() if hasattr(norm, "full_tensor") else norm for norm in found]
    return torch.linalg.vector_norm(torch.stack(norms).double())


def clip(gradients: Sequence[Tensor], norm: Tensor, most: float) -> None:
    """Scale gradients of this norm down to `most`; torch.nn.utils.clip_grad_norm_ would add 1e-6 to the norm."""
    factor = (most / norm).clamp(max=1.0).to(gradients[0].dtype)
    torch._foreach_mul_([getattr(each, "_local_tensor", each) for each in gradients], factor)


def described(rule: Optimiser, fused: bool) -> str:
    name = "torch.optim.SGD"
    if isinstance(rule, Adam):
        name = f"torch.optim.Adam{'W' * rule.decoupled}, eps scaled to the contract's rule"
    return name + ", fused" * fused
