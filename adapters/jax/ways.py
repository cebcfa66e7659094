"""How a setup wants its layers computed: in which precision, and which of XLA's operations give way to `fast`."""

from typing import NamedTuple

from adapters.jax.precision import BY_NAME, Arithmetic
from suite.worker.contract import Setup


class Ways(NamedTuple):
    """The choices that `lower` knows."""

    arithmetic: Arithmetic = BY_NAME["float32"]
    for_cpus: bool = False  # everything that `fast` has: it was measured on CPUs, and GPUs have cuDNN
    compared: bool = False  # max pooling by comparisons

    @property
    def words(self) -> str:
        """For a record's notes."""
        if self.for_cpus:
            return "products of matrices where faster, groups one by one, pooling by comparisons"
        pooling = "lax.reduce_window" + (", max pooling by comparisons" if self.compared else "")
        return "lax.conv_general_dilated, " + pooling


def ways_of(setup: Setup) -> Ways:
    """`tuned` on a CPU takes everything of `fast`.

    XLA adds up the gradients of max pooling by a scatter with atomics. It makes no such operation deterministic, or
    (since jaxlib 0.11) a slow loop; comparisons are deterministic by themselves.
    """
    for_cpus = setup.tuned and setup.device == "cpu"
    deterministic = setup.knobs.get("deterministic", "off") == "on"
    return Ways(BY_NAME[setup.precision], for_cpus, for_cpus or deterministic)
