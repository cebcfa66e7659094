"""Variables of the environment that change what is computed, or with which library, or how ranks exchange.

A proof holds only where the first are the same: they are part of its key. Every rank reports all that it has. Those of
libraries that many frameworks stand on are known here; an adapter declares its framework's.
"""

import os
import re
from typing import Dict, List, Mapping, NamedTuple

# What tells the libraries of computation how many threads to run; every rank must see them.
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


class Variables(NamedTuple):
    """Beginnings of names."""

    arithmetic: List[str] = []  # what is computed
    exchange: List[str] = []  # how ranks exchange
    neither: List[str] = []  # among those: where, or how many, and not how

    def joined(self, other: "Variables") -> "Variables":
        """Both."""
        return Variables(*([*own, *others] for own, others in zip(self, other)))


COMMON = Variables(
    arithmetic=[
        *("BLIS_", "CUBLAS_", "CUDA_", "CUDNN_", "DNNL_", "GLIBC_TUNABLES", "KMP_", "LD_LIBRARY_PATH", "LD_PRELOAD"),
        *("MALLOC_", "MKL_", "NVIDIA_TF32_OVERRIDE", "OMP_", "ONEDNN_", "OPENBLAS_", "TCMALLOC_"),
    ],
    # Of Open MPI's not those by which its daemons find each other.
    exchange=[
        *("OMPI_MCA_btl", "OMPI_MCA_coll", "OMPI_MCA_mpi_yield", "OMPI_MCA_mtl", "OMPI_MCA_pml"),
        *("FI_", "GLOO_", "MPICH_", "MPIR_CVAR_", "NCCL_", "UCX_"),
    ],
    neither=["CUDA_VISIBLE_DEVICES", *THREADS],  # the number of threads is the placement's
)
# Whatever the prefix: HOROVOD_SECRET_KEY, TF_API_TOKEN, ...
SECRET = re.compile(r"SECRET|TOKEN|PASSW|CREDENTIAL|(^|_)(API_?)?KEY(_|$)")


def arithmetic(variables: Mapping[str, str], own: Variables) -> Dict[str, str]:
    """Those of an environment that change what is computed, by name; `own` are the adapter's."""
    named = COMMON.joined(own)
    return _beginning(named.arithmetic, named.neither, variables)


def settings(variables: Mapping[str, str], own: Variables) -> Dict[str, str]:
    """How computation and communication are set up here, by the launcher, the adapter or a person."""
    named = COMMON.joined(own)
    found = _beginning([*named.arithmetic, *named.exchange], named.neither, variables)
    home = os.path.expanduser("~")  # a person's name may be a part of it, and records are published
    return found if len(home) < 2 else {name: value.replace(home + "/", "~/") for name, value in found.items()}


def _beginning(these: List[str], others: List[str], variables: Mapping[str, str]) -> Dict[str, str]:
    beginning = [name for name in variables if name.startswith(tuple(these)) and not name.startswith(tuple(others))]
    return {name: variables[name] for name in sorted(beginning) if not SECRET.search(name)}
