"""The contract of a launcher: it turns a placement into token lists, and starts nothing itself."""

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from stagebench.suite.contracts.adapter import Strategy
from stagebench.suite.contracts.case import Placement
from stagebench.suite.contracts.deep import DEEP, Environ

LIMITED = "suite/worker/memory_limit.py"  # a file of the bundle that starts another one with a memory limit
LOGINS = "logins.jsonl"  # in the attempt's folder: one line for each of an engine's logins on other hosts that ended


@dataclass(frozen=True)
class RankVariables:
    """The names of the environment variables in which an engine gives each rank its numbers.

    A launcher that starts each rank itself sets STAGEBENCH_RANK, STAGEBENCH_WORLD and STAGEBENCH_LOCAL_RANK instead.
    """

    rank: str  # the rank's number, from 0
    world: str  # the number of ranks
    local_rank: str  # the rank's number among those of its host, from 0

    @property
    def environ(self) -> dict[str, str]:
        """The variable, to be set for every rank, by which `stagebench.suite.worker.ranks` knows these names."""
        return {"STAGEBENCH_RANK_VARIABLES": f"{self.rank},{self.world},{self.local_rank}"}


@dataclass(frozen=True)
class FailurePatterns:
    """Patterns of an engine's output that name a rank which ended without a message of its own.

    They are searched for in the last 100 lines of the engine's log, joined by newlines, the first pattern first.
    """

    __pydantic_config__ = DEEP

    # A rank that died. Groups: `rank`, or `pid` (as the rank reported it); and one or more of `code`, `signal`
    # (numbers) and `strsignal` (the words of strsignal(3)).
    deaths: tuple[re.Pattern[str], ...] = ()
    any_order: bool = False  # True: the engine names ranks in any order; a killed one is then blamed before others
    masks_signals: str = ""  # words in the log that mean that a `code` may be a signal's number
    # A rank that other ranks lost. Groups: `host`, the lost rank's host, or `by`, the number of the rank that lost it.
    losses: tuple[re.Pattern[str], ...] = ()

    def __post_init__(self) -> None:
        """Raise ValueError for a pattern without a group that names a rank."""
        for patterns, groups in ((self.deaths, {"rank", "pid"}), (self.losses, {"host", "by"})):
            for pattern in patterns:
                if groups.isdisjoint(pattern.groupindex):
                    raise ValueError(
                        f"the pattern {pattern.pattern!r} has no group named {' or '.join(sorted(groups))}"
                    )


@dataclass(frozen=True)
class Process:
    """A process to start on this machine: a rank, an engine that starts ranks, or a sidecar."""

    __pydantic_config__ = DEEP

    tokens: tuple[str, ...]  # the program and its arguments; there is no shell
    environ: Environ = field(default_factory=dict)  # variables to add to stagebench's own
    rank: int | None = None  # the rank's number, from 0; None: an engine or a sidecar
    sidecar: bool = False  # True: it runs alongside the ranks and is ended when they are done
    known_by: tuple[str, ...] = ()  # tokens to name an engine or sidecar by, if `tokens` begin with another program
    queues: bool = False  # True: its ranks wait in a queue; time limits count from its message `Begun`
    patience: float = 3.0  # seconds between SIGTERM and SIGKILL, to end cleanly
    failures: FailurePatterns = FailurePatterns()  # an engine's
    undo: tuple[str, ...] = ()  # tokens that end whatever it started elsewhere; run if a signal killed it
    scratch: Path | None = None  # a folder that it may make; removed when all processes have ended


def sidecar_name(tokens: Sequence[str]) -> str:
    """Return a sidecar's file and arguments, without the interpreter, its switches and a memory limit."""
    files = (at for at, token in enumerate(tokens) if token.endswith(".py") and not token.endswith(LIMITED))
    begin = next(files, 0)
    return " ".join((Path(tokens[begin]).name, *tokens[begin + 1 :]))


@dataclass(frozen=True)
class Request:
    """An attempt to be launched: the argument of `Launcher.processes`."""

    placement: Placement
    command: tuple[str, ...]  # the worker's tokens, equal for all ranks
    interpreter: Path  # the framework's Python; an engine of its environment is in the same folder
    environ: dict[str, str]  # variables that every rank and every sidecar must have
    folder: Path  # the attempt's folder, for hostfiles and batch scripts; it exists
    port: int = 0  # a TCP port at which ranks can meet on the first host; free on this machine
    sidecars: tuple[tuple[str, ...], ...] = ()  # the tokens of each program to start alongside the ranks
    seconds: float = 1800.0  # the case's time limit, for engines that need one
    mpi: str = ""  # the MPI library by which the ranks meet, if the adapter names it (`Adapter.mpi`)


class Launcher(ABC):
    """A program that starts the ranks of a case. A plugin returns one instance from the hook `stagebench_launchers`.

    Attributes and signatures are checked when the launcher is loaded. An engine that has more to report than an exit
    code does so with `stagebench.suite.contracts.engine_messages`.
    """

    name: str  # in plans and records: no two launchers have one name
    title: str  # "Slurm"
    several_hosts: bool = True  # False: it starts processes on this machine only
    chooses_hosts: bool = False  # True: if a case names no hosts, its ranks may run on other machines
    sidecars_on_first_host: bool = False  # True: sidecars run on the first host, whichever it is; False: here
    mpi: bool = False  # True: ranks that it starts can meet by MPI
    nodes_in_order: bool = True  # False: the nodes' numbers may differ from the order of the hosts
    environment: str | None = None  # of its engine's own package: the environment's name
    requirements: str = ""  # the file of that environment's packages, as an adapter's
    order: float = 100  # "auto" takes the launcher of the least number among those that fit; stagebench's have 0 to 30

    @abstractmethod
    def missing(self, placement: Placement, interpreter: Path) -> str | None:
        """Return what this machine lacks to start such a placement, with the remedy; None if it can.

        Called before anything starts, for every case, and by `stagebench doctor`; `interpreter` is the framework's
        Python. A reason makes the case `unavailable`.
        """

    @abstractmethod
    def processes(self, request: Request) -> list[Process]:
        """Return the processes to start, on this machine: ranks, or engines that start them; and the sidecars.

        Called once for each attempt, immediately before they are started. Files that an engine reads belong in
        `request.folder`. RequestError if the placement is impossible.
        """


Launchers = Mapping[str, Launcher]  # by name


def starters(strategy: Strategy, launchers: Launchers) -> tuple[str, ...]:
    """Return the names of the launchers that can start a strategy's ranks, the first one for a plan's "auto"."""
    if strategy.launchers:
        return strategy.launchers
    fitting = [each for each in launchers.values() if each.mpi or not strategy.mpi]
    return tuple(each.name for each in sorted(fitting, key=lambda each: (each.order, each.name)))


def usual(strategy: Strategy, launchers: Launchers) -> str:
    """Return the first of a strategy's `starters`; "auto" if there is none."""
    return next(iter(starters(strategy, launchers)), Placement.launcher)
