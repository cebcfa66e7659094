"""Knobs and variables for the vendors' kernels, cuDNN on GPUs and oneDNN on CPUs, and for the C library's allocator."""

from stagebench.suite.contracts.case import Configuration
from stagebench.suite.contracts.knobs import Knob, Need

SEGMENTS = Knob(
    int,
    1,
    "Activation checkpointing: segments in which the network is cut; all but the last keep no activations, and the "
    "backward computes them again. 1: all are kept.",
    least=1,
)
KERNEL_KNOBS = {
    "cudnn_autotune": Knob(
        ("auto", "on", "off"),
        "auto",
        "Whether cuDNN times its algorithms on the first batches and keeps the fastest; auto: as the framework has it, "
        "and on when tuned.",
        needs=(
            Need("device", ("cuda",), "cuDNN computes on GPUs"),
            Need("deterministic", ("off",), "what is timed anew in every run may choose another algorithm", ("on",)),
        ),
    ),
    "deterministic": Knob(
        ("on", "off"),
        "off",
        "Whether GPUs add up in the same order in every run, without atomics, at the price of slower algorithms.",
        needs=(Need("device", ("cuda",), "CPUs add up in the same order anyhow", ("on",)),),
    ),
    "onednn": Knob(
        ("on", "off"),
        "on",
        "Whether oneDNN computes, or the framework's own kernels.",
        needs=(Need("device", ("cpu",), "oneDNN computes on CPUs here"),),
    ),
}


# Without a workspace of fixed size, cuBLAS may add in another order, and PyTorch refuses its deterministic mode.
FIXED_WORKSPACE = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}


def variables(case: Configuration, autotune: str, onednn: str, deterministic: str = "") -> dict[str, str]:
    """Return the kernel knobs of a case as environment variables, for `Adapter.environ`; defaults set none.

    `autotune`, `onednn` and `deterministic` are the framework's names for these variables; with `deterministic` "", the
    knob sets none. Deterministic kernels are not autotuned.
    """
    found = {}
    if case.knobs.get("cudnn_autotune", "auto") != "auto":
        found[autotune] = "1" if case.knobs["cudnn_autotune"] == "on" else "0"
    if case.knobs.get("onednn") == "off":
        found[onednn] = "0"
    if deterministic and case.knobs.get("deterministic") == "on":
        found.update({deterministic: "1", autotune: "0"})
    return found


# glibc gives large blocks back to the kernel and faults them in again at every step: keep
# them. PyTorch, AlexNet, batch 8, one thread: 60,000 page faults a step fall to none, and
# the step from 0.40 s to 0.28 s. Values are bytes; other C libraries ignore them.
KEEP_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(4 << 30), "MALLOC_TRIM_THRESHOLD_": str(32 << 30)}

# All threads but the first have heaps of 64 MiB, and return larger blocks in spite of KEEP_MEMORY: make one heap for
# all. JAX, whose steps run in a thread of XLA, AlexNet, batch 8: 105,000 page faults a step fall to none, 0.57 s of CPU
# to 0.38 s. The heap of an MXNet engine's thread is chance: AlexNet's step took 0.52 s or 0.55 s, by process.
ONE_ARENA = {"MALLOC_ARENA_MAX": "1"}


def keep_memory(case: Configuration, other_threads: bool = False) -> dict[str, str]:
    """Return the variables for a case's processes, for use in `Adapter.environ`: none unless it is tuned and on CPUs.

    `other_threads`: threads other than the process's first one allocate large blocks.
    """
    if case.tuning != "tuned" or case.placement.device != "cpu":
        return {}
    return {**KEEP_MEMORY, **(ONE_ARENA if other_threads else {})}
