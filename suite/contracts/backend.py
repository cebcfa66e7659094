"""What an adapter's `plugin.py` says of communication by itself: its backends, for `stagebench comm`."""

from dataclasses import dataclass

from suite.contracts.deep import DEEP

OPERATIONS = ("all-reduce", "broadcast", "reduce-scatter", "all-gather", "point-to-point", "all-to-all")
FLOAT32 = "float32"
DTYPES = (FLOAT32, "float16", "bfloat16")


@dataclass(frozen=True)
class Backend:
    """One library that exchanges; its processes are started as those of one of the adapter's strategies."""

    __pydantic_config__ = DEEP

    name: str  # "gloo"
    help: str
    communicator: str  # "adapters.pytorch.comm:TorchCommunicator", in the adapter's package
    strategy: str  # whose variables and sidecars its processes get
    operations: tuple[str, ...] = OPERATIONS
    dtypes: tuple[str, ...] = (FLOAT32,)  # of the numbers that it exchanges, in every one of its operations
    device: str = "cpu"
    # Instead of the adapter's environment, one of its own, with what that must have and how it is made:
    environment: str | None = None
    requires: tuple[str, ...] = ()
    remedy: str = ""
    programs: tuple[str, ...] = ()  # that must stand beside its interpreter: an mpiexec of another library would not do
