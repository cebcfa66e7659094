"""What an adapter's `plugin.py` declares: the controller's view of a framework.

The declaration is data and two questions; nothing here imports the framework. A whole
plan is checked against it before anything starts.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from suite.contracts.backend import Backend
from suite.contracts.case import Configuration
from suite.contracts.deep import DEEP, Between, Environ
from suite.contracts.knobs import Knob

Share = Annotated[float, Between(0, 1)]
Pieces = Annotated[int, Between(1)]  # devices, microbatches


@dataclass(frozen=True)
class Strategy:
    """How the training is spread over devices."""

    __pydantic_config__ = DEEP

    name: str
    trainer: str  # "adapters.pytorch.strategies.ddp:DDP": its class, imported inside the bundle
    help: str
    # Names of the only launchers that can start it, the first for a plan's "auto"; (): all that have what it wants.
    launchers: tuple[str, ...] = ()
    distributed: bool = True  # False: one rank only
    several_devices: bool = False  # True: a rank may drive several devices
    synchronous: bool = True  # its result equals one device with the joined batch; False: asynchronous, quantised, ...
    # Stages that can be separated: a missing one happens inside another one, its own method
    # does nothing; without "communication" there is no comm_only pass, without "io" no io_only pass.
    separable: tuple[str, ...] = ("io", "h2d", "forward", "backward", "communication", "update")
    # True: all its devices hold one network together, each a part; a knob's name: so many of them in a row do.
    model_parallel: bool | str = False
    # What one network is cut into for the devices that hold it, so that a plan refuses one with too few of them:
    # stages of layers (one behind the other), or branches of blocks (side by side); "": every network can be cut.
    cut: Literal["", "layers", "layers where one value crosses", "branches"] = ""
    microbatches: str = ""  # the knob that says in how many pieces a network takes its batch
    changing_rate: bool = False  # True: the learning rate may change while it trains (`Trainer.set_learning_rate`)
    keeps_rate: str = ""  # why it may not, for the refusal: "its servers update by optimisers of their own"
    periodic: bool = False  # its devices exchange only every so many steps: a short pass may end before
    # True: its ranks meet by MPI, and want a launcher that brings it; a name, "Open MPI": by that library, where no
    # mpi4py of the environment tells which.
    mpi: bool | str = False
    # Why it cannot train so, by (knob or "device", value): {("device", "cpu"): "it knows no CPU devices; ..."}.
    refuses: dict[tuple[str, Any], str] = field(default_factory=dict)


KINDS = {"folder": "image folders", "arrays": "array files"}  # of data sets, in words


@dataclass(frozen=True)
class Format:
    """A record format that the framework's own reader takes; its trainer packs it (`stagebench data convert`)."""

    __pydantic_config__ = DEEP

    name: str  # "tfrecord"
    help: str
    kinds: tuple[str, ...] = ("folder",)  # of the data sets it can hold: "folder" (of images), "arrays"
    ordered: bool = False  # samples can be had in the order asked for; else the reader shuffles in its own way
    scaling: str = ""  # why its reader scales images by another filter than workloads.preprocessing's, where it must
    whole: bool = True  # images are whole, so that random crops can be cut; False: they were cut when packed


@dataclass(frozen=True)
class Capabilities:
    """All that a plan may ask of an adapter."""

    __pydantic_config__ = DEEP

    strategies: tuple[Strategy, ...]
    devices: tuple[str, ...] = ("cpu",)
    precisions: tuple[str, ...] = ("float32",)
    # What it does beside them on devices of a kind: {"cuda": ("tf32", "float16")}.
    device_precisions: dict[str, tuple[str, ...]] = field(default_factory=dict)
    tunings: tuple[str, ...] = ("default", "tuned")
    layer_kinds: tuple[str, ...] = ()  # empty: every kind of workloads.kinds
    knobs: dict[str, Knob] = field(default_factory=dict)
    real_data: bool = True
    optimisers: tuple[str, ...] = ("sgd",)
    # Why it does not do a value that others do: {("device", "cuda"): "it keeps its weights in host memory"}.
    refuses: dict[tuple[str, str], str] = field(default_factory=dict)
    formats: tuple[Format, ...] = ()  # beside the files as they stand; the first that holds a set is its "best"

    def precisions_on(self, device: str) -> tuple[str, ...]:
        """All that it does on a kind of device."""
        return (*self.precisions, *self.device_precisions.get(device, ()))

    def all_precisions(self) -> tuple[str, ...]:
        """What it does on any device."""
        more = (name for found in self.device_precisions.values() for name in found)
        return tuple(dict.fromkeys((*self.precisions, *more)))

    def strategy(self, name: str) -> Strategy | None:
        """The strategy of that name, or None."""
        return next((strategy for strategy in self.strategies if strategy.name == name), None)

    def format(self, name: str) -> Format | None:
        """The record format of that name, or None."""
        return next((form for form in self.formats if form.name == name), None)


