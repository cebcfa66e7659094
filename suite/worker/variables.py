"""Variables of the environment that change what is computed, or with which library.

A proof holds only where these are the same: they are part of its key, and every rank reports those that it has.
"""

from typing import Dict, Mapping

from suite.worker.job import THREADS

ARITHMETIC = (
    *("BLIS_", "CUBLAS_", "CUDA_", "CUDNN_", "DNNL_", "GLIBC_TUNABLES", "JAX_", "KMP_"),
    *("LD_LIBRARY_PATH", "LD_PRELOAD", "MALLOC_", "MKL_", "MXNET_", "NVIDIA_TF32_OVERRIDE", "OMP_"),
    *("ONEDNN_", "OPENBLAS_", "PYTORCH_", "TCMALLOC_", "TF_", "TORCH_", "XLA_"),
)
# Among them those that say where or how many, and not how; the number of threads is the placement's.
ELSEWHERE = ("CUDA_VISIBLE_DEVICES", "TF_CONFIG", "TF_CPP_MIN_LOG_LEVEL", "TORCH_HOME", *THREADS)


def arithmetic(variables: Mapping[str, str]) -> Dict[str, str]:
    """Those of an environment, by name."""
    return {
        name: value
        for name, value in sorted(variables.items())
        if name.startswith(ARITHMETIC) and name not in ELSEWHERE
    }
