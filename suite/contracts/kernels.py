"""Knobs for the vendors' kernels, for adapters whose framework computes with cuDNN on GPUs and with oneDNN on CPUs."""

from suite.contracts.case import Configuration
from suite.contracts.knobs import Knob, Need

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
