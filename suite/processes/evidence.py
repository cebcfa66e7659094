"""All that is known when an attempt is over: messages, deaths, and what logs and engines say of ranks that died.

Memory that ran out is proven by the kernel's count of its kills or by a library's own words. A SIGKILL alone proves
nothing: people, engines and sites send it, too.
"""

import signal
import socket
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from stagebench.suite.contracts.engine_messages import EngineMessage, OomKills
from stagebench.suite.contracts.launcher import LOGINS, FailurePatterns, Process, sidecar_name
from stagebench.suite.processes.group import Death
from stagebench.suite.processes.mailbox import LineReader
from stagebench.suite.processes.watchdog import Stopped
from stagebench.suite.text import plain
from stagebench.suite.worker.guard import control_groups, lines_of
from stagebench.suite.worker.messages import Hello, Message, of_type

WINDOW = 65536  # bytes of a log's end that are read
WIDTH = 300  # characters of a line that are kept
# Signals that only end a rank; SIGABRT and SIGTERM are also how a library answers another rank's end.
NO_ANSWER = (signal.SIGKILL, signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE)
ROOT = Path("/")

# The messages of libraries below the frameworks, in any case of letters, and where they come from.
# A framework's own phrases are its adapter's (stagebench.suite.contracts.adapter.Adapter.out_of_memory).
PHRASES = (
    "MemoryError",  # Python; a reader's process passes it on as text
    "[Errno 12]",  # Python's OSError for ENOMEM, as of fork(2)
    "std::bad_alloc",  # C++, caught or on the way to abort(3)
    "out of memory",  # cudaGetErrorString, and with it NCCL; XLA; MPI_Error_string of MPI_ERR_NO_MEM
    "OUT_OF_MEMORY",  # CUDA_ERROR_OUT_OF_MEMORY of the driver
    "STATUS_ALLOC_FAILED",  # cuBLAS, cuDNN before 9, cuSOLVER, cuSPARSE: resources of their own on the device
    "ALLOCATION_FAILED",  # CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED, and of the host, of cuDNN 9
    "MPI_ERR_NO_MEM",  # MPI 4.1, section 9.4
)
SIGNALS = {signal.strsignal(number): int(number) for number in signal.valid_signals()}


@dataclass(frozen=True)
class Login:
    """An engine's login on another host that has ended, as `stagebench.suite.worker.guard` reports it."""

    host: str
    code: int  # as the program's that logged in; -N for signal N
    time_s: float  # seconds since the epoch


decode_login = partial(
    TypeAdapter(Login).validate_json, strict=True
)  # made once: ranks are looked at ten times a second


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
    oom_kills: Mapping[str, int]  # during the attempt, by each host whose kernel counts them
    out_of_memory: tuple[str, ...]  # the framework's phrases for it
    folder: Path
    free: float  # bytes on its disk: the least from the first end of a process until all were to end

    def to_record(self) -> dict[str, Any]:
        """Return the part that a record keeps."""
        logs = sorted((*self.folder.glob("rank-*.log"), *self.folder.glob("launcher-*.log")))
        return {
            "exit_codes": {self.name_of(death): death.code for death in sorted(self.deaths, key=lambda d: d.index)},
            "stopped": asdict(self.stopped) if self.stopped else None,
            "engine": self.engine_messages,
            "lost_logins": [asdict(login) for login in self.lost],
            "oom_kills": sum(self.oom_kills.values()),
            "logs": {path.name: last_lines(path, 20) for path in logs},
        }

    def name_of(self, death: Death) -> str:
        if death.rank is not None:
            return f"rank {death.rank}"
        return sidecar(self.processes[death.index]) if self.processes[death.index].sidecar else self.engine_name

    def sent(self, rank: int, kind: type) -> bool:
        """Return whether a rank sent a message of this type."""
        return any(isinstance(message, kind) for message in self.messages[rank])

    def hello(self, rank: int) -> Hello | None:
        return next(iter(of_type(Hello, self.messages[rank])), None)

    def host(self, rank: int) -> str | None:
        hello = self.hello(rank)
        return hello.host if hello else None

    def kills(self, rank: int | None) -> int:
        """Return how many processes a rank's host killed to free memory; those of all hosts if its host is unknown."""
        host = None if rank is None else self.host(rank)
        return sum(self.oom_kills.values()) if host is None else self.oom_kills.get(host, 0)

    @property
    def engine_name(self) -> str:
        engines = (process for process in self.processes if process.rank is None and not process.sidecar)
        return next((Path((process.known_by or process.tokens)[0]).name for process in engines), "engine")


