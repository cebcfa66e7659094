"""Variables of the environment that change what is computed, or with which library, or how ranks exchange.

A proof holds only where the first are the same: they are part of its key. Every rank reports all that it has.
"""

import os
import re
from typing import Dict, Mapping, Tuple

from suite.worker.job import THREADS

ARITHMETIC = (
    *("BLIS_", "CUBLAS_", "CUDA_", "CUDNN_", "DNNL_", "GLIBC_TUNABLES", "JAX_", "KMP_"),
    *("LD_LIBRARY_PATH", "LD_PRELOAD", "MALLOC_", "MKL_", "MXNET_", "NVIDIA_TF32_OVERRIDE", "OMP_"),
    *("ONEDNN_", "OPENBLAS_", "PYTORCH_", "TCMALLOC_", "TF_", "TORCH_", "XLA_"),
)
# Among them those that say where or how many, and not how; the number of threads is the placement's.
ELSEWHERE = ("CUDA_VISIBLE_DEVICES", "TF_CONFIG", "TF_CPP_MIN_LOG_LEVEL", "TORCH_HOME", *THREADS)
# Libraries of communication; of Open MPI's not those by which its daemons find each other.
COMMUNICATION = (
    *("OMPI_MCA_btl", "OMPI_MCA_coll", "OMPI_MCA_mpi_yield", "OMPI_MCA_mtl", "OMPI_MCA_pml"),
    *("FI_", "GLOO_", "HOROVOD_", "MPICH_", "MPIR_CVAR_", "NCCL_", "UCX_"),
)
# Nor those by which Horovod's ranks do.
MEETING = (
    *("HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_", "HOROVOD_CROSS_"),
    *("HOROVOD_HOSTNAME", "HOROVOD_GLOO_RENDEZVOUS_"),
)
# Whatever the prefix: HOROVOD_SECRET_KEY, TF_API_TOKEN, ...
SECRET = re.compile(r"SECRET|TOKEN|PASSW|CREDENTIAL|(^|_)(API_?)?KEY(_|$)")


def arithmetic(variables: Mapping[str, str]) -> Dict[str, str]:
    """Those of an environment that change what is computed, by name."""
    return {name: value for name, value in _beginning(ARITHMETIC, variables).items() if name not in ELSEWHERE}


def settings(variables: Mapping[str, str]) -> Dict[str, str]:
    """How computation and communication are set up here, by the launcher, the adapter or a person."""
    found = _beginning(COMMUNICATION, variables)
    exchange = {name: value for name, value in found.items() if not name.startswith(MEETING)}
    home = os.path.expanduser("~")  # a person's name may be a part of it, and records are published
    both = dict(arithmetic(variables), **exchange)
    return both if len(home) < 2 else {name: value.replace(home + "/", "~/") for name, value in both.items()}


def _beginning(prefixes: Tuple[str, ...], variables: Mapping[str, str]) -> Dict[str, str]:
    return {
        name: value
        for name, value in sorted(variables.items())
        if name.startswith(prefixes) and not SECRET.search(name)
    }
