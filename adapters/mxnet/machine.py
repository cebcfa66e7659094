"""Devices and versions."""

from typing import Any, Dict, List

import mxnet as mx

from suite.worker.contract import Setup
from suite.worker.gpus import no_cuda, own_devices
from suite.worker.peaks import Yardstick, on_devices


def contexts(setup: Setup) -> List[Any]:
    """This rank's devices; Unavailable names what is missing.

    On a CPU they are workers of MXNet's engine: each runs its own operators with
    `setup.threads` threads of OpenMP (OMP_NUM_THREADS, which the launcher sets).
    """
    if setup.device == "cpu":
        return [mx.cpu(number) for number in range(setup.devices)]
    if not mx.runtime.Features().is_enabled("CUDA"):
        raise no_cuda(
            "MXNet %s is built without CUDA" % mx.__version__,
            "install an mxnet-cu wheel and name its interpreter with --python mxnet=/path/to/python",
        )
    return [mx.gpu(number) for number in own_devices(setup, mx.context.num_gpus())]


def yardstick(setup: Setup, devices: List[Any]) -> Yardstick:
    def put(array: Any, dtype: str, device: Any) -> Any:
        return mx.nd.array(array, ctx=device, dtype=dtype)

    def product(value: Any) -> Any:
        return mx.nd.dot(value, value)

    return on_devices("MXNet " + mx.__version__, setup.precision, devices, put, product, mx.nd.NDArray.copy)


def versions() -> Dict[str, str]:
    features = mx.runtime.Features()
    built = [name for name in ("MKLDNN", "CUDA", "CUDNN", "BLAS_OPEN", "BLAS_MKL") if features.is_enabled(name)]
    return {"mxnet": mx.__version__, "built with": ", ".join(built)}
