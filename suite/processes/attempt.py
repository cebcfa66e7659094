"""One attempt to measure a case: start its processes, receive their messages, watch, end them, say what came of it.

The evidence is what the ranks wrote (rank-N.jsonl), how their processes ended and when,
and what stands in their logs. Whatever happens, nothing that was started stays behind.
"""

import math
import time
from collections.abc import Callable, Collection, Generator
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from suite.contracts.engine_messages import CODEC, FILE, EngineMessage, OomKills
from suite.contracts.launcher import LOGINS, Process
from suite.files import disk, free, probe
from suite.plain import plain
from suite.processes.evidence import Evidence
from suite.processes.group import Group
from suite.processes.line_reader import LineReader
from suite.processes.lost_logins import lost
from suite.processes.mailbox import Mailbox
from suite.processes.oom import by_host
from suite.processes.outcome import judge
from suite.processes.pipes import Pipes
from suite.processes.watchdog import Limits, Watchdog
from suite.worker.guard import oom_kills
from suite.worker.messages import Message, Waiting
from suite.worker.turns import PIPE

__all__ = ["Attempt", "Limits", "Measuring", "in_one_go", "run", "running"]

LOOK_EVERY = 0.1  # seconds; a process that ends is noticed at once
LOOK_EVERY_TURN = 0.02  # where turns are taken: until then all wait


@dataclass(frozen=True)
class Attempt:
    """What came of it."""

    outcome: str  # ok | unsupported | unavailable | oom | timeout | crash | diverged
    reason: str  # "" when ok; else who, what and the last lines
    messages: dict[int, list[Message]]  # of each rank, in order, without Progress
    seconds: float  # from the first start until all had ended, without what others had between its turns
    evidence: dict[str, Any]  # exit codes, last lines of the logs, limits: ready for JSON


# Where turns are taken, yields each time that all ranks wait for theirs: whether they will want another in this pass.
# To go on gives it. Where none are taken, yields True after each look at the ranks, which go on meanwhile.
Measuring = Generator[bool, None, Attempt]
T = TypeVar("T")


def in_one_go(working: Generator[bool, None, T]) -> T:
    """What came of it, with nobody else to wait for."""
    while True:
        try:
            next(working)
        except StopIteration as end:
            found: T = end.value
            return found


def run(
    processes: list[Process],
    ranks: int,
    folder: Path,
    limits: Limits,
    on_message: Callable[[int, Message], None],
    out_of_memory: Collection[str] = (),
) -> Attempt:
    """Run the processes to their end; `on_message(rank, message)` is called as messages come.

    `folder` is the attempt's: the ranks' files of an earlier attempt are removed, the
    processes run in it and their own output goes to its launcher-N.log. What `on_message`
    raises, and KeyboardInterrupt, ends the processes and is passed on. `out_of_memory`: phrases by which the framework
    says that memory ran out.
    """
    return in_one_go(running(processes, ranks, folder, limits, on_message, out_of_memory))


def running(
    processes: list[Process],
    ranks: int,
    folder: Path,
    limits: Limits,
    on_message: Callable[[int, Message], None],
    out_of_memory: Collection[str] = (),
    in_turns: bool = False,
) -> Measuring:
    """The same, with pauses: in those of ranks that take turns others may work. All of them are on this machine then.

    To close it ends the processes.
    """
    prepare(folder)
    pipes = pipes_of(folder, ranks if in_turns else 0)
    began, kills, rested, room = time.monotonic(), oom_kills(), 0.0, math.inf
    mailbox, engine = Mailbox(folder, ranks), LineReader(folder / FILE, CODEC.decode)
    reported: list[EngineMessage] = []
    waiting: dict[int, Waiting] = {}
    group = Group(processes, folder)
    watchdog = Watchdog(limits, ranks, any(process.queues for process in processes))
    with closing(pipes), closing(engine), closing(mailbox), group:  # one after the other, though Ctrl-C breaks into one
        group.start()
        while group.alive():
            group.wait(LOOK_EVERY_TURN if in_turns else LOOK_EVERY)
            if group.deaths():  # later there may be room again
                room = min(room, free(folder))
            for each in engine.new():
                reported.append(each)
                watchdog.engine_reported(each)
            waiting |= received(mailbox, watchdog, on_message)
            if len(waiting) == ranks:
                rested += yield from until_given(waiting, pipes, watchdog)
            if watchdog.verdict(group.deaths(), lost(folder)) is not None:
                break
            if not in_turns:
                yield True
        room = min(room, free(folder))
        group.end()
        mailbox.close()  # opened afresh: see LineReader.close
        for rank, message in mailbox.new():
            on_message(rank, message)
        reported += engine.new()
    evidence = Evidence(
        ranks=ranks,
        lost=lost(folder),
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
    outcome, reason = judge(evidence)
    kept = {**evidence.to_record(), "unreadable_lines": mailbox.unreadable, "limits": asdict(limits)}
    return Attempt(outcome, plain(reason), mailbox.messages, time.monotonic() - began - rested, kept)


def received(mailbox: Mailbox, watchdog: Watchdog, on_message: Callable[[int, Message], None]) -> dict[int, Waiting]:
    """Pass on what the ranks have sent; those that wait for their turn."""
    waiting = {}
    for rank, message in mailbox.new():
        watchdog.received(rank, message)
        on_message(rank, message)
        if isinstance(message, Waiting):
            waiting[rank] = message
    return waiting


def until_given(waiting: dict[int, Waiting], pipes: Pipes, watchdog: Watchdog) -> Generator[bool, None, float]:
    """The pause before a turn, which is no rank's silence; its seconds."""
    pipes.opened()
    pause = time.monotonic()
    yield any(each.more for each in waiting.values())
    waiting.clear()
    pause = time.monotonic() - pause
    watchdog.rested(pause)
    pipes.give()
    return pause


def pipes_of(folder: Path, ranks: int) -> Pipes:
    """As many; none, so that the ranks wait for nobody, where the folder's file system has no pipes."""
    try:
        return Pipes(folder, ranks)
    except OSError:
        return Pipes(folder, 0)


def prepare(folder: Path) -> None:
    """Make the folder and remove what an earlier, unfinished attempt left in it; StoreError when that fails."""
    with disk(f"cannot prepare {folder}", "free some space or name another folder with -o"):
        folder.mkdir(parents=True, exist_ok=True)
        for pattern in ("rank-*.jsonl", "rank-*.log", "launcher-*.log", FILE, LOGINS, PIPE.replace("%d", "*")):
            for stale in folder.glob(pattern):
                stale.unlink()
        probe(folder)  # a full disk is better met here than in a rank
