"""The environment variables that change what is computed, or with which library, or how ranks exchange.

The rule: a variable is of arithmetic if, by it, the same program on the same cores may round in another way, take
another kernel, or load or compile other code. A proof holds only where those are the same: the controller's are part of
its key, and the ranks that proved and those that measured report theirs. The exchange between ranks may change the
order of a sum, but no order is beyond a proof's bounds; the place of something (a device, a cache of compiled kernels),
the number of threads (which the placement sets), and the content of a log are neither.

A whole family is named rather than its known members: one too many costs a proof, one too few vouches for a computation
that did not run. The variables of libraries that many frameworks use are listed here; an adapter declares its
framework's.
"""

import contextlib
import hashlib
import json
import os
import re
from typing import Dict, List, Mapping, NamedTuple

from stagebench.suite.worker.homes import without_homes

# Variables that set the threads of the libraries of computation; every rank must see them.
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


class Variables(NamedTuple):
    """The beginnings of variables' names."""

    arithmetic: List[str] = []  # what is computed
    exchange: List[str] = []  # how ranks exchange
    neither: List[str] = []  # among those: a place or a number, not a method

    def joined(self, other: "Variables") -> "Variables":
        """Return the beginnings of both."""
        return Variables(*([*own, *others] for own, others in zip(self, other)))


COMMON = Variables(
    arithmetic=[
        # Which libraries are loaded, what they find in the processor, and where they get memory.
        *("FLEXIBLAS", "GLIBC_TUNABLES", "LD_AUDIT", "LD_LIBRARY_PATH", "LD_PRELOAD", "MALLOC_", "TCMALLOC_"),
        # Kernels of matrices and convolutions, NumPy's too: it feeds what is trained.
        *("ARMPL_", "BLIS_", "DNNL_", "GOTO_", "MKL_", "MKLDNN_", "NPY_", "ONEDNN_", "OPENBLAS_", "ZENDNN_"),
        *("CUBLAS_", "CUBLASLT_", "CUDA_", "CUDNN_", "NVIDIA_TF32_OVERRIDE"),
        # How threads share the work.
        *("GOMP_", "KMP_", "OMP_", "TBB_"),
    ],
    # Without the variables by which Open MPI's daemons find each other.
    exchange=[
        *("OMPI_MCA_btl", "OMPI_MCA_coll", "OMPI_MCA_mpi_yield", "OMPI_MCA_mtl", "OMPI_MCA_pml"),
        *("FI_", "GLOO_", "MPICH_", "MPIR_CVAR_", "NCCL_", "UCX_"),
    ],
    neither=["CUDA_CACHE_PATH", "CUDA_VISIBLE_DEVICES", *THREADS],  # the number of threads is the placement's
)
# Whatever the prefix: HOROVOD_SECRET_KEY, TF_API_TOKEN, OMP_password, ...
SECRET = re.compile(
    r"SECRET|TOKEN|PASSW|PASSPHRASE|PRIVATE|CREDENTIAL|(^|_)AUTH(_|$)|(^|_)(API_?)?KEY(_|$)", re.IGNORECASE
)


# Files in which libraries of communication look for the same settings.
FILES = [
    *("~/.nccl.conf", "/etc/nccl.conf", "~/.openmpi/mca-params.conf", "/etc/openmpi/openmpi-mca-params.conf"),
    *("~/.prte/mca-params.conf", "~/.pmix/mca-params.conf"),
]


def arithmetic(variables: Mapping[str, str], own: Variables) -> Dict[str, str]:
    """Return the variables of an environment that change what is computed, by name; `own` are the adapter's."""
    named = COMMON.joined(own)
    return _beginning(named.arithmetic, named.neither, variables)


def settings(variables: Mapping[str, str], own: Variables) -> Dict[str, str]:
    """Return the variables that set up computation and communication here, by name, as a record shows them.

    The launcher, the adapter or a person has set them. Home folders are removed: records are published.
    """
    named = COMMON.joined(own)
    found = _beginning([*named.arithmetic, *named.exchange], named.neither, variables)
    return {name: without_homes(value) for name, value in found.items()}


def written() -> Dict[str, str]:
    """Return the lines of each of FILES that has any: settings, which a record shows next to the variables."""
    found = {}
    for name in FILES:
        with contextlib.suppress(OSError), open(os.path.expanduser(name), errors="replace") as stream:
            lines = [line.strip() for line in stream if line.strip() and not SECRET.search(line)]
            found[name] = without_homes("; ".join(line for line in lines if not line.startswith("#")))
    return {name: text for name, text in found.items() if text}


def digest(variables: Mapping[str, str]) -> str:
    """Return a digest of variables' true values, of which a record shows less; twelve hexadecimal digits."""
    return hashlib.sha256(json.dumps(variables, sort_keys=True).encode()).hexdigest()[:12]


def _beginning(these: List[str], others: List[str], variables: Mapping[str, str]) -> Dict[str, str]:
    beginning = [name for name in variables if name.startswith(tuple(these)) and not name.startswith(tuple(others))]
    return {name: variables[name] for name in sorted(beginning) if not SECRET.search(name)}
