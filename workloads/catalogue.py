"""The workloads by name: graph, optimiser defaults, what the input is.

Oldest Python: 3.6; standard library only.
"""

from typing import Callable, Dict, NamedTuple

from workloads.graph import Graph
from workloads.networks.alexnet import alexnet
from workloads.networks.googlenet import googlenet
from workloads.networks.mnist import mnist_large, mnist_small
from workloads.networks.resnet50 import resnet50
from workloads.preprocessing import PHOTOGRAPHS, Preprocessing


class Optimiser(NamedTuple):
    """SGD with momentum, as the network's authors trained it."""

    lr: float  # at reference_batch; scaled linearly with the global batch (Goyal et al. 2017)
    reference_batch: int
    momentum: float
    weight_decay: float


class Workload(NamedTuple):
    """A network with all that belongs to training it."""

    name: str
    graph: Callable[[], Graph]
    optimiser: Optimiser
    dataset: str  # what real input means here: "imagenet-like" or "digits"
    proof_batch: int  # samples per rank in a proof
    proof_lr: float  # makes the three updates of a proof large, yet does not blow the loss up
    source: str
    preprocessing: Preprocessing = PHOTOGRAPHS  # of photographs; digits are scaled to mean 0 and deviation 1 as a set


BUILT_IN = [
    Workload("alexnet", alexnet, Optimiser(0.01, 128, 0.9, 5e-4), "imagenet-like", 2, 0.01, "Krizhevsky 2012"),
    Workload("googlenet", googlenet, Optimiser(0.01, 32, 0.9, 2e-4), "imagenet-like", 2, 0.01, "Szegedy 2014"),
    Workload("resnet50", resnet50, Optimiser(0.1, 256, 0.9, 1e-4), "imagenet-like", 2, 1e-4, "He 2015, v1.5"),
    Workload("mnist_small", mnist_small, Optimiser(0.01, 64, 0.9, 0.0), "digits", 8, 0.01, "data-parallel article"),
    Workload("mnist_large", mnist_large, Optimiser(0.01, 64, 0.9, 0.0), "digits", 8, 0.01, "data-parallel article"),
]


def by_name() -> Dict[str, Workload]:
    """The built-in workloads, keyed by name."""
    return {workload.name: workload for workload in BUILT_IN}
