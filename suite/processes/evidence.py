"""All that is known when an attempt is over."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from suite.contracts.engine_messages import CODEC, EngineMessage
from suite.contracts.launcher import Process, sidecar_name
from suite.processes.group import Death
from suite.processes.logs import last_lines
from suite.processes.lost_logins import Login
from suite.processes.watchdog import Stopped
from suite.worker.messages import Hello, Message, of_type
from suite.worker.typed_json import to_json


@dataclass(frozen=True)
class Evidence:
    """All that is known when an attempt is over."""

    ranks: int
    messages: dict[int, list[Message]]  # without progress
    last: dict[int, Message]  # each rank's last message, progress too
    engine_messages: list[EngineMessage]
    processes: list[Process]
    deaths: list[Death]
    lost: list[Login]  # the engine's on other hosts that ended badly
    stopped: Stopped | None
    oom_kills: Mapping[str, int]  # of the kernel of each host that tells, meanwhile
    out_of_memory: tuple[str, ...]  # the framework's phrases for it
    folder: Path
    free: float  # bytes on its disk: the least from the first end of a process until all were to end

    def to_record(self) -> dict[str, Any]:
        """What a record keeps, ready for JSON."""
        logs = sorted((*self.folder.glob("rank-*.log"), *self.folder.glob("launcher-*.log")))
        return {
            "exit_codes": {self.called(death): death.code for death in sorted(self.deaths, key=lambda d: d.index)},
            "stopped": asdict(self.stopped) if self.stopped else None,
            "engine": [{"type": CODEC.name_of(each), **to_json(each)} for each in self.engine_messages],
            "lost_logins": [asdict(login) for login in self.lost],
            "oom_kills": sum(self.oom_kills.values()),
            "logs": {path.name: last_lines(path, 20) for path in logs},
        }

    def called(self, death: Death) -> str:
        if death.rank is not None:
            return f"rank {death.rank}"
        return sidecar(self.processes[death.index]) if self.processes[death.index].sidecar else self.engine_name

    def sent(self, rank: int, kind: type) -> bool:
        """Whether a rank sent a message of this type."""
        return any(isinstance(message, kind) for message in self.messages[rank])

    def hello(self, rank: int) -> Hello | None:
        return next(iter(of_type(Hello, self.messages[rank])), None)

    def host(self, rank: int) -> str | None:
        hello = self.hello(rank)
        return hello.host if hello else None

    def kills(self, rank: int | None) -> int:
        """Processes that the kernel of a rank's host ended for want of memory; of all, where nobody knows the host."""
        host = None if rank is None else self.host(rank)
        return sum(self.oom_kills.values()) if host is None else self.oom_kills.get(host, 0)

    @property
    def engine_name(self) -> str:
        engines = (process for process in self.processes if process.rank is None and not process.sidecar)
        return next((Path((process.known_by or process.tokens)[0]).name for process in engines), "engine")


def sidecar(process: Process) -> str:
    """What a sidecar is called: its file and arguments, without the interpreter and its switches."""
    return sidecar_name(process.known_by or process.tokens)
