"""The contract of an adapter's `plugin.py`: the controller's view of a framework.

Most of it is data. The controller calls the methods in its own Python, so `plugin.py` must not import the framework. A
plan is checked against the declaration, every case of it, before anything starts.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from stagebench.suite.contracts.case import FLOAT32, OPERATIONS, Configuration
from stagebench.suite.contracts.deep import DEEP, Between, Environ
from stagebench.suite.contracts.knobs import Knob


@dataclass(frozen=True)
class Backend:
    """A communication library; its processes are started like those of one of the adapter's strategies."""

    __pydantic_config__ = DEEP

    name: str  # "gloo"; no two adapters have backends of one name
    help: str
    communicator: str  # "module:class" in the adapter's package: "stagebench.adapters.pytorch.comm:TorchCommunicator"
    strategy: str  # the adapter's strategy whose environment variables and sidecars its processes get
    operations: tuple[str, ...] = OPERATIONS
    dtypes: tuple[str, ...] = (FLOAT32,)  # the types of numbers that every one of its operations can exchange
    device: str = "cpu"  # the kind of device that holds the numbers
    # An environment of its own in place of the adapter's, the modules it must have, and the command that makes it:
    environment: str | None = None
    requires: tuple[str, ...] = ()
    remedy: str = ""
    requirements: str = ""  # the file of its packages, as an adapter's
    programs: tuple[str, ...] = ()  # that its environment must have next to the interpreter: its own library's mpiexec

    def missing(self, interpreter: Path) -> str | None:
        """Return the programs that its own environment lacks, with the remedy; None if it has all."""
        missing = [name for name in self.programs if not (interpreter.parent / name).exists()]
        if not missing:
            return None
        absent = " and no ".join(missing)
        return f"there is no {absent} next to {interpreter}, so this is not its environment; {self.remedy}"


Share = Annotated[float, Between(0, 1)]
Pieces = Annotated[int, Between(1)]  # devices, microbatches

INFERENCE = "inference"  # the usual name of the strategy that infers


@dataclass(frozen=True)
class Strategy:
    """A way to spread training over devices, or to infer, as a plan names it.

    `trainer` is "module:class", such as "stagebench.adapters.pytorch.strategies.ddp:DDP": each rank imports it from the
    bundle.
    """

    __pydantic_config__ = DEEP

    name: str  # for plans and records: letters, digits, ".", "_" and "-", 64 at most
    trainer: str  # a subclass of Trainer or Predictor of stagebench.suite.worker
    help: str  # a sentence for `stagebench list strategies`
    # Names of the only launchers that can start it, the first for a plan's "auto"; (): every launcher that fits `mpi`.
    launchers: tuple[str, ...] = ()
    infers: bool = False  # True: it does not train; its passes are loads (stagebench.suite.worker.pass_kinds)
    distributed: bool = True  # False: a case has one rank
    several_devices: bool = False  # True: a rank may drive several devices
    synchronous: bool = True  # its result equals one device with the joined batch; False: asynchronous, quantised, ...
    # Stages that can be timed separately. A stage that is missing here happens inside another one, and its method does
    # nothing; without "communication" there is no comm_only pass, without "io" no io_only pass.
    separable: tuple[str, ...] = ("io", "h2d", "forward", "backward", "communication", "update")
    # True: all devices of a case hold one network together, each a part; a knob's name: the knob's value is the number
    # of consecutive devices that do.
    model_parallel: bool | str = False
    # The pieces into which a network is cut for the devices that hold it: stages of layers (in sequence) or branches
    # of blocks (in parallel). A plan refuses a network with too few of them; "": every network can be cut. Where one
    # value crosses, stages have copies of a weight that their layers share; other cuts keep such layers together.
    cut: Literal["", "layers", "layers where one value crosses", "branches"] = ""
    microbatches: str = ""  # the knob whose value is the number of microbatches per step; "": the batch is not split
    changing_rate: bool = False  # True: the learning rate may change while it trains (`Trainer.set_learning_rate`)
    keeps_rate: str = ""  # the reason why it may not, for the refusal: "its servers update by optimisers of their own"
    clips: bool = False  # True: it scales gradients down to a global norm (`stagebench.suite.worker.contract.SGD.clip`)
    periodic: bool = False  # True: devices exchange once in several steps, so a short pass may contain no exchange
    # True: its ranks meet by MPI and need a launcher that provides it. The library's name, "Open MPI": the same, if no
    # mpi4py of the environment shows which library it is.
    mpi: bool | str = False
    # Reasons for combinations that it cannot do, by (a knob, "device", "precision", "optimiser" or "kind", one of the
    # network's layer kinds; value):
    # {("device", "cpu"): "it knows no CPU devices; ..."}.
    refuses: dict[tuple[str, Any], str] = field(default_factory=dict)


KINDS = {"folder": "image folders", "arrays": "array files"}  # the kinds of data sets, in words


