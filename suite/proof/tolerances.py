"""How far a framework may be from the float64 oracle, and why where it is further than usual.

Relative errors: |a - b| / |b| on the loss, ‖a - b‖ / ‖b‖ per tensor.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Tolerance:
    """Bounds of one precision (and, where it needs more, one workload)."""

    loss: float
    tensor: float  # logits, gradients, parameters
    movement: float  # parameters after the updates minus before: what a small learning rate cannot hide
    reason: str = ""


BY_PRECISION = {
    "float64": Tolerance(1e-9, 1e-9, 1e-6),
    "float32": Tolerance(2e-6, 1e-5, 1e-3),
}


def tolerance(precision: str, workload: str) -> Tolerance:
    """The bounds for a proof."""
    return LOOSER.get((precision, workload)) or BY_PRECISION[precision]


# Looser bounds, each with its reason.
LOOSER: dict[tuple[str, str], Tolerance] = {}
