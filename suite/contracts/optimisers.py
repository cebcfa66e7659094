"""What a case's optimiser is set to, from its name and its workload."""

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
    """The case's fields. Without `lr` SGD takes the workload's, scaled linearly with the global batch; Adam 0.001."""
    usual = workload.optimiser
    if name == "adam":
        values = {**ADAM, "weight_decay": usual.weight_decay}
    else:
        scaled = usual.lr * global_batch / usual.reference_batch
        values = {"lr": scaled, "momentum": usual.momentum, "weight_decay": usual.weight_decay}
    return {"optimiser": name, **values, **({} if lr is None else {"lr": lr})}


def for_proof(case: Configuration, workload: Workload) -> float:
    """The learning rate of a proof: Adam's steps are as long as its rate, whatever the gradients."""
    return min(ADAM["lr"], workload.proof_lr) if case.optimiser == "adam" else workload.proof_lr