@dataclass(frozen=True)
class Format:
    """A record format for the framework's own reader; the adapter packs data sets in it (`stagebench data convert`)."""

    __pydantic_config__ = DEEP

    name: str  # "tfrecord"; also the name of a folder
    help: str
    kinds: tuple[str, ...] = ("folder",)  # the kinds of data sets it can hold: "folder" (of images), "arrays"
    ordered: bool = False  # True: the reader yields samples in a given order; False: it shuffles, so no pass `train`
    scaling: str = ""  # the reason why its reader scales images unlike workloads/catalogue.py; "": it scales alike
    whole: bool = True  # True: images are packed whole, so random crops are possible; False: packed as centre crops


@dataclass(frozen=True)
class Capabilities:
    """Everything that a plan may ask of an adapter; any other value makes a case `unsupported`."""

    __pydantic_config__ = DEEP

    strategies: tuple[Strategy, ...]  # one at least, the preferred ones first
    devices: tuple[str, ...] = ("cpu",)  # kinds of devices: "cpu", "cuda"
    precisions: tuple[str, ...] = ("float32",)  # on every kind of device
    # Further precisions on one kind of device: {"cuda": ("tf32", "float16")}.
    device_precisions: dict[str, tuple[str, ...]] = field(default_factory=dict)
    tunings: tuple[str, ...] = ("default", "tuned")
    layer_kinds: tuple[str, ...] = ()  # the kinds of stagebench.workloads.kinds that it can build; (): all
    knobs: dict[str, Knob] = field(default_factory=dict)  # its own settings, by name
    real_data: bool = True  # False: synthetic data only
    optimisers: tuple[str, ...] = ("sgd",)  # among stagebench.suite.contracts.case.OPTIMISERS
    # The reason why it lacks a value, by ("device", "precision", "tuning" or "optimiser"; value):
    # {("device", "cuda"): "it keeps its weights in host memory"}.
    refuses: dict[tuple[str, str], str] = field(default_factory=dict)
    formats: tuple[Format, ...] = ()  # in addition to unpacked files; "best" is the first that fits a case and machine

    def precisions_on(self, device: str) -> tuple[str, ...]:
        """Return all precisions on one kind of device."""
        return (*self.precisions, *self.device_precisions.get(device, ()))

    def usual_precision(self, device: str) -> str:
        """Return the precision of a case that names none: float32, or the first one if the adapter lacks that."""
        offered = self.precisions_on(device)
        return FLOAT32 if FLOAT32 in offered or not offered else offered[0]

    def all_precisions(self) -> tuple[str, ...]:
        """Return the precisions on any kind of device, each once."""
        more = (name for found in self.device_precisions.values() for name in found)
        return tuple(dict.fromkeys((*self.precisions, *more)))

    def strategy(self, name: str) -> Strategy | None:
        """Return the strategy of that name, or None."""
        return next((strategy for strategy in self.strategies if strategy.name == name), None)

    def format(self, name: str) -> Format | None:
        """Return the record format of that name, or None."""
        return next((form for form in self.formats if form.name == name), None)


