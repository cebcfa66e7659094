"""JAX as the controller sees it: what it can do and what its processes need."""

import os
from dataclasses import replace
from pathlib import Path

from stagebench.suite.contracts.adapter import INFERENCE, Adapter, Capabilities, Strategy
from stagebench.suite.contracts.case import Configuration
from stagebench.suite.contracts.hooks import hookimpl
from stagebench.suite.contracts.kernels import KERNEL_KNOBS, SEGMENTS, keep_memory
from stagebench.suite.contracts.knobs import Knob, Need

STRATEGIES = (
    Strategy(
        "single",
        "stagebench.adapters.jax.base:JaxTrainer",
        "One process, one device: a jitted step.",
        distributed=False,
        changing_rate=True,
        clips=True,
    ),
    Strategy(
        "pmap",
        "stagebench.adapters.jax.strategies.pmap:Pmap",
        "Data parallel over the devices of one process: the jitted step as a shard_map over a mesh, which is what "
        "jax.pmap has become; gradients are averaged by pmean. On a CPU the devices are threads of the process.",
        distributed=False,
        several_devices=True,
        changing_rate=True,
        clips=True,
    ),
    Strategy(
        INFERENCE,
        "stagebench.adapters.jax.inference:JaxPredictor",
        "No training: answers of the jitted forward pass; tuned: batch normalisations folded, parameters constant.",
        infers=True,
        distributed=False,
    ),
)


AUTOTUNE = KERNEL_KNOBS["cudnn_autotune"]
KNOBS = {
    "preallocate": Knob(
        (int, float),
        0.75,
        "The share of a GPU's memory that XLA takes when it starts; JAX's own choice is 0.75. 0: as much as it needs, "
        "when it needs it.",
        least=0,
        most=1,
        needs=(Need("device", ("cuda",), "JAX preallocates a GPU's memory, none of a CPU's"),),
    ),
    "cudnn_autotune": replace(
        AUTOTUNE,
        help="Whether XLA times cuDNN's algorithms and its own kernels while it compiles; auto: as it comes, on.",
    ),
    "deterministic": KERNEL_KNOBS["deterministic"],
    "checkpoint_segments": replace(SEGMENTS, strategies=("single", "pmap")),
}

# XLA's flags by knob and value. `deterministic_ops` is more than `exclude_nondeterministic_ops`: it turns the timing
# off, too, which chooses other kernels in other runs. 4 is XLA's own level of autotuning.
XLA_FLAGS = {
    ("cudnn_autotune", "off"): "--xla_gpu_autotune_level=0",
    ("cudnn_autotune", "on"): "--xla_gpu_autotune_level=4",
    ("deterministic", "on"): "--xla_gpu_deterministic_ops=true",
}


class Jax(Adapter):
    """JAX on CPUs and CUDA devices."""

    contract = 4
    name = "jax"
    title = "JAX"
    package = "stagebench.adapters.jax"
    requires = ("jax", "jaxlib")
    arithmetic_variables = ("JAX_", "TF_", "XLA_")  # XLA's own begin with TF_ where it shares code with TensorFlow
    other_variables = ("JAX_COMPILATION_CACHE_DIR", "TF_CLI_", "TF_CPP_", "TF_VAR_")  # TF_CLI_, TF_VAR_: Terraform's
    out_of_memory = ("Failed to allocate request for",)  # XLA's bfc_allocator; elsewhere it says "Out of memory"
    environment = "jax"
    requirements = "stagebench/adapters/environments/jax.txt"
    remedy = "stagebench env make jax"

    capabilities = Capabilities(
        strategies=STRATEGIES,
        devices=("cpu", "cuda"),
        precisions=("float32", "bfloat16", "float64"),
        device_precisions={"cuda": ("tf32", "float16")},
        optimisers=("sgd", "adam", "adamw"),
        knobs=KNOBS,
    )

    def environ(self, case: Configuration, interpreter: Path) -> dict[str, str]:
        """Return XLA's settings on GPUs, and the allocator's of a tuned CPU process: all are read at the start."""
        if case.placement.device == "cpu":
            return keep_memory(case, other_threads=True)
        flags = [flag for (knob, value), flag in XLA_FLAGS.items() if case.knobs.get(knob) == value]
        # After the shell's: of two that differ XLA takes the last.
        variables = {"XLA_FLAGS": " ".join([*os.environ.get("XLA_FLAGS", "").split(), *flags])} if flags else {}
        # JAX refuses the share's former name next to the present one: the shell may set it.
        variables["XLA_PYTHON_CLIENT_MEM_FRACTION"] = ""
        share = case.knobs["preallocate"]
        if not share:
            return {**variables, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
        return {**variables, "XLA_PYTHON_CLIENT_PREALLOCATE": "true", "XLA_CLIENT_MEM_FRACTION": f"{share:g}"}


@hookimpl
def stagebench_adapters() -> list[Adapter]:
    return [Jax()]
