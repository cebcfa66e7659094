"""Devices and what is placed on them; versions."""

from typing import Any, Dict, List, Sequence

import mxnet as mx
import numpy as np

from stagebench.suite.worker.contract import Setup
from stagebench.suite.worker.gpus import no_cuda, own_devices
from stagebench.suite.worker.peaks import Yardstick, on_devices

Array = Any  # mx.nd.NDArray; images (samples, channels, height, width), weights OIHW and (out, in)
ByDevice = List[List[Array]]  # by parameter, in forward order, and device

# mxnet-cu112 1.9.1 has, by cuobjdump, code for 5.0, 6.0, 7.0, 8.0 and 8.6, and no PTX that a newer GPU could compile.
OLDER = "those of mxnet-cu112 are for compute capability 5.0 to 8.9 (Maxwell to Ada, not Hopper); take such a GPU"


def contexts(setup: Setup) -> List[Any]:
    """Return this rank's devices; Unavailable names what is missing.

    On a CPU they are workers of MXNet's engine: each runs its operators with `setup.threads` threads of OpenMP
    (OMP_NUM_THREADS, which the launcher sets).
    """
    if setup.device == "cpu":
        return [mx.cpu(number) for number in range(setup.devices)]
    if not mx.runtime.Features().is_enabled("CUDA"):
        raise no_cuda(
            f"MXNet {mx.__version__} is built without CUDA",
            "make its environment with the wheel for GPUs: stagebench env make mxnet --gpu",
        )
    visible = mx.context.num_gpus()
    if not visible:
        raise no_cuda(f"MXNet {mx.__version__} finds none", "see whether nvidia-smi lists a device and its driver")
    own = [mx.gpu(number) for number in own_devices(setup, visible)]
    for gpu in own:
        try:
            mx.nd.ones((1,), ctx=gpu).wait_to_read()
        except mx.MXNetError as error:
            if "no kernel image" not in str(error):  # cudaErrorNoKernelImageForDevice
                raise
            raise no_cuda(f"MXNet {mx.__version__} has no kernels for this GPU's architecture", OLDER)
    return own


def placed(values: Any, context: Any, dtype: str) -> Any:
    """Copy an array to a device, unless it is there already."""
    if isinstance(values, np.ndarray):
        return mx.nd.array(values, ctx=context, dtype=dtype)
    return values.astype(dtype, copy=False).as_in_context(context)


def like(arrays: ByDevice) -> ByDevice:
    return [[mx.nd.zeros_like(each) for each in devices] for devices in arrays]


def wait_for(arrays: ByDevice) -> None:
    """Wait until the engine has written all arrays."""
    for devices in arrays:
        there(devices)


def there(arrays: Sequence[Any]) -> None:
    """Wait until the engine has written each array."""
    for array in arrays:
        array.wait_to_read()


def yardstick(setup: Setup, devices: List[Any]) -> Yardstick:
    def put(array: Any, dtype: str, device: Any) -> Any:
        return mx.nd.array(array, ctx=device, dtype=dtype)

    def product(value: Any) -> Any:
        return mx.nd.dot(value, value)

    return on_devices(f"MXNet {mx.__version__}", setup.precision, devices, put, product, mx.nd.NDArray.copy)


def versions() -> Dict[str, str]:
    features = mx.runtime.Features()
    built = [name for name in ("MKLDNN", "CUDA", "CUDNN", "BLAS_OPEN", "BLAS_MKL") if features.is_enabled(name)]
    return {"mxnet": mx.__version__, "built with": ", ".join(built)}
