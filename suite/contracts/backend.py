"""The communication backends that an adapter's `plugin.py` declares, for `stagebench comm`."""

from dataclasses import dataclass

from suite.contracts.deep import DEEP

OPERATIONS = ("all-reduce", "broadcast", "reduce-scatter", "all-gather", "point-to-point", "all-to-all")
FLOAT32 = "float32"
DTYPES = (FLOAT32, "float16", "bfloat16")


@dataclass(frozen=True)
class Backend:
    """A communication library; its processes are started like those of one of the adapter's strategies."""

    __pydantic_config__ = DEEP

    name: str  # "gloo"; no two adapters have backends of one name
    help: str
    communicator: str  # "module:class" in the adapter's package: "adapters.pytorch.comm:TorchCommunicator"
    strategy: str  # the adapter's strategy whose environment variables and sidecars its processes get
    operations: tuple[str, ...] = OPERATIONS
    dtypes: tuple[str, ...] = (FLOAT32,)  # the types of numbers that every one of its operations can exchange
    device: str = "cpu"  # the kind of device that holds the numbers
    # An environment of its own in place of the adapter's, the modules it must have, and the command that makes it:
    environment: str | None = None
    requires: tuple[str, ...] = ()
    remedy: str = ""
    programs: tuple[str, ...] = ()  # that its environment must have next to the interpreter: its own library's mpiexec
