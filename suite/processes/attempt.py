"""An attempt to measure a case: start its processes, receive their messages, watch and end them, judge the result.

The evidence is what the ranks wrote (rank-N.jsonl), how their processes ended and when, and what their logs say.
Whatever happens, no process that was started outlives the attempt.
"""

import math
import os
import time
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from stagebench.suite.contracts.engine_messages import CODEC, FILE, EngineMessage, OomKills
from stagebench.suite.contracts.launcher import LOGINS, Process
from stagebench.suite.files import disk, free, probe
from stagebench.suite.processes.evidence import Evidence, by_host, lost_logins
from stagebench.suite.processes.group import Group
from stagebench.suite.processes.mailbox import LineReader, Mailbox
from stagebench.suite.processes.outcome import judge
from stagebench.suite.processes.watchdog import Limits, Watchdog
from stagebench.suite.text import plain
from stagebench.suite.worker.guard import oom_kills
from stagebench.suite.worker.messages import Joined, Message, Waiting, of_type
from stagebench.suite.worker.turns import PIPE

__all__ = ["Attempt", "Limits", "Measuring", "OnMessage", "Sent", "in_one_go", "joined", "run", "running"]

LOOK_EVERY = 0.1  # seconds; a process that ends is noticed at once
LOOK_EVERY_TURN = 0.02  # where turns are taken, because the others wait until then


@dataclass(frozen=True)
class Attempt:
    """The result of one attempt to run a task on all ranks."""

    outcome: str  # ok | unsupported | unavailable | oom | timeout | crash | diverged
    reason: str  # "" when ok; else who, what and the last lines
    messages: dict[int, list[Message]]  # of each rank, in order, without Progress
    seconds: float  # from the first start until all had ended, without the turns of other cases
    evidence: dict[str, Any]  # exit codes, last lines of the logs, limits: ready for JSON


# With turns, it yields whenever all ranks wait for theirs: True if they will want another one in this pass. Resuming it
# gives the ranks their turn. Without turns, it yields True after each look at the ranks, which never wait.
Measuring = Generator[bool, None, Attempt]
OnMessage = Callable[[int, Message], None]  # (rank, what it sent)
Sent = Mapping[int, Sequence[Message]]  # by rank
T = TypeVar("T")


def in_one_go(working: Generator[bool, None, T]) -> T:
    """Return a generator's result; no other work is done between its turns."""
    while True:
        try:
            next(working)
        except StopIteration as end:
            result: T = end.value
            return result


def run(
    processes: list[Process],
    ranks: int,
    folder: Path,
    limits: Limits,
    on_message: OnMessage,
    out_of_memory: Collection[str] = (),
) -> Attempt:
    """Run the processes to their end; `on_message(rank, message)` is called as messages come.

    `folder` is the attempt's: the ranks' files of an earlier attempt are removed, the processes run in it, and their
    own output goes to its launcher-N.log. What `on_message` raises, and KeyboardInterrupt, ends the processes and is
    passed on. `out_of_memory`: the framework's phrases for memory that ran out.
    """
    return in_one_go(running(processes, ranks, folder, limits, on_message, out_of_memory))


