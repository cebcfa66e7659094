"""Device, threads, versions."""

import ctypes
import os
from typing import Any, Dict

from adapters.cntk.framework import cntk as C  # noqa: N812 - the name everybody gives it
from suite.worker.contract import Setup

TUNED = {
    "relu": "x * (x > 0)",
    "convolution": "1x1 as a matrix product, else MKL",
    "lrn": "product with a band matrix, roots",
}
DEFAULT = {"relu": "cntk.relu", "convolution": "cntk.convolution", "lrn": "cntk.local_response_normalization"}


def prepare(setup: Setup) -> Any:
    device = C.device.cpu()
    C.device.try_set_default_device(device)
    C.cntk_py.set_max_num_cputhreads(setup.threads)
    return device


def versions() -> Dict[str, str]:
    found = {"cntk": C.__version__}
    text = ctypes.create_string_buffer(256)
    ctypes.CDLL("libmklml_intel.so").MKL_Get_Version_String(text, len(text))
    found["mkl"] = text.value.decode().strip()
    return found


def notes(setup: Setup) -> Dict[str, Any]:
    chosen: Dict[str, Any] = dict(TUNED if setup.tuned else DEFAULT)
    chosen["MKL_DEBUG_CPU_TYPE"] = os.environ.get("MKL_DEBUG_CPU_TYPE", "not set")
    return chosen
