"""What a precision means to torch: the types that layers compute in, and how a loss is scaled."""

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
    """Of losses, whose gradients would else be nothing in float16; one that does nothing in every other precision."""
    return torch.amp.GradScaler(setup.device, FIRST_SCALE, enabled=setup.precision == "float16")
