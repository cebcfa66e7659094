"""Which device computes, how it rounds, and which libraries it has."""

import platform
from typing import Any, Callable, Dict

import numpy as np
import torch

from suite.worker.contract import Setup
from suite.worker.gpus import no_cuda, own_devices
from suite.worker.peaks import Yardstick
from suite.worker.tuning import chosen

DTYPES = {"float32": torch.float32, "tf32": torch.float32, "float64": torch.float64}  # by precision, of what is stored


def prepare(setup: Setup) -> Any:
    """Set threads and device; Unavailable says what this machine lacks."""
    torch.set_num_threads(setup.threads)
    return _cuda(setup) if setup.device == "cuda" else torch.device("cpu")


def _cuda(setup: Setup) -> Any:
    if not torch.cuda.is_available():
        if torch.version.cuda:
            built, remedy = "for CUDA %s" % torch.version.cuda, "see whether nvidia-smi lists a device and its driver"
        else:
            built, remedy = "without CUDA", "install a PyTorch that is built with it"
        raise no_cuda("PyTorch %s is built %s" % (torch.__version__, built), remedy)
    device = torch.device("cuda", own_devices(setup, torch.cuda.device_count())[0])
    torch.cuda.set_device(device)
    # TF32 rounds what is multiplied to 11 bits: it is not the float32 that a record names.
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = setup.precision == "tf32"
    deterministic = setup.knobs.get("deterministic") == "on"
    # What is timed anew in every run may choose another algorithm in each.
    tuned = "off" if deterministic else "on"
    torch.backends.cudnn.benchmark = chosen(setup, "cudnn_autotune", default="off", tuned=tuned) == "on"
    if deterministic:
        torch.use_deterministic_algorithms(True)
        torch.utils.deterministic.fill_uninitialized_memory = False  # nothing here reads memory before it is written
    return device


def yardstick(setup: Setup, device: Any) -> Yardstick:
    def product(side: int) -> Callable[[], Any]:
        matrix = torch.rand(side, side, device=device).to(DTYPES[setup.precision])
        return lambda: torch.mm(matrix, matrix)

    def copy(size: int) -> Callable[[], Any]:
        there, here = (torch.ones(size, dtype=torch.uint8, device=device) for _ in range(2))
        return lambda: there.copy_(here)

    return Yardstick("torch " + str(torch.__version__), product, copy)


def versions(device: Any) -> Dict[str, str]:
    found = {"torch": str(torch.__version__), "python": platform.python_version(), "numpy": np.__version__}
    if device.type == "cuda":
        found.update(cuda=str(torch.version.cuda), cudnn=str(torch.backends.cudnn.version()))
        found["gpu"] = torch.cuda.get_device_name(device)
    return found
