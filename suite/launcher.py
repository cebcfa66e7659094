"""What a launcher is: it turns a placement into token lists, and starts nothing itself."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path

from suite.case import Placement


@dataclass(frozen=True)
class Process:
    """One process to start: tokens (no shell), variables to add, the rank if it is one."""

    tokens: tuple[str, ...]
    environ: dict[str, str] = field(default_factory=dict)
    rank: int | None = None  # None: an engine that starts the ranks, or a companion
    companion: bool = False  # runs beside the ranks and is ended when they are done
    known_by: tuple[str, ...] = ()  # tokens to call a companion by, where others start it


@dataclass(frozen=True)
class Request:
    """What is to be launched."""

    placement: Placement
    command: tuple[str, ...]  # the worker's tokens, the same on every rank
    interpreter: Path  # the framework's Python; engines of the same environment stand beside it
    environ: dict[str, str]  # variables that every rank must see
    folder: Path  # the attempt's folder, for hostfiles and batch scripts
    port: int = 0  # a free port on the first host, for rendezvous
    companions: tuple[tuple[str, ...], ...] = ()  # tokens of programs to start beside the ranks


class Launcher(ABC):
    """A way of starting the ranks of a case."""

    name: str
    title: str
    companions_on_first_host = False  # True: wherever that is; False: they run on this machine

    @abstractmethod
    def missing(self, placement: Placement, interpreter: Path) -> str | None:
        """What this machine lacks for it, with the remedy; None when it can be used."""

    @abstractmethod
    def processes(self, request: Request) -> list[Process]:
        """The processes to start, as token lists."""
