"""The largest distances of a framework from the float64 oracle: fixed ones, and those that rounding alone causes.

Relative errors: |a - b| / |b| on the loss, ‖a - b‖ / ‖b‖ per tensor.

**Kinks.** A large network has millions of ReLUs and pooling windows. Rounding to float32 moves some pre-activation
across 0, or makes another element of a window the largest, and then a whole path of the gradient appears or vanishes:
one pooling winner of AlexNet is worth about 1e-3 of a gradient. With softplus and average pooling in their place
AlexNet, GoogLeNet and ResNet-50 agree within 1e-5. So in float32 a flip looks like a mistake, and the network itself
shows how large one is: the oracle runs once more with every layer's result, forward and backward, rounded to BITS. Its
worst gradient, and the worst of PyTorch on a CPU, which rounds at other places (SGD):

| workload | 16 bits | float32 | 11 bits | float16 | 8 bits | bfloat16 |
|---|---|---|---|---|---|---|
| mnist_small | 1e-3 | | 2e-2 | 2e-2 | 5e-2 | 9e-2 |
| AlexNet | 4e-2 | 2e-2 | 2e-1 | 2e-1 | 5e-1 | 5e-1 |
| GoogLeNet | 2e-2 | 3e-3 | 1e-1 | 1e-1 | 3e-1 | 3e-1 |
| ResNet-50 | 4e-2 | 3e-2 | 2e-1 | 3e-1 | 6e-1 | 7e-1 |

A sum of thousands of products rounds many times in float32, so 16 bits stand for its 24. A framework may be off by
TIMES what rounding alone did, and never by more than MOST, where a tensor still has its direction. Such bounds hold
only if the framework's float64 run is within the fixed ones: nothing flips there.

**Losses** are as exact as a library's exponential and logarithm. MXNet's softmax is off by 1.6e-6 of a loss of 0.7,
from logits within 6e-7, and by 2.3e-6 after two updates (in float64: 3e-9); the other frameworks' by 8e-8.
"""

import math
from dataclasses import asdict, dataclass

from stagebench.suite.errors import RequestError
from stagebench.suite.worker.messages import Proof

# The significant bits to which the oracle's results are rounded for a precision whose bounds may come from rounding.
BITS = {"float32": 16, "tf32": 11, "float16": 11, "bfloat16": 8}
TIMES, MOST = 2.0, 0.8


@dataclass(frozen=True)
class Tolerance:
    """The bounds of a proof, as relative errors."""

    loss: float  # of the first iteration
    later_loss: float  # after an update and after two
    logits: float  # and running statistics of the first forward
    gradient: float
    parameter: float
    movement: float  # the sum of the updates: there a small learning rate hides no error
    predict: float  # the logits in inference mode, after the updates

    def of(self, what: str) -> float:
        """Return the bound of one kind of finding, such as "native parameter"."""
        kind = what.split()[-1]
        return float(getattr(self, "logits" if kind == "statistics" else kind))

    def widened(self, rounded: "Tolerance") -> "Tolerance":
        """Return the larger of each bound and TIMES what rounding alone did, MOST at most."""
        far = asdict(rounded)
        return Tolerance(**{name: max(own, min(MOST, TIMES * far[name])) for name, own in asdict(self).items()})


FIXED = {
    "float64": Tolerance(1e-9, 1e-7, 1e-6, 1e-6, 1e-6, 1e-6, 1e-5),
    "float32": Tolerance(5e-6, 1e-5, 1e-5, 1e-5, 1e-5, 1e-3, 1e-4),
    # The loss itself may be computed in the short format.
    "tf32": Tolerance(5e-3, 5e-2, 2e-2, 2e-2, 1e-2, 2e-2, 2e-2),
    "float16": Tolerance(5e-3, 5e-2, 2e-2, 2e-2, 1e-2, 2e-2, 2e-2),
    "bfloat16": Tolerance(2e-2, 1e-1, 5e-2, 5e-2, 1e-2, 5e-2, 5e-2),
}


def tolerance(precision: str) -> Tolerance:
    """Return the fixed bounds of a precision; RequestError for one that has none."""
    if precision not in FIXED:
        raise RequestError(
            f"no proof of precision {precision!r}: it has no bounds in suite/proofs/tolerances.py, "
            f"{', '.join(FIXED)} have; use one of those, or measure without proofs (--no-proofs)"
        )
    return FIXED[precision]


def distances(proof: Proof) -> Tolerance:
    """Return the largest distances of each kind in the proof of one rank."""
    losses = [
        math.inf if ours is None or theirs is None else abs(ours - theirs) / abs(theirs)
        for ours, theirs in zip(proof.losses.staged, proof.losses.oracle, strict=True)
    ]

    def worst(*kinds: str) -> float:
        return max((error for kind in kinds for error in proof.errors.get(kind, {}).values()), default=0.0)

    return Tolerance(
        loss=losses[0],
        later_loss=max(losses[1:]),
        logits=worst("logits", "statistics"),
        gradient=worst("gradient"),
        parameter=worst("staged parameter", "native parameter"),
        movement=worst("staged movement", "native movement"),
        predict=worst("predict"),
    )
