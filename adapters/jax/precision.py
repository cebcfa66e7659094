"""JAX's types and exactness by precision, and the choice of operations: decided here alone.

* `lax.Precision` matters for float32 alone, and XLA's libraries on GPUs differ in it: cuDNN's convolutions and cuBLAS's
  products take TF32 unless it is HIGHEST, Triton's products take it with DEFAULT only. So TF32 is DEFAULT.
* Mixed precision does what torch.autocast does: convolutions and matrix products have their inputs cast and return
  that type, and layers between keep it. Sums over many numbers, powers and the loss are computed in float32, in
  which parameters, gradients, running statistics and the optimiser's state are stored.
"""

from typing import Any, Dict, NamedTuple

import jax.numpy as jnp
from jax import lax

from suite.worker.contract import Setup


class Arithmetic(NamedTuple):
    """The types and the exactness of one precision."""

    words: str
    stored: str = "float32"  # the type of parameters, gradients, statistics, images and loss
    product: str = "float32"  # the type that convolutions and products of matrices take and give
    exactness: lax.Precision = lax.Precision.DEFAULT
    scaled: bool = False  # gradients would vanish in the type of the products, so the loss is scaled

    def cast(self, tensor: Any) -> Any:
        """Cast a tensor to the type of a product's inputs."""
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
    """Cast to float32 at least: half precision has too few digits for sums and powers."""
    return tensor.astype(jnp.promote_types(tensor.dtype, jnp.float32))


class Choices(NamedTuple):
    """The choices that `lower` knows."""

    arithmetic: Arithmetic = BY_NAME["float32"]
    for_cpus: bool = False  # everything in `kernels`: it was measured on CPUs, and GPUs have cuDNN
    compared: bool = False  # max pooling by comparisons

    @property
    def words(self) -> str:
        """The lowering in words, for a record's notes."""
        if self.for_cpus:
            return "products of matrices where faster, groups one by one, pooling by comparisons"
        pooling = "lax.reduce_window" + (", max pooling by comparisons" if self.compared else "")
        return "lax.conv_general_dilated, " + pooling


def choices_of(setup: Setup) -> Choices:
    """Return the choices of a setup: `tuned` on a CPU takes everything in `kernels`.

    XLA adds up the gradients of max pooling by a scatter with atomics. It refuses to make that deterministic, or (since
    jaxlib 0.11) makes it a slow loop; comparisons are deterministic anyway.
    """
    for_cpus = setup.tuned and setup.device == "cpu"
    deterministic = setup.knobs.get("deterministic", "off") == "on"
    return Choices(BY_NAME[setup.precision], for_cpus, for_cpus or deterministic)
