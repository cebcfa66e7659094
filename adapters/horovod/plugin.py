"""Horovod as the controller sees it: one adapter, with its own environment, per engine that it runs over."""

from pathlib import Path
from typing import Any

from stagebench.adapters.mxnet.plugin import MXNet
from stagebench.adapters.open_mpi import OPEN_MPI
from stagebench.adapters.pytorch.plugin import PyTorch
from stagebench.adapters.tensorflow.plugin import TensorFlow
from stagebench.suite.contracts import knobs as declared
from stagebench.suite.contracts.adapter import Adapter, Backend, Capabilities, Strategy
from stagebench.suite.contracts.case import FLOAT32, Configuration
from stagebench.suite.contracts.hooks import hookimpl
from stagebench.suite.contracts.knobs import Knob

PRECISIONS = ("float32", "float64")  # on CPUs
# Variables by which its ranks find each other.
MEETING = tuple(f"HOROVOD_{name}" for name in ("RANK", "SIZE", "LOCAL_", "CROSS_", "HOSTNAME", "GLOO_RENDEZVOUS_"))

ALLREDUCE = (
    "Horovod's ring: gradients that are ready at the same time are fused and all-reduced (gloo, MPI; NCCL on GPUs) "
    "during the backward."
)

BACKEND = Backend(
    "horovod",
    "Horovod's collectives (gloo; MPI under mpiexec), on MXNet's arrays.",
    "stagebench.adapters.horovod.over_mxnet:RingCommunicator",
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


NO_GPUS = "its CPU wheel is what Horovod is built for here, over gloo and MPI, without NCCL; horovod-pytorch has GPUs"


class Horovod(Adapter):
    """Horovod over one engine, whose adapter declares what is true of its framework."""

    contract = 4
    exchange_variables = ("HOROVOD_",)

    def __init__(self, engine: Adapter, backends: tuple[Backend, ...] = (), on_gpus: bool = False) -> None:
        """`on_gpus`: Horovod is built for GPUs too, over NCCL."""
        self._engine = engine
        self.backends = backends
        trainer = f"stagebench.adapters.horovod.over_{engine.name}:AllReduce"
        self._capabilities = Capabilities(
            strategies=(Strategy("allreduce", trainer, ALLREDUCE, changing_rate=True, clips=True),),
            precisions=PRECISIONS,
            knobs=KNOBS,
            optimisers=("sgd", "adam", "adamw"),
            **over_nccl(engine) if on_gpus else {"refuses": {("device", "cuda"): NO_GPUS}},
        )
        self.name = self.environment = f"horovod-{engine.name}"
        self.title = f"Horovod over {engine.title}"
        self.package = f"stagebench.adapters.horovod.over_{engine.name}"
        self.requires = ("horovod", *engine.requires)
        self.optional = engine.optional
        self.builds_on = ("stagebench.adapters.horovod.ranks", f"stagebench.adapters.{engine.name}")
        self.out_of_memory = engine.out_of_memory
        self.arithmetic_variables = engine.arithmetic_variables
        self.other_variables = (*MEETING, *engine.other_variables)
        self.requirements = f"stagebench/adapters/environments/{self.name}.txt"
        # A line for the shell, its comment too: there are no wheels.
        self.remedy = (
            f"stagebench env make {self.name}  # builds Horovod: about ten minutes, with g++ and make on PATH: "
            "apt-get install g++ make python3-dev"
        )

    @property
    def capabilities(self) -> Capabilities:
        """All on CPUs; on GPUs the engine's precisions."""
        return self._capabilities

    def unsupported(self, case: Configuration) -> str | None:
        """Return what NCCL refuses, or the engine."""
        placement = case.placement
        if placement.device == "cuda" and placement.share_devices and placement.ranks > 1:
            return "NCCL refuses ranks that share a GPU; ask for share_devices = false and fewer ranks per node"
        return self._engine.unsupported(self._of_engine(case))

    def tunes_to_batch(self, case: Configuration) -> bool:
        return self._engine.tunes_to_batch(self._of_engine(case))

    def environ(self, case: Configuration, interpreter: Path) -> dict[str, str]:
        return self._engine.environ(self._of_engine(case), interpreter)

    def _of_engine(self, case: Configuration) -> Configuration:
        """Return the case for the engine's adapter: its first strategy, its knobs at their defaults."""
        engine = self._engine.capabilities
        return case.on(strategy=engine.strategies[0].name, knobs=declared.values(engine.knobs))


def over_nccl(engine: Adapter) -> dict[str, Any]:
    """Return the capabilities that GPUs add: the device, and all precisions that the engine has there."""
    more = tuple(name for name in engine.capabilities.precisions_on("cuda") if name not in PRECISIONS)
    return {"devices": ("cpu", "cuda"), "device_precisions": {"cuda": more}}


@hookimpl
def stagebench_adapters() -> list[Adapter]:
    return [Horovod(MXNet(), (BACKEND,)), Horovod(PyTorch(), on_gpus=True), Horovod(TensorFlow())]
