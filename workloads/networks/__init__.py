"""The built-in workloads: one small file per network, and their list."""

from typing import Dict

from stagebench.workloads.catalogue import Optimiser, Workload
from stagebench.workloads.networks.alexnet import alexnet
from stagebench.workloads.networks.googlenet import googlenet
from stagebench.workloads.networks.gpt import gpt2, gpt_char
from stagebench.workloads.networks.mnist import mnist_large, mnist_small, mnist_stated
from stagebench.workloads.networks.resnet import resnet50, resnet152
from stagebench.workloads.networks.vit import vit_ti16

BUILT_IN = [
    Workload("alexnet", alexnet, Optimiser(0.01, 128, 0.9, 5e-4), "imagenet-like", 2, 0.01, "Krizhevsky 2012"),
    Workload("googlenet", googlenet, Optimiser(0.01, 32, 0.9, 2e-4), "imagenet-like", 2, 0.01, "Szegedy 2014"),
    Workload("resnet50", resnet50, Optimiser(0.1, 256, 0.9, 1e-4), "imagenet-like", 2, 1e-4, "He 2015, v1.5"),
    Workload("resnet152", resnet152, Optimiser(0.1, 256, 0.9, 1e-4), "imagenet-like", 2, 1e-5, "He 2015, v1.5"),
    Workload("vit_ti16", vit_ti16, Optimiser(0.1, 256, 0.9, 1e-4), "imagenet-like", 2, 0.05, "Dosovitskiy 2021"),
    Workload("gpt_char", gpt_char, Optimiser(0.1, 64, 0.9, 1e-4), "python-topics", 4, 0.05, "Radford 2019, small"),
    Workload("gpt2", gpt2, Optimiser(0.1, 64, 0.9, 1e-4), "python-topics", 1, 0.05, "Radford 2019", large=True),
    Workload("mnist_small", mnist_small, Optimiser(0.01, 64, 0.9, 0.0), "digits", 8, 0.01, "data-parallel article"),
    Workload("mnist_large", mnist_large, Optimiser(0.01, 64, 0.9, 0.0), "digits", 8, 0.01, "data-parallel article"),
    Workload("mnist_stated", mnist_stated, Optimiser(0.01, 64, 0.9, 0.0), "digits", 8, 0.01, "the article's text"),
]


def by_name() -> Dict[str, Workload]:
    """Return the built-in workloads by name."""
    return {workload.name: workload for workload in BUILT_IN}
