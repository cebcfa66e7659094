"""The largest distances of a framework from the float64 oracle, and the reasons for those above the usual ones.

Relative errors: |a - b| / |b| on the loss, ‖a - b‖ / ‖b‖ per tensor.

**Kinks.** A large network has millions of ReLUs and pooling windows. Rounding to float32
moves some pre-activation across 0, or makes another element of a window the largest,
and then a whole path of the gradient appears or vanishes: one pooling winner of AlexNet
is worth about 1e-3 of a gradient. PyTorch's own float32 differs from its own float64 by
2e-2 (AlexNet's first layer), 3e-3 (GoogLeNet) and 3e-2 (ResNet-50, where batch statistics
over few samples spread every flip); with softplus and average pooling in their place all three
agree within 1e-5. So for those networks float32 cannot tell a mistake from a flip, and
identity is proven in float64, where nothing flips: an adapter gets the looser bounds
only when its float64 run is within the strict ones. mnist_large has a few millions of them when four devices take 32
samples together: one flip, the same in every framework, moved its gradients by 1e-3.

**Losses** are as exact as a library's exponential and logarithm. MXNet's softmax is off by 1.6e-6 of a loss of 0.7,
from logits within 6e-7, and by 2.3e-6 after two updates (in float64: 3e-9); the other frameworks' by 8e-8.

**Adam** divides a gradient by its own size: where a flip changed a small gradient, the step is as wrong as if it had
been a large one. PyTorch's float32 differs from its own float64 (within 4e-8 of the oracle on GoogLeNet) by, at worst:

| workload | movement | median of movements | parameter | later loss |
|---|---|---|---|---|
| AlexNet | 2e-1 | 2e-2 | 3e-2 | 8e-4 |
| GoogLeNet | 8e-2 | 3e-2 | 4e-3 | 5e-4 |
| ResNet-50 | 1e-1 | 7e-2 | 7e-4 | 4e-5 |
| mnist_small | 5e-6 | 2e-6 | 6e-7 | 6e-8 |

Without millions of kinks nothing flips: mnist_small and mnist_stated keep the usual bounds.

**Short formats** flip far more kinks. On one CPU core PyTorch's were off by, at worst:

| workload | bfloat16: gradient | movement | float16: gradient | movement |
|---|---|---|---|---|
| AlexNet | 5e-1 | 4e-1 | 2e-1 | 1e-1 |
| GoogLeNet | 3e-1 | 2e-1 | 1e-1 | 9e-2 |
| ResNet-50 | 7e-1 | 7e-1 | 3e-1 | 4e-1 |
| mnist_small | 9e-2 | 8e-2 | 2e-2 | 2e-2 |

ResNet-50's parameters by 8e-2: the shifts of its normalisations begin at 0 and are all movement. Without float64 these
proofs show only that the losses are right, the logits nearly so, and that the gradients have the same direction: half a
gradient would be within such bounds, and only float64 finds it. CPUs have no TF32: its bounds are float16's.

**Devices.** All of this was found on CPUs. On GPUs cuDNN's Winograd convolutions and sums by atomics round in other
ways. On an H100 the bounds held for PyTorch, JAX and the Caffe-MPI-style trainer (ResNet-50, AlexNet, GoogLeNet).
A tensor used at most 44 % of its bound in float32, 25 % in TF32, 39 % in float16 and 78 % in bfloat16; in float64 no
tensor was off by more than 4.1e-8 (docs/gpu.md).
"""

from dataclasses import dataclass, replace

from suite.errors import RequestError


@dataclass(frozen=True)
class Tolerance:
    """The bounds of one precision, or of one workload in it, as relative errors."""

    loss: float  # of the first iteration
    later_loss: float  # after an update and after two
    tensor: float  # logits
    gradient: float
    parameter: float
    movement: float  # the sum of the updates: there a small learning rate hides no error
    reason: str = ""  # why it is looser than its precision requires; float64 must then prove identity
    evidence: str = ""  # a caveat; "": the bounds were measured on this kind of device, in this precision

    def of(self, what: str) -> float:
        """Return the bound of one kind of finding, such as "native parameter"."""
        kind = what.split()[-1]
        if kind == "predict":  # after the updates: a flip among them shows in its logits, too
            return self.movement if self.reason else 10 * self.tensor
        if kind in ("parameter", "statistics"):
            return self.parameter
        return {"gradient": self.gradient, "movement": self.movement}.get(kind, self.tensor)


