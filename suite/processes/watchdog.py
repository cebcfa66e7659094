"""Decides when a group of ranks must be ended: too long, too silent, or one of them dead."""

import time
from dataclasses import dataclass
from typing import Literal

from suite.contracts.engine_messages import Begun, EngineMessage
from suite.processes.group import Death
from suite.processes.lost_logins import Login
from suite.worker.messages import Done, Failed, Joined, Message

GRACE = 5.0  # seconds that the others get after one rank's death, to report what they saw


@dataclass(frozen=True)
class Limits:
    """How long a group may take."""

    total_s: float  # for the whole group
    silence_s: float  # without any message from a rank that is not done
    joining_s: float | None = None  # the same until it has joined; None: `silence_s`


@dataclass(frozen=True)
class Stopped:
    """Why the group was ended by us."""

    why: Literal["time", "silence", "grace"]
    limit_s: float  # the one that was passed
    rank: int | None = None  # the silent one


class Watchdog:
    """Receives messages, learns of deaths; `verdict` says whether to end the group now."""

    def __init__(self, limits: Limits, ranks: int, queued: bool = False) -> None:
        """The clocks start at once; for who is queued, when the engine reports it."""
        now = time.monotonic()
        self._limits = limits
        self._began = now
        self._last_received = dict.fromkeys(range(ranks), now)
        self._done: set[int] = set()
        self._joined: set[int] = set()
        self._failed_at: float | None = None
        self._queued = queued
        self.stopped: Stopped | None = None

    def received(self, rank: int, message: Message) -> None:
        """A rank's message: it lives, or reports that it does not."""
        self._last_received[rank] = time.monotonic()
        if isinstance(message, Joined):
            self._joined.add(rank)
        if isinstance(message, Done):
            self._done.add(rank)
        if isinstance(message, Failed):
            self._fail()

    def engine_reported(self, message: EngineMessage) -> None:
        """A message of the engine; who is queued is neither late nor silent."""
        if isinstance(message, Begun):
            self._queued = False
            self._began = time.monotonic()
            self._last_received = dict.fromkeys(self._last_received, self._began)

    def rested(self, seconds: float) -> None:
        """So long the ranks waited while others had their turns, which no limit counts."""
        self._began += seconds
        self._last_received = {rank: at + seconds for rank, at in self._last_received.items()}

    def verdict(self, deaths: list[Death], lost: list[Login] | None = None) -> Stopped | None:
        """Why the group must be ended now, or None; a host that is lost does not come back."""
        if lost or any(death.code != 0 for death in deaths):
            self._fail()
        now = time.monotonic()
        if self._failed_at is not None:
            self.stopped = Stopped("grace", GRACE) if now - self._failed_at > GRACE else None
        elif self._queued:
            self.stopped = None
        elif now - self._began > self._limits.total_s:
            self.stopped = Stopped("time", self._limits.total_s)
        else:
            self.stopped = self._silence(now)
        return self.stopped

    def _fail(self) -> None:
        self._failed_at = self._failed_at or time.monotonic()

    def _silence(self, now: float) -> Stopped | None:
        # Who is done may wait for the others in silence; when all are done, leaving may not last either.
        watched = {rank: at for rank, at in self._last_received.items() if rank not in self._done} or {
            -1: max(self._last_received.values())
        }
        late = {rank: now - at - self._patience(rank) for rank, at in watched.items()}
        rank = max(late, key=lambda rank: late[rank])
        return Stopped("silence", self._patience(rank), rank if rank >= 0 else None) if late[rank] > 0 else None

    def _patience(self, rank: int) -> float:
        early = self._limits.joining_s is not None and rank >= 0 and rank not in self._joined
        return float(self._limits.joining_s or 0.0) if early else self._limits.silence_s
