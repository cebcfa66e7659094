"""The settings of a case's optimiser, from its name and its workload."""

from typing import Any

from suite.contracts.case import Configuration
from workloads.catalogue import Workload

NAMES = ("sgd", "adam")
ADAM = {
    "lr": 1e-3,
    "momentum": 0.0,
    "beta1": 0.9,
    "beta2": 0.999,
    "epsilon": 1e-7,
}  # Kingma and Ba 2014; Keras' epsilon


def settings(name: str, workload: Workload, global_batch: int, lr: float | None = None) -> dict[str, Any]:
    """Return the optimiser's fields of a `Configuration`, by name.

    Without `lr`, SGD has the workload's rate, scaled linearly with the global batch (in samples), and Adam has 0.001.
    """
    usual = workload.optimiser
    if name == "adam":
        values = {**ADAM, "weight_decay": usual.weight_decay}
    else:
        scaled = usual.lr * global_batch / usual.reference_batch
        values = {"lr": scaled, "momentum": usual.momentum, "weight_decay": usual.weight_decay}
    return {"optimiser": name, **values, **({} if lr is None else {"lr": lr})}


def for_proof(case: Configuration, workload: Workload) -> float:
    """Return the learning rate of a case's proof: the workload's, for Adam 0.001 at most.

    The length of Adam's steps is its rate, whatever the gradients are.
    """
    return min(ADAM["lr"], workload.proof_lr) if case.optimiser == "adam" else workload.proof_lr