# Precisions, by kind of device. CPUs have no TF32.
MEASURED = {"cpu": ("float64", "float32", "float16", "bfloat16"), "cuda": ("float64", "float32")}
BY_PRECISION = {
    "float64": Tolerance(1e-9, 1e-7, 1e-6, 1e-6, 1e-6, 1e-6),
    "float32": Tolerance(5e-6, 1e-5, 1e-5, 1e-5, 1e-5, 1e-3),
}

KINKS = "float32 rounding flips ReLU signs and pooling winners; identity is proven in float64"
TF32 = "TF32 keeps 11 bits of what it multiplies; " + KINKS
FLOAT16 = "float16 keeps 11 bits; " + KINKS
BFLOAT16 = "bfloat16 keeps 8 bits; " + KINKS

LOOSER = {
    ("float32", "mnist_large"): Tolerance(5e-6, 1e-5, 1e-5, 5e-3, 1e-5, 1e-2, KINKS),
    ("float32", "alexnet"): Tolerance(5e-6, 1e-4, 1e-5, 5e-2, 1e-5, 5e-2, KINKS),
    ("float32", "googlenet"): Tolerance(5e-6, 1e-4, 1e-5, 2e-2, 5e-5, 5e-2, KINKS),
    ("float32", "resnet50"): Tolerance(5e-6, 1e-4, 2e-5, 5e-2, 5e-5, 5e-2, KINKS),
    ("float32", "resnet152"): Tolerance(5e-6, 1e-4, 2e-5, 5e-2, 5e-5, 5e-2, KINKS),
    ("tf32", "*"): Tolerance(5e-3, 5e-2, 2e-2, 5e-1, 1e-2, 5e-1, TF32),
    ("float16", "*"): Tolerance(5e-3, 5e-2, 2e-2, 5e-1, 1e-2, 5e-1, FLOAT16),
    ("bfloat16", "*"): Tolerance(2e-2, 1e-1, 5e-2, 7e-1, 1e-2, 7e-1, BFLOAT16),
    **{
        (precision, workload): Tolerance(loss, later, tensor, 8e-1, 1e-1, 8e-1, reason)
        for workload in ("resnet50", "resnet152")
        for precision, loss, later, tensor, reason in (
            ("tf32", 5e-3, 5e-2, 2e-2, TF32),
            ("float16", 5e-3, 5e-2, 2e-2, FLOAT16),
            ("bfloat16", 2e-2, 1e-1, 5e-2, BFLOAT16),
        )
    },
}
ADAM = "Adam makes steps of gradients that a flip changed as long as the others"


def tolerance(precision: str, workload: str, optimiser: str = "sgd", device: str = "cpu") -> Tolerance:
    """Return the bounds for a proof; RequestError for a precision without bounds."""
    found = _tolerance(precision, workload)
    if precision not in MEASURED.get(device, ()):
        unmeasured = f"the bounds were found on CPUs: nobody has measured {precision} on {device} yet"
        found = replace(found, evidence=unmeasured)
    if optimiser != "adam" or not found.reason:
        return found
    return replace(
        found,
        later_loss=max(found.later_loss, 5e-3),
        parameter=max(found.parameter, 1e-1),
        movement=max(found.movement, 5e-1),
        reason=f"{found.reason}; {ADAM}",
    )


def _tolerance(precision: str, workload: str) -> Tolerance:
    found = LOOSER.get((precision, workload)) or LOOSER.get((precision, "*")) or BY_PRECISION.get(precision)
    if found is None:
        bounded = sorted({*BY_PRECISION, *(name for name, where in LOOSER if where == "*")})
        raise RequestError(
            f"no proof of precision {precision!r}: it has no bounds in suite/proofs/tolerances.py, "
            f"{', '.join(bounded)} have; use one of those, or measure without proofs (--no-proofs)"
        )
    return found
