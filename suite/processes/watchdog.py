"""Decides when a group of ranks must be ended: too long, too silent, or one of them dead."""

import time
from dataclasses import dataclass
from typing import Literal

from stagebench.suite.contracts.engine_messages import Begun, EngineMessage
from stagebench.suite.processes.group import Death
from stagebench.suite.worker.messages import Done, Failed, Joined, Message

GRACE = 5.0  # seconds after one rank's death, in which the others may report what they saw


@dataclass(frozen=True)
class Limits:
    """The seconds that a group may take."""

    total_s: float  # for the whole group
    silence_s: float  # without any message from a rank that is not done
    joining_s: float | None = None  # in place of `silence_s` until a rank has joined; None: no difference


@dataclass(frozen=True)
class Stopped:
    """The reason why the controller ended the group."""

    why: Literal["time", "silence", "grace"]
    limit_s: float  # the one that was passed
    rank: int | None = None  # the silent one


class Watchdog:
    """Receives messages and learns of deaths; `verdict` decides whether the group must be ended now."""

    def __init__(self, limits: Limits, ranks: int, queued: bool = False) -> None:
        """The clocks start at once, or, if the ranks are queued, when the engine reports their beginning."""
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
        """Take a rank's message as a sign of life, or as the report of its failure."""
        self._last_received[rank] = time.monotonic()
        if isinstance(message, Joined):
            self._joined.add(rank)
        if isinstance(message, Done):
            self._done.add(rank)
        if isinstance(message, Failed):
            self._fail()

    def engine_reported(self, message: EngineMessage) -> None:
        """Take a message of the engine: ranks that are queued are neither late nor silent."""
        if isinstance(message, Begun):
            self._queued = False
            self._began = time.monotonic()
            self._last_received = dict.fromkeys(self._last_received, self._began)

    def rested(self, seconds: float) -> None:
        """Take `seconds` out of all limits: the ranks waited while others had their turns."""
        self._began += seconds
        self._last_received = {rank: at + seconds for rank, at in self._last_received.items()}

    def verdict(self, deaths: list[Death], lost: bool = False) -> Stopped | None:
        """Return why the group must be ended now, or None. `lost`: a login on another host has ended badly."""
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
        # A rank that is done may wait for the others in silence; once all are done, they must leave in time, too.
        watched = {rank: at for rank, at in self._last_received.items() if rank not in self._done} or {
            -1: max(self._last_received.values())
        }
        late = {rank: now - at - self._patience(rank) for rank, at in watched.items()}
        rank = max(late, key=lambda rank: late[rank])
        return Stopped("silence", self._patience(rank), rank if rank >= 0 else None) if late[rank] > 0 else None

    def _patience(self, rank: int) -> float:
        early = self._limits.joining_s is not None and rank >= 0 and rank not in self._joined
        return float(self._limits.joining_s or 0.0) if early else self._limits.silence_s
