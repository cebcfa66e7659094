"""What a launcher is: it turns a placement into token lists, and starts nothing itself."""

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from suite.contracts.adapter import Strategy
from suite.contracts.case import Placement
from suite.contracts.deep import DEEP, Environ

LIMITED = "suite/worker/memory_limit.py"  # of a bundle: starts another one of its files with a limit of memory
LOGINS = "logins.jsonl"  # in an attempt's folder: how an engine's logins on other hosts ended, a line each


@dataclass(frozen=True)
class RankVariables:
    """The environment variables by which an engine gives each rank its numbers; `environ` is for every rank.

    A launcher that starts each rank itself sets STAGEBENCH_RANK, STAGEBENCH_WORLD and STAGEBENCH_LOCAL_RANK instead.
    """

    rank: str
    world: str
    local_rank: str  # among the ranks of a host

    @property
    def environ(self) -> dict[str, str]:
        """What makes `suite.worker.ranks` read them."""
        return {"STAGEBENCH_RANK_VARIABLES": f"{self.rank},{self.world},{self.local_rank}"}


@dataclass(frozen=True)
class FailurePatterns:
    """How an engine names, in what it prints, a rank that ended without a report of its own.

    They are searched for, the first pattern first, in the last 100 lines of the engine's log, all lines at once.
    """

    __pydantic_config__ = DEEP

    # Of a rank that died: the group `rank`, or `pid` (as the rank knows it); and one or more of `code`, `signal`
    # (numbers) and `strsignal` (the words of strsignal(3)).
    deaths: tuple[re.Pattern[str], ...] = ()
    any_order: bool = False  # hosts are reported as they answer: a rank that was killed goes before one that left
    masks_signals: str = ""  # words beside which `code` may be a signal's number
    # Of a rank that others missed first: the group `host`, where it was, or `by`, the rank that missed it.
    losses: tuple[re.Pattern[str], ...] = ()

    def __post_init__(self) -> None:
        """ValueError for a pattern that names nobody."""
        for patterns, groups in ((self.deaths, {"rank", "pid"}), (self.losses, {"host", "by"})):
            for pattern in patterns:
                if groups.isdisjoint(pattern.groupindex):
                    raise ValueError(
                        f"the pattern {pattern.pattern!r} has no group named {' or '.join(sorted(groups))}"
                    )


@dataclass(frozen=True)
class Process:
    """One process to start: tokens (no shell), variables to add, the rank if it is one."""

    __pydantic_config__ = DEEP

    tokens: tuple[str, ...]
    environ: Environ = field(default_factory=dict)
    rank: int | None = None  # None: an engine that starts the ranks, or a sidecar
    sidecar: bool = False  # runs beside the ranks and is ended when they are done
    known_by: tuple[str, ...] = ()  # tokens to call an engine or sidecar by, where others start it
    queues: bool = False  # its ranks wait for their turn until it says that they have begun; no limit counts before
    patience: float = 3.0  # seconds that it gets to end by itself, once it is asked to
    failures: FailurePatterns = FailurePatterns()  # by which it names ranks, where it is an engine
    undo: tuple[str, ...] = ()  # tokens that end what it holds elsewhere: run where it was killed, and could not
    scratch: Path | None = None  # a folder that it may make, and that goes with it


def sidecar_name(tokens: Sequence[str]) -> str:
    """Its file and arguments, without the interpreter, its switches, and a limit of memory."""
    files = (at for at, token in enumerate(tokens) if token.endswith(".py") and not token.endswith(LIMITED))
    begin = next(files, 0)
    return " ".join((Path(tokens[begin]).name, *tokens[begin + 1 :]))


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
    several_hosts: bool = True  # False: it starts processes on this machine, and on no other
    chooses_hosts: bool = False  # True: where no host is named it takes some that may be elsewhere
    sidecars_on_first_host: bool = False  # True: wherever that is; False: they run on this machine
    mpi: bool = False  # True: its ranks can meet by MPI
    nodes_in_order: bool = True  # False: it numbers the nodes as it likes, however the hosts were named
    order: float = 100  # where a plan says "auto", the least is taken of those that fit; stagebench's own have 0 to 30

    @abstractmethod
    def missing(self, placement: Placement, interpreter: Path) -> str | None:
        """What this machine lacks for it, with the remedy; None when it can be used."""

    @abstractmethod
    def processes(self, request: Request) -> list[Process]:
        """The processes to start, as token lists."""


def starters(strategy: Strategy, launchers: Mapping[str, Launcher]) -> tuple[str, ...]:
    """The names of the launchers that can start a strategy's ranks, the first for a plan's "auto"."""
    if strategy.launchers:
        return strategy.launchers
    fitting = [each for each in launchers.values() if each.mpi or not strategy.mpi]
    return tuple(each.name for each in sorted(fitting, key=lambda each: (each.order, each.name)))


def usual(strategy: Strategy, launchers: Mapping[str, Launcher]) -> str:
    """The first of its `starters`; "auto" where there is none."""
    return next(iter(starters(strategy, launchers)), Placement.launcher)
