"""CNTK itself, imported without its usual warnings; device, threads, versions.

CNTK is retired: 2.7 (2019) knows Ubuntu 16.04 only, and looks for the libraries of GPUs, which nothing here uses, and
of its image reader, whose absence `imagemap` reports. All its other warnings stay warnings.
"""

import ctypes
import os
import warnings
from typing import Any, Dict

import numpy as np

from stagebench.suite.worker.contract import Setup
from stagebench.suite.worker.trainer import Notes

USUAL_WARNINGS = ("Unsupported Linux distribution", "\n\n#+ Missing optional dependency")

with warnings.catch_warnings():
    for usual in USUAL_WARNINGS:
        warnings.filterwarnings("ignore", usual, UserWarning)
    # CNTK's own sources, compiled on a fresh installation: escapes in docstrings, "is" with literals.
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    import cntk

__all__ = ["cntk", "decoders", "notes", "number", "placed", "prepare", "versions"]

OPENMP = "libiomp5.so"  # CNTK's, loaded already
TUNED = {
    "relu": "x * (x > 0)",
    "convolution": "1x1 as a matrix product, else MKL",
    "lrn": "product with a band matrix, roots",
}
DEFAULT = {"relu": "cntk.relu", "convolution": "cntk.convolution", "lrn": "cntk.local_response_normalization"}


def prepare(setup: Setup) -> Any:
    device = cntk.device.cpu()
    cntk.device.try_set_default_device(device)
    cntk.cntk_py.set_max_num_cputhreads(setup.threads)
    return device


def number(setup: Setup) -> Any:
    """Return the type of all numbers of a network."""
    return np.float64 if setup.precision == "float64" else np.float32


def placed(values: Any, dtype: Any, device: Any) -> Any:
    """Convert an array, or CNTK's view of what it has read (always float32), to a network's type."""
    if isinstance(values, cntk.cntk_py.NDArrayView):
        if dtype == np.float32:
            return values
        values = values.asarray()
    return cntk.NDArrayView.from_data(np.ascontiguousarray(values, dtype=dtype), device)


def decoders(readers: int, threads: int) -> None:
    """Give `readers` threads to the decoders that CNTK starts from now on, without changing this thread's number.

    Every batch is decoded by a new thread with OpenMP's default, which was read from the environment before this code
    ran.
    """
    ctypes.CDLL(OPENMP).kmp_set_defaults(b"OMP_NUM_THREADS=%d" % readers)
    cntk.cntk_py.set_max_num_cputhreads(threads)


def versions() -> Dict[str, str]:
    found = {"cntk": cntk.__version__}
    text = ctypes.create_string_buffer(256)
    ctypes.CDLL("libmklml_intel.so").MKL_Get_Version_String(text, len(text))
    found["mkl"] = text.value.decode().strip()
    return found


def notes(setup: Setup) -> Notes:
    chosen: Dict[str, Any] = dict(TUNED if setup.tuned else DEFAULT)
    chosen["MKL_DEBUG_CPU_TYPE"] = os.environ.get("MKL_DEBUG_CPU_TYPE", "not set")
    return chosen
