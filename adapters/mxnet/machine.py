"""Devices and versions."""

from typing import Any, Callable, Dict, List

import mxnet as mx

from suite.worker.contract import Setup, Unavailable
from suite.worker.gpus import own_devices
from suite.worker.peaks import Yardstick


def contexts(setup: Setup) -> List[Any]:
    """This rank's devices; Unavailable names what is missing.

    On a CPU they are workers of MXNet's engine: each runs its own operators with
    `setup.threads` threads of OpenMP (OMP_NUM_THREADS, which the launcher sets).
    """
    if setup.device == "cpu":
        return [mx.cpu(number) for number in range(setup.devices)]
    if not mx.runtime.Features().is_enabled("CUDA"):
        raise Unavailable(
            "no CUDA device: MXNet %s is built without CUDA; install an mxnet-cu wheel and name its interpreter with "
            "--python mxnet=/path/to/python, or ask for device = 'cpu'" % mx.__version__
        )
    return [mx.gpu(number) for number in own_devices(setup, mx.context.num_gpus())]


def yardstick(setup: Setup, devices: List[Any]) -> Yardstick:
    def everywhere(shape: Any, dtype: str, work: Callable[[Any], Any]) -> Callable[[], Any]:
        values = [mx.nd.ones(shape, ctx=device, dtype=dtype) for device in devices]
        return lambda: [work(value) for value in values]

    return Yardstick(
        "MXNet " + mx.__version__,
        lambda side: everywhere((side, side), setup.precision, lambda value: mx.nd.dot(value, value)),
        lambda size: everywhere(size, "uint8", lambda value: value.copy()),
    )


def versions() -> Dict[str, str]:
    features = mx.runtime.Features()
    built = [name for name in ("MKLDNN", "CUDA", "CUDNN", "BLAS_OPEN", "BLAS_MKL") if features.is_enabled(name)]
    return {"mxnet": mx.__version__, "built with": ", ".join(built)}
