"""All that is known when an attempt is over."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from suite.contracts.launcher import Process
from suite.supervision.logins import Login
from suite.supervision.logs import last_lines
from suite.supervision.processes import Death
from suite.supervision.watchdog import Stopped


@dataclass(frozen=True)
class Facts:
    """All that is known when an attempt is over."""

    ranks: int
    messages: dict[int, list[dict[str, Any]]]
    last_words: dict[int, dict[str, Any]]  # each rank's last message, progress too
    engine_words: list[dict[str, Any]]  # suite.supervision.engine_words
    processes: list[Process]
    deaths: list[Death]
    lost: list[Login]  # the engine's on other hosts that ended badly
    stopped: Stopped | None
    oom_kills: int  # of the kernel, meanwhile
    folder: Path

    def evidence(self) -> dict[str, Any]:
        """What a record keeps, ready for JSON."""
        logs = sorted((*self.folder.glob("rank-*.log"), *self.folder.glob("launcher-*.log")))
        return {
            "exit_codes": {self.called(death): death.code for death in sorted(self.deaths, key=lambda d: d.index)},
            "stopped": asdict(self.stopped) if self.stopped else None,
            "engine": self.engine_words,
            "lost_logins": [asdict(login) for login in self.lost],
            "oom_kills": self.oom_kills,
            "logs": {path.name: last_lines(path, 20) for path in logs},
        }

    def called(self, death: Death) -> str:
        """Who died."""
        if death.rank is not None:
            return f"rank {death.rank}"
        return companion(self.processes[death.index]) if self.processes[death.index].companion else self.engine

    def said(self, rank: int, type: str) -> bool:
        """Whether a rank sent a message of this type."""
        return any(message["type"] == type for message in self.messages[rank])

    def host(self, rank: int) -> str | None:
        """The host that a rank said it runs on."""
        return next((message.get("host") for message in self.messages[rank] if message["type"] == "hello"), None)

    @property
    def engine(self) -> str:
        """What the engine that starts the ranks is called."""
        engines = (process for process in self.processes if process.rank is None and not process.companion)
        return next((Path((process.known_by or process.tokens)[0]).name for process in engines), "engine")


def companion(process: Process) -> str:
    """What a companion is called: its file and arguments, without the interpreter and its switches."""
    tokens = process.known_by or process.tokens
    begin = next((i for i, token in enumerate(tokens) if token.endswith(".py")), 0)
    return " ".join((Path(tokens[begin]).name, *tokens[begin + 1 :]))