class Adapter(ABC):
    """A framework as the controller sees it. A plugin returns one instance from the hook `stagebench_adapters`.

    Attributes and signatures are checked when the adapter is loaded. Its methods must be quick and return equal values
    for equal arguments: several commands call them, some more than once for a case.
    """

    contract: int  # the version of stagebench.suite.contracts.hooks that it was written for
    name: str  # in plans and records, and in `--python NAME=PATH`: no two adapters have one name
    title: str  # "PyTorch"
    package: str  # its worker half, "stagebench.adapters.pytorch": copied into its bundles, except `plugin.py`
    requires: tuple[str, ...] = ()  # modules that its interpreter must have, in addition to NumPy
    optional: tuple[str, ...] = ()  # modules that it may have; the importing code raises Unavailable without them
    environment: str | None = None  # its environment's name; None: the Python that runs stagebench
    # The file of its environment's packages (stagebench.suite.processes.environments), in a package:
    # "stagebench_lumen/environment.txt"; "": `stagebench env make` cannot make it.
    requirements: str = ""
    remedy: str = ""  # the command that makes its environment, then optionally "  # " and advice
    builds_on: tuple[str, ...] = ()  # packages of other adapters that its worker half imports; the bundle has them too
    oracle: bool = False  # True: every other adapter is proven against it, in float64; exactly one adapter is
    # Phrases, upper or lower case, by which its framework reports that memory ran out; an error with one of them has
    # the outcome `oom`. The phrases of Python, C++, CUDA and MPI are known (stagebench.suite.processes.evidence).
    out_of_memory: tuple[str, ...] = ()
    # Prefixes of its framework's environment variables; those of common libraries are known
    # (stagebench.suite.worker.variables).
    arithmetic_variables: tuple[str, ...] = ()  # they change what is computed; their values are part of a proof's key
    exchange_variables: tuple[str, ...] = ()  # they change how ranks exchange; every rank reports both groups
    other_variables: tuple[str, ...] = ()  # exceptions from both groups: they change places or numbers only
    backends: tuple[Backend, ...] = ()  # its communication libraries, for `stagebench comm`
    # The kind of job by which Kubernetes' training operator starts its ranks on several nodes; "": an MPIJob.
    kubernetes_job: str = ""

    @property
    @abstractmethod
    def capabilities(self) -> Capabilities:
        """The adapter's declaration, read for every case: constant, and the same on every machine."""

    def strategy(self, case: Configuration) -> Strategy:
        """Return the declaration of the case's strategy; KeyError if the adapter has none of that name."""
        found = self.capabilities.strategy(case.strategy)
        if found is None:
            raise KeyError(f"{self.name} has no strategy {case.strategy!r}")
        return found

    def synchronous(self, case: Configuration) -> bool:
        """Return whether the case's devices together compute what one device does with the joined batch.

        The strategy declares it; a value in some knob's `relaxing` makes it False.
        """
        relaxing = {name: knob.relaxing for name, knob in self.capabilities.knobs.items() if knob.relaxing}
        relaxed = any(case.knobs[name] in values for name, values in relaxing.items())
        return self.strategy(case).synchronous and not relaxed

    def model_parallel_size(self, case: Configuration) -> Pieces:
        """Return the number of devices that hold one network together, each a part of it; 1: each holds a whole one.

        The strategy's `model_parallel` declares it; a plan refuses a case whose devices do not divide by it. If it is
        more than 1, all devices of a rank count as one network's. `case.batch` is per device even so: a network on n
        devices takes n batches per step.
        """
        held = self.strategy(case).model_parallel
        if isinstance(held, str):
            return int(case.knobs[held])
        return case.placement.device_count if held else 1

    def parts(self, case: Configuration) -> Pieces:
        """Return the number of parts into which a network is cut, if the strategy has a `cut`: its devices."""
        return self.model_parallel_size(case)

    def microbatches(self, case: Configuration) -> Pieces:
        """Return the number of equal pieces of a network's batch, computed in sequence, each normalised separately."""
        knob = self.strategy(case).microbatches
        return int(case.knobs[knob]) if knob else 1

    def mpi(self, case: Configuration) -> str:
        """Return the MPI library by which the ranks meet, by name; "" if no knob's value and no strategy names one."""
        for name, knob in self.capabilities.knobs.items():
            if knob.mpi and case.knobs[name] == knob.mpi[0]:
                return knob.mpi[1]
        library = self.strategy(case).mpi
        return library if isinstance(library, str) else ""

    def unsupported(self, case: Configuration) -> str | None:
        """Return why the adapter cannot do this case although its capabilities allow it; None if it can.

        Called last, for each case that passed all other checks; a reason makes the case `unsupported`.
        """
        return None

    def missing(self, interpreter: Path) -> str | None:
        """Return what this machine lacks beyond Python modules (a library, a driver), with the remedy; None: nothing.

        Called for an interpreter that has all of `requires`; a reason makes the adapter's cases `unavailable`.
        """
        return None

    def unreadable(self, form: Format) -> str | None:
        """Return what this machine lacks for the reader of one of `formats`, with the remedy; None: nothing.

        Called while a plan with real data is resolved, and by `stagebench data` and `doctor`. With a reason, cases in
        that format are `unavailable`, and "best" is another format.
        """
        return None

    def decoding(self, case: Configuration) -> str:
        """Return why image files are decoded by other rules than libjpeg-turbo's; "" if they are not.

        Called when the adapter's reader is compared with stagebench's: a reason loosens the bound on pixels, and is
        printed with it.
        """
        return ""

    def environ(self, case: Configuration, interpreter: Path) -> Environ:
        """Return environment variables for all processes of a case, in addition to thread counts.

        Called for every launch, and for the key of a proof; `interpreter` is the path of the framework's Python.
        """
        return {}

    def tunes_to_batch(self, case: Configuration) -> bool:
        """Return whether its trainer times kernels on the case's batch (Setup.tuned_batch) and keeps the fastest.

        Each batch then has a proof of its own, which chooses by the case's batch and runs without another proof.
        """
        return False

    def wire_share(self, case: Configuration) -> Share:
        """Return the least share of the gradients' bytes that each host must send to other hosts per step; 0: unknown.

        Called after the ranks have ended well. If ranks on several hosts sent less, they did not exchange over the
        network, and the case's outcome is `crash`. In a ring each host sends all gradients, so the default is
        generous, and more so for asynchronous and quantised strategies.
        """
        if self.model_parallel_size(case) > 1 or self.strategy(case).periodic:
            return 0.0
        return 1 / 64 if self.synchronous(case) else 1 / 4096

    def sidecars(self, case: Configuration) -> tuple[tuple[str, ...], ...]:
        """Return the programs to run alongside the ranks (parameter servers, schedulers).

        Each is a tuple: a file of the bundle, then its arguments. Called for every launch. The launcher starts each
        program with the framework's interpreter on the placement's first host, where the ranks meet; some launchers
        require that host to be this machine. Each program has the ranks' variables, MASTER_ADDR and MASTER_PORT among
        them. It is ended when the ranks are done; if it fails before, the case ends.
        """
        return ()


Adapters = Mapping[str, Adapter]  # by name
