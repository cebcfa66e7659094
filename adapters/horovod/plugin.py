"""Horovod as the controller sees it: one adapter for every engine that it runs over, each with an environment."""

from pathlib import Path

from suite.contracts.adapter import Adapter, Capabilities, Strategy
from suite.contracts.allocator import keep_memory
from suite.contracts.backend import FLOAT32, Backend
from suite.contracts.case import Configuration
from suite.contracts.hooks import hookimpl
from suite.contracts.knobs import Knob

RING = "adapters.horovod.ring"  # what the engines share
# Those by which its ranks find each other.
MEETING = ("RANK", "SIZE", "LOCAL_", "CROSS_", "HOSTNAME", "GLOO_RENDEZVOUS_")

STRATEGIES = (
    Strategy(
        "allreduce",
        "Horovod's ring: gradients that are ready at the same time are fused and all-reduced (gloo, MPI) during the "
        "backward.",
        changing_rate=True,
    ),
)

BACKEND = Backend(
    "horovod",
    "Horovod's collectives (gloo; MPI under mpiexec), on MXNet's arrays.",
    "adapters.horovod.over_mxnet.comm:RingCommunicator",
    "allreduce",
    ("all-reduce", "broadcast", "reduce-scatter", "all-gather", "all-to-all"),
    (FLOAT32, "float16"),
)

KNOBS = {
    "controller": Knob(
        ("auto", "gloo", "mpi"),
        "auto",
        "What connects the ranks and carries their gradients; auto: mpi under Open MPI's mpiexec, else gloo.",
        mpi=("mpi", "Open MPI"),
    ),
    "fusion_threshold_mb": Knob(
        (int, float),
        128,
        "MiB that are sent together at most, HOROVOD_FUSION_THRESHOLD; 0: every gradient by itself.",
        least=0,
    ),
    "cycle_time_ms": Knob(
        (int, float),
        1,
        "How often Horovod looks for gradients that are ready, HOROVOD_CYCLE_TIME: longer, more of them are fused.",
        least=0.001,  # Horovod counts whole microseconds
    ),
}


def made(environment: str) -> str:
    """The remedy, a line for the shell, its comment too: there are no wheels, tox builds it from source."""
    return (
        f"tox run -e {environment}  # builds Horovod: about ten minutes, with python3.11, g++ and make on PATH "
        "(apt-get install g++ make)"
    )


class Horovod(Adapter):
    """What the engines have in common; built for CPUs."""

    contract = 2
    exchange_variables = ("HOROVOD_",)
    other_variables = tuple(f"HOROVOD_{name}" for name in MEETING)

    capabilities = Capabilities(
        strategies=STRATEGIES,
        precisions=("float32", "float64"),
        knobs=KNOBS,
        optimisers=("sgd", "adam"),
        refuses={("device", "cuda"): "it is built over gloo and MPI, without NCCL, for the frameworks' CPU wheels"},
    )

    def environ(self, case: Configuration, interpreter: Path) -> dict[str, str]:
        return keep_memory(case)


class HorovodMXNet(Horovod):
    """MXNet as the engine."""

    name = environment = "horovod-mxnet"
    title = "Horovod over MXNet"
    trainer = "adapters.horovod.over_mxnet.worker:trainer"
    requires = ("horovod", "mxnet", "PIL")
    arithmetic_variables = ("MXNET_",)
    out_of_memory = ("Failed to allocate CPU Memory", "Memory allocation failed")
    builds_on = (RING, "adapters.mxnet")
    backends = (BACKEND,)
    remedy = made("horovod-mxnet")


class HorovodPyTorch(Horovod):
    """PyTorch as the engine."""

    name = environment = "horovod-pytorch"
    title = "Horovod over PyTorch"
    trainer = "adapters.horovod.over_pytorch.worker:trainer"
    requires = ("horovod", "torch")
    arithmetic_variables = ("PYTORCH_", "TORCH_")
    other_variables = (*Horovod.other_variables, "TORCH_HOME")
    out_of_memory = ("DefaultCPUAllocator",)
    builds_on = (RING, "adapters.pytorch")
    remedy = made("horovod-pytorch")


class HorovodTensorFlow(Horovod):
    """TensorFlow as the engine."""

    name = environment = "horovod-tensorflow"
    title = "Horovod over TensorFlow"
    trainer = "adapters.horovod.over_tensorflow.worker:trainer"
    requires = ("horovod", "tensorflow")
    arithmetic_variables = ("TF_", "XLA_")
    other_variables = (*Horovod.other_variables, "TF_CONFIG", "TF_CPP_MIN_LOG_LEVEL")
    out_of_memory = ("OOM when allocating", "Dst tensor is not initialized", "Failed to allocate request for")
    builds_on = (RING, "adapters.tensorflow")
    remedy = made("horovod-tensorflow")

    def environ(self, case: Configuration, interpreter: Path) -> dict[str, str]:
        """What must stand before TensorFlow is loaded, as adapters/tensorflow has it."""
        return {"TF_CPP_MIN_LOG_LEVEL": "1", "TF_ENABLE_ONEDNN_OPTS": "1", **super().environ(case, interpreter)}


@hookimpl
def stagebench_adapters() -> list[Adapter]:
    return [HorovodMXNet(), HorovodPyTorch(), HorovodTensorFlow()]