def running(
    processes: list[Process],
    ranks: int,
    folder: Path,
    limits: Limits,
    on_message: OnMessage,
    out_of_memory: Collection[str] = (),
    in_turns: bool = False,
    misplaced: Callable[[Sent], str | None] = lambda sent: None,
) -> Measuring:
    """Do what `run` does, with pauses; see `Measuring`. Closing the generator ends the processes.

    Ranks that take turns are all on this machine. `misplaced` returns why the ranks are not where they should be, of
    what they sent until all had joined; then nothing is measured.
    """
    prepare(folder)
    pipes = Pipes(folder, ranks if in_turns else 0)
    began, kills, rested, room = time.monotonic(), oom_kills(), 0.0, math.inf
    mailbox, engine = Mailbox(folder, ranks), LineReader(folder / FILE, CODEC.decode)
    reported: list[EngineMessage] = []
    waiting: dict[int, Waiting] = {}
    problem: str | None = None  # "": none, and the ranks may measure
    group = Group(processes, folder)
    watchdog = Watchdog(limits, ranks, any(process.queues for process in processes))
    with closing(pipes), closing(engine), closing(mailbox), group:  # one after the other, though Ctrl-C breaks into one
        group.start()
        while group.alive():
            group.wait(LOOK_EVERY_TURN if in_turns else LOOK_EVERY)
            if group.deaths():  # later there may be room again
                room = min(room, free(folder))
            for message in engine.new():
                reported.append(message)
                watchdog.engine_reported(message)
            waiting |= received(mailbox, watchdog, on_message)
            if problem is None and joined(mailbox.messages, ranks):
                problem = misplaced(mailbox.messages) or ""
            if len(waiting) == ranks:
                rested += yield from until_given(waiting, pipes, watchdog)
            if problem or watchdog.verdict(group.deaths(), bool(lost_logins(folder))) is not None:
                break
            if not in_turns:
                yield True
        room = min(room, free(folder))
        group.end()
        mailbox.close()  # opened afresh: see LineReader.close
        received(mailbox, watchdog, on_message)
        reported += engine.new()
    evidence = Evidence(
        ranks=ranks,
        lost=lost_logins(folder),
        messages=mailbox.messages,
        last=mailbox.last,
        engine_messages=reported,
        processes=processes,
        deaths=group.deaths(),
        stopped=watchdog.stopped,
        oom_kills=by_host(oom_kills() - kills, [each for each in reported if isinstance(each, OomKills)]),
        out_of_memory=tuple(out_of_memory),
        folder=folder,
        free=room,
    )
    outcome, reason = ("crash", problem) if problem else judge(evidence)
    kept = {**evidence.to_record(), "unreadable_lines": mailbox.unreadable, "limits": asdict(limits)}
    return Attempt(outcome, plain(reason), mailbox.messages, time.monotonic() - began - rested, kept)


def joined(messages: Sent, ranks: int) -> bool:
    """Return whether every rank has joined the others; one that met too few reports that itself."""
    return all(any(each.world == ranks for each in of_type(Joined, sent)) for sent in messages.values())


def received(mailbox: Mailbox, watchdog: Watchdog, on_message: OnMessage) -> dict[int, Waiting]:
    """Pass on the ranks' new messages; return those of ranks that wait for their turn."""
    waiting = {}
    for rank, message in mailbox.new():
        watchdog.received(rank, message)
        on_message(rank, message)
        if isinstance(message, Waiting):
            waiting[rank] = message
    return waiting


class Pipes:
    """The pipes by which ranks here learn that it is their turn (stagebench.suite.worker.turns), one a rank."""

    def __init__(self, folder: Path, ranks: int) -> None:
        """Make none if the folder's file system has no pipes, and then no rank waits for a turn."""
        self._paths = [folder / (PIPE % rank) for rank in range(ranks)]
        self.open: list[int] = []
        try:
            for path in self._paths:
                os.mkfifo(path)
                self.open.append(os.open(path, os.O_RDWR | os.O_NONBLOCK))  # never waits for a rank that is gone
        except OSError:
            self.close()

    def opened(self) -> None:
        """Remove the pipes' names, because all ranks have opened them: whatever happens now, none is left behind."""
        for path in self._paths:
            path.unlink(missing_ok=True)

    def close(self) -> None:
        with suppress(OSError):  # the folder may be gone
            self.opened()
        while self.open:
            os.close(self.open.pop())


def until_given(waiting: dict[int, Waiting], pipes: Pipes, watchdog: Watchdog) -> Generator[bool, None, float]:
    """Pause until the ranks are given their turn; return the seconds, which no rank was silent."""
    pipes.opened()
    began = time.monotonic()
    yield any(rank.more for rank in waiting.values())
    waiting.clear()
    seconds = time.monotonic() - began
    watchdog.rested(seconds)
    for pipe in pipes.open:
        os.write(pipe, b".")
    return seconds


def prepare(folder: Path) -> None:
    """Make the folder and remove what an earlier, unfinished attempt left in it; StoreError when that fails."""
    with disk(f"cannot prepare {folder}", "free some space or name another folder with -o"):
        folder.mkdir(parents=True, exist_ok=True)
        for pattern in ("rank-*.jsonl", "rank-*.log", "launcher-*.log", FILE, LOGINS, PIPE.replace("%d", "*")):
            for stale in folder.glob(pattern):
                stale.unlink()
        probe(folder)  # a full disk is better met here than in a rank
