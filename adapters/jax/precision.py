"""What a precision means to JAX: the types that are stored and multiplied, and how exactly; the one place that decides.

* `lax.Precision` matters for float32 alone, and XLA's ways on GPUs differ in it: cuDNN's convolutions and cuBLAS's
  products take TF32 unless it is HIGHEST, Triton's products take it with DEFAULT only. So TF32 is DEFAULT.
* Mixed precision is what torch.autocast does: convolutions and products of matrices have their inputs cast and hand
  that type on, and layers between keep it. Sums over many numbers, powers and the loss are computed in float32, in
  which parameters, gradients, running statistics and the optimiser's state are stored.
"""

from typing import Any, Dict, NamedTuple

import jax.numpy as jnp
from jax import lax


class Arithmetic(NamedTuple):
    """Of one precision."""

    words: str
    stored: str = "float32"  # the type of parameters, gradients, statistics, images and loss
    product: str = "float32"  # the type that convolutions and products of matrices take and give
    exactness: lax.Precision = lax.Precision.DEFAULT
    scaled: bool = False  # whether gradients would vanish in the type of the products, so that the loss is scaled

    def cast(self, tensor: Any) -> Any:
        """As an input of a product."""
        return tensor.astype(self.product)


BY_NAME: Dict[str, Arithmetic] = {
    "float32": Arithmetic("lax.Precision.HIGHEST", exactness=lax.Precision.HIGHEST),
    "float64": Arithmetic("lax.Precision.HIGHEST", "float64", "float64", lax.Precision.HIGHEST),
    "tf32": Arithmetic("lax.Precision.DEFAULT of float32: TF32 where the device has it"),
    "bfloat16": Arithmetic(
        "mixed: convolutions and products in bfloat16, the rest stored in float32", product="bfloat16"
    ),
    "float16": Arithmetic(
        "mixed: convolutions and products in float16, the rest stored in float32; dynamic loss scaling",
        product="float16",
        scaled=True,
    ),
}


def wide(tensor: Any) -> Any:
    """In float32 at least: half precision has no digits to spare for sums and powers."""
    return tensor.astype(jnp.promote_types(tensor.dtype, jnp.float32))
