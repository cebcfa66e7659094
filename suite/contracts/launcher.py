"""What a launcher is: it turns a placement into token lists, and starts nothing itself."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path

from suite.contracts.case import Placement

LOGINS = "logins.jsonl"  # in an attempt's folder: how an engine's logins on other hosts ended, a line each


@dataclass(frozen=True)
class Process:
    """One process to start: tokens (no shell), variables to add, the rank if it is one."""

    tokens: tuple[str, ...]
    environ: dict[str, str] = field(default_factory=dict)
    rank: int | None = None  # None: an engine that starts the ranks, or a sidecar
    sidecar: bool = False  # runs beside the ranks and is ended when they are done
    known_by: tuple[str, ...] = ()  # tokens to call an engine or sidecar by, where others start it
    queues: bool = False  # its ranks wait for their turn until it says that they have begun; no limit counts before
    patience: float = 3.0  # seconds that it gets to end by itself, once it is asked to


@dataclass(frozen=True)
class Request:
    """What is to be launched."""

    placement: Placement
    command: tuple[str, ...]  # the worker's tokens, the same on every rank
    interpreter: Path  # the framework's Python; engines of the same environment stand beside it
    environ: dict[str, str]  # variables that every rank must see
    folder: Path  # the attempt's folder, for hostfiles and batch scripts
    port: int = 0  # a free port on the first host, for rendezvous
    sidecars: tuple[tuple[str, ...], ...] = ()  # tokens of programs to start beside the ranks
    seconds: float = 1800.0  # the case's time limit, for engines that must know one
    mpi: str = ""  # the library by which the ranks meet, where the adapter names it (suite.contracts.adapter.Strategy)


class Launcher(ABC):
    """Starts the ranks of a case.

    An engine that has more to report than an exit code does so with `suite.contracts.engine_messages`.
    """

    name: str
    title: str
    several_hosts = True  # False: it starts processes on this machine, and on no other
    chooses_hosts = False  # True: where no host is named it takes some that may be elsewhere
    sidecars_on_first_host = False  # True: wherever that is; False: they run on this machine
    mpi = False  # True: its ranks can meet by MPI
    nodes_in_order = True  # False: it numbers the nodes as it likes, however the hosts were named

    @abstractmethod
    def missing(self, placement: Placement, interpreter: Path) -> str | None:
        """What this machine lacks for it, with the remedy; None when it can be used."""

    @abstractmethod
    def processes(self, request: Request) -> list[Process]:
        """The processes to start, as token lists."""