class Adapter(ABC):
    """A framework as the controller sees it; one instance is registered per adapter."""

    contract: int  # the version of suite.contracts.versions that it was written for
    name: str  # also its folder and its tox environment
    title: str  # "PyTorch"
    package: str  # "adapters.pytorch": its worker half, which the bundle holds
    requires: tuple[str, ...] = ()  # modules that its interpreter must have
    optional: tuple[str, ...] = ()  # modules that it may have; what imports one raises Unavailable where it is missing
    environment: str | None = None  # tox environment; None: any interpreter with NumPy does
    remedy: str = ""  # the command that makes its environment, and behind "  # " what to know of it
    builds_on: tuple[str, ...] = ()  # packages of other adapters whose worker half its own uses: they travel with it
    oracle: bool = False  # whether it is the one, in float64, that every other is proven against
    # Phrases by which its framework says that memory ran out, in any case of letters; those of Python, C++, CUDA and
    # MPI are known (suite.processes.oom). An error with one of them is the outcome `oom`, not a crash.
    out_of_memory: tuple[str, ...] = ()
    # Beginnings of the names of its framework's variables, beside those of common libraries (suite.worker.variables):
    arithmetic_variables: tuple[str, ...] = ()  # what is computed; their values are part of a proof's key
    exchange_variables: tuple[str, ...] = ()  # how ranks exchange; every rank reports both
    other_variables: tuple[str, ...] = ()  # among both: where, or how many, and not how
    backends: tuple[Backend, ...] = ()  # its libraries that `stagebench comm` measures by themselves
    # The kind of job by which Kubernetes' training operator starts its ranks on several nodes; "": MPI's, for all.
    kubernetes_job: str = ""

    @property
    @abstractmethod
    def capabilities(self) -> Capabilities:
        """What it can do, whatever the machine."""

    def strategy(self, case: Configuration) -> Strategy:
        """What is declared of the case's strategy; KeyError where the adapter has none of that name."""
        found = self.capabilities.strategy(case.strategy)
        if found is None:
            raise KeyError(f"{self.name} has no strategy {case.strategy!r}")
        return found

    def synchronous(self, case: Configuration) -> bool:
        """Whether its devices together do what one does with the joined batch; a knob may take it from a strategy."""
        relaxing = {name: knob.relaxing for name, knob in self.capabilities.knobs.items() if knob.relaxing}
        relaxed = any(case.knobs[name] in values for name, values in relaxing.items())
        return self.strategy(case).synchronous and not relaxed

    def model_parallel_size(self, case: Configuration) -> Pieces:
        """Devices that hold one network together, each a part of it: 1, or a divisor of all that the case has.

        As the strategy's `model_parallel` says. A rank's devices count as one network's when there are parts.
        `case.batch` is per device all the same: a network held by n devices takes n batches at once.
        """
        held = self.strategy(case).model_parallel
        if isinstance(held, str):
            return int(case.knobs[held])
        return case.placement.device_count if held else 1

    def microbatches(self, case: Configuration) -> Pieces:
        """Equal pieces in which a network takes its batch, one after the other, each normalised by itself."""
        knob = self.strategy(case).microbatches
        return int(case.knobs[knob]) if knob else 1

    def mpi(self, case: Configuration) -> str:
        """The MPI library by which the ranks meet, as a knob or the strategy declares it; "": none that it knows of."""
        for name, knob in self.capabilities.knobs.items():
            if knob.mpi and case.knobs[name] == knob.mpi[0]:
                return knob.mpi[1]
        library = self.strategy(case).mpi
        return library if isinstance(library, str) else ""

    def unsupported(self, case: Configuration) -> str | None:
        """Why this case cannot be done by this adapter, beyond what capabilities say; None when it can."""
        return None

    def missing(self, interpreter: Path) -> str | None:
        """What this machine lacks beyond Python modules (a library, a driver), with the remedy; None: nothing."""
        return None

    def unreadable(self, form: Format) -> str | None:
        """What this machine lacks for the reader of one of `formats`, with the remedy; None: nothing.

        Cases in that format are unavailable here, and "best" never is that one.
        """
        return None

    def decoding(self, case: Configuration) -> str:
        """Why image files are decoded by other rules than libjpeg-turbo's; "": they are not.

        Their pixels are then held to a looser bound, which this is the reason for.
        """
        return ""

    def environ(self, case: Configuration, interpreter: Path) -> Environ:
        """Environment variables that its processes need, beyond thread counts."""
        return {}

    def wire_share(self, case: Configuration) -> Share:
        """The least part of the gradients' bytes that every host must send to others in a step; 0: nobody can tell.

        Ranks on several hosts that send less have met elsewhere than on the wire: a crash. A ring's hosts send
        all of them, so this is generous, and more so where gradients are quantised.
        """
        if self.model_parallel_size(case) > 1 or self.strategy(case).periodic:
            return 0.0
        return 1 / 64 if self.synchronous(case) else 1 / 4096

    def sidecars(self, case: Configuration) -> tuple[tuple[str, ...], ...]:
        """Programs that run beside the ranks (parameter servers, schedulers): a file of the bundle, its arguments.

        The launcher starts each with the framework's interpreter on the placement's first host,
        where the ranks meet; some launchers want this machine to be that. Each has the ranks' variables (MASTER_ADDR
        and MASTER_PORT among them). They are ended when the ranks are done; one that fails before
        that ends the case.
        """
        return ()
