"""A workload: graph, optimiser defaults, input. `workloads.networks` has the built-in ones.

Standard library only.
"""

from typing import Callable, NamedTuple

from workloads.graph import Graph
from workloads.preprocessing import PHOTOGRAPHS, Preprocessing


class Optimiser(NamedTuple):
    """SGD with momentum, as the network's authors trained it."""

    lr: float  # at reference_batch; scaled linearly with the global batch (Goyal et al. 2017)
    reference_batch: int
    momentum: float
    weight_decay: float


class Workload(NamedTuple):
    """A network, and everything needed to train it."""

    name: str
    graph: Callable[[], Graph]
    optimiser: Optimiser
    dataset: str  # the kind of real data: "imagenet-like" or "digits"
    proof_batch: int  # samples per rank in a proof
    proof_lr: float  # makes the three updates of a proof large, without divergence of the loss
    source: str
    preprocessing: Preprocessing = PHOTOGRAPHS  # of photographs; digits are scaled to mean 0 and deviation 1 as a set
