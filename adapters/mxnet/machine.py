"""Devices and versions."""

from typing import Any, Dict, List

import mxnet as mx

from suite.worker.contract import Setup, Unavailable


def contexts(setup: Setup) -> List[Any]:
    """This rank's devices; Unavailable names what is missing.

    On a CPU they are workers of MXNet's engine: each runs its own operators with
    `setup.threads` threads of OpenMP (OMP_NUM_THREADS, which the launcher sets).
    """
    if setup.device == "cpu":
        return [mx.cpu(number) for number in range(setup.devices)]
    first, have = setup.local_rank * setup.devices, mx.context.num_gpus()
    if not mx.runtime.Features().is_enabled("CUDA"):
        raise Unavailable(
            "no CUDA device: MXNet %s is built without CUDA; install an mxnet-cu wheel and name its interpreter with "
            "--python mxnet=/path/to/python, or ask for device = 'cpu'" % mx.__version__
        )
    if first + setup.devices > have:
        raise Unavailable(
            "local rank %d wants %d device(s) of its own and this host has %d for all of its ranks; ask for fewer "
            "ranks or devices, or for device = 'cpu'" % (setup.local_rank, setup.devices, have)
        )
    return [mx.gpu(first + number) for number in range(setup.devices)]


def versions() -> Dict[str, str]:
    features = mx.runtime.Features()
    built = [name for name in ("MKLDNN", "CUDA", "CUDNN", "BLAS_OPEN", "BLAS_MKL") if features.is_enabled(name)]
    return {"mxnet": mx.__version__, "built with": ", ".join(built)}
