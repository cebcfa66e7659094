"""A precision in torch: the types that layers compute in, and the scale of a loss."""

from typing import Any

import torch

from suite.worker.contract import Setup

# The narrow type that autocast computes convolutions and products in; parameters and gradients stay float32.
MIXED = {"bfloat16": torch.bfloat16, "float16": torch.float16}

# Of losses. torch begins with 65536, with which small batches' gradients overflow: first steps that train nothing.
FIRST_SCALE = 1024.0


def stored(precision: str) -> torch.dtype:
    """The type of parameters, gradients and images."""
    return torch.float64 if precision == "float64" else torch.float32


def multiplied(precision: str) -> torch.dtype:
    """The type of what convolutions and products take; TF32 is float32 that the hardware rounds."""
    return MIXED.get(precision, stored(precision))


def scaler(setup: Setup) -> Any:
    """Return a scaler of losses, whose gradients would vanish in float16; in other precisions it does nothing."""
    return torch.amp.GradScaler(setup.device, FIRST_SCALE, enabled=setup.precision == "float16")