def sidecar(process: Process) -> str:
    """Return a sidecar's name: its file and arguments, without the interpreter and its switches."""
    return sidecar_name(process.known_by or process.tokens)


def last_lines(path: Path, count: int) -> list[str]:
    """Return up to `count` last lines of a log that are not blank, however large it is; none without the file."""
    try:
        with path.open("rb") as stream:
            stream.seek(0, 2)
            stream.seek(max(0, stream.tell() - WINDOW))
            text = stream.read().decode(errors="replace")
    except FileNotFoundError:
        return []
    lines = (plain(line).rstrip()[:WIDTH] for line in text.splitlines())
    return [line for line in lines if line.strip()][-count:]


def lost_logins(folder: Path) -> list[Login]:
    """Return the logins that ended badly, in that order."""
    reader = LineReader(folder / LOGINS, decode_login)
    ended = list(reader.new())
    reader.close()
    return [login for login in ended if login.code != 0]


def missed(log: Path, patterns: FailurePatterns) -> tuple[str | None, int | None] | None:
    """Return (host, the rank that missed it) of the rank that others missed first, if the engine's log shows one."""
    text = "\n".join(last_lines(log, 100))
    matches = [match for pattern in patterns.losses if (match := pattern.search(text))]
    groups = {name: words for match in matches for name, words in match.groupdict().items() if words}
    return (groups.get("host"), int(groups["by"]) if "by" in groups else None) if groups else None


def named_deaths(log: Path, patterns: FailurePatterns, pids: dict[int, int]) -> list[tuple[int, int]]:
    """Return (rank, exit code or -signal) of each dead rank that an engine's log names, the likely first one first.

    `pids` maps process numbers to ranks, as the ranks reported when they started.
    """
    text = "\n".join(last_lines(log, 100))
    unsure = bool(patterns.masks_signals) and patterns.masks_signals in text
    deaths = []
    for match in (match for pattern in patterns.deaths for match in pattern.finditer(text)):
        groups = {name: words.strip() for name, words in match.groupdict().items() if words}
        rank = int(groups["rank"]) if "rank" in groups else pids.get(int(groups["pid"]))
        number = SIGNALS.get(groups["strsignal"]) if "strsignal" in groups else int(groups.get("signal", 0))
        if rank is not None and number is not None:  # else it names none of the ranks, or no signal that exists
            code = int(groups.get("code", 0))
            deaths.append((rank, -number or (-code if unsure and code in NO_ANSWER else code)))
    if patterns.any_order:
        deaths.sort(key=lambda death: -death[1] not in NO_ANSWER)
    return deaths


def ran_out(text: str, phrases: Iterable[str]) -> bool:
    """Return whether a message reports memory that ran out, in a library's words or in a framework's own `phrases`."""
    lower = text.lower()
    return any(phrase.lower() in lower for phrase in (*PHRASES, *phrases))


def ends_all(root: Path = ROOT) -> bool:
    """Return whether the kernel, when memory runs out, kills a whole control group that this process is in.

    It does in version 2 if `memory.oom.group` is 1, in the process's own group or in one around it. To a container its
    own group may look like the root.
    """
    top = root / "sys/fs/cgroup"
    for number, _, path in control_groups(f"{root}/"):
        group = top / path.lstrip("/")
        around = [group, *(parent for parent in group.parents if parent.is_relative_to(top))]
        if number == "0" and any("1" in lines_of(str(each / "memory.oom.group")) for each in around):
            return True
    return False


def by_host(ours: int, reported: Iterable[OomKills]) -> dict[str, int]:
    """Return the kills of each host: `ours` on this one, and those that other hosts reported.

    Several logins or ranks of a host read the same kernel's count: the highest is its own.
    """
    kills = {socket.gethostname(): ours}
    for report in reported:
        kills[report.host] = max(report.processes, kills.get(report.host, 0))
    return kills
