"""Horovod as the controller sees it: one adapter for every engine that it runs over, each with an environment."""

from dataclasses import replace
from pathlib import Path

from adapters.mxnet.plugin import MXNet
from adapters.open_mpi import OPEN_MPI
from adapters.pytorch.plugin import PyTorch
from adapters.tensorflow.plugin import TensorFlow
from suite.contracts import knobs as declared
from suite.contracts.adapter import Adapter, Capabilities, Strategy
from suite.contracts.backend import FLOAT32, Backend
from suite.contracts.case import Configuration
from suite.contracts.hooks import hookimpl
from suite.contracts.knobs import Knob

# Variables by which its ranks find each other.
MEETING = tuple(f"HOROVOD_{name}" for name in ("RANK", "SIZE", "LOCAL_", "CROSS_", "HOSTNAME", "GLOO_RENDEZVOUS_"))

STRATEGIES = (
    Strategy(
        "allreduce",
        "Horovod's ring: gradients that are ready at the same time are fused and all-reduced (gloo, MPI; NCCL on GPUs) "
        "during the backward.",
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
        "What connects the ranks and carries their gradients (on GPUs NCCL carries them); auto: mpi under Open MPI's "
        "mpiexec, else gloo.",
        mpi=("mpi", OPEN_MPI),
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


ON_CPUS = Capabilities(
    strategies=STRATEGIES,
    precisions=("float32", "float64"),
    knobs=KNOBS,
    optimisers=("sgd", "adam"),
)
REFUSED = "its CPU wheel is what Horovod is built for here, over gloo and MPI, without NCCL; horovod-pytorch has GPUs"


class Horovod(Adapter):
    """Over one engine. What is true of the engine's framework its own adapter declares."""

    contract = 2
    exchange_variables = ("HOROVOD_",)

    def __init__(self, engine: Adapter, backends: tuple[Backend, ...] = (), on_gpus: bool = False) -> None:
        """`on_gpus`: whether it is built for them, over NCCL."""
        self._engine, self.backends = engine, backends
        self._capabilities = over_nccl(engine) if on_gpus else replace(ON_CPUS, refuses={("device", "cuda"): REFUSED})
        self.name = self.environment = f"horovod-{engine.name}"
        self.title = f"Horovod over {engine.title}"
        self.trainer = f"adapters.horovod.over_{engine.name}.worker:trainer"
        self.requires, self.optional = ("horovod", *engine.requires), engine.optional
        self.builds_on = ("adapters.horovod.ring", f"adapters.{engine.name}")
        self.out_of_memory = engine.out_of_memory
        self.arithmetic_variables = engine.arithmetic_variables
        self.other_variables = (*MEETING, *engine.other_variables)
        # A line for the shell, its comment too: there are no wheels, tox builds it from source.
        self.remedy = (
            f"tox run -e {self.name}  # builds Horovod: about ten minutes, with python3.11, g++ and make on PATH: "
            "apt-get install g++ make"
        )

    @property
    def capabilities(self) -> Capabilities:
        """Everything of CPUs; of GPUs what the engine has."""
        return self._capabilities

    def unsupported(self, case: Configuration) -> str | None:
        """What NCCL does not do, and what the engine does not."""
        placement = case.placement
        if placement.device == "cuda" and placement.share_devices and placement.ranks > 1:
            return "NCCL refuses ranks that share a GPU; ask for share_devices = false and fewer ranks per node"
        return self._engine.unsupported(self._as_engine_s(case))

    def environ(self, case: Configuration, interpreter: Path) -> dict[str, str]:
        return self._engine.environ(self._as_engine_s(case), interpreter)

    def _as_engine_s(self, case: Configuration) -> Configuration:
        """The case as the engine's own adapter knows it: its plainest strategy, its knobs as they come."""
        able = self._engine.capabilities
        return case.on(strategy=able.strategies[0].name, knobs=declared.values(able.knobs))


def over_nccl(engine: Adapter) -> Capabilities:
    """With GPUs, in all precisions that the engine has there."""
    able = engine.capabilities
    more = tuple(name for name in able.precisions_on("cuda") if name not in ON_CPUS.precisions)
    return replace(ON_CPUS, devices=("cpu", "cuda"), device_precisions={"cuda": more})


@hookimpl
def stagebench_adapters() -> list[Adapter]:
    return [Horovod(MXNet(), (BACKEND,)), Horovod(PyTorch(), on_gpus=True), Horovod(TensorFlow())]
