"""One attempt to measure a case: start its processes, receive their messages, watch, end them, say what came of it.

The evidence is what the ranks wrote (rank-N.jsonl), how their processes ended and when,
and what stands in their logs. Whatever happens, nothing that was started stays behind.
"""

import tempfile
import time
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from suite.contracts.engine_messages import CODEC, FILE, EngineMessage, OomKills
from suite.contracts.launcher import LOGINS, Process
from suite.files import disk
from suite.plain import plain
from suite.supervision.evidence import Evidence
from suite.supervision.line_reader import LineReader
from suite.supervision.lost_logins import lost
from suite.supervision.mailbox import Mailbox
from suite.supervision.oom import oom_kills
from suite.supervision.outcome import judge
from suite.supervision.processes import Group
from suite.supervision.watchdog import Limits, Watchdog
from suite.worker.messages import Message

__all__ = ["Attempt", "Limits", "run"]

LOOK_EVERY = 0.1  # seconds; a process that ends is noticed at once


@dataclass(frozen=True)
class Attempt:
    """What came of it."""

    outcome: str  # ok | unsupported | unavailable | oom | timeout | crash | diverged
    reason: str  # "" when ok; else who, what and the last lines
    messages: dict[int, list[Message]]  # of each rank, in order, without Progress
    seconds: float  # from the first start until all had ended
    evidence: dict[str, Any]  # exit codes, last lines of the logs, limits: ready for JSON


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
    prepare(folder)
    began, kills = time.monotonic(), oom_kills()
    mailbox, engine = Mailbox(folder, ranks), LineReader(folder / FILE, CODEC.decode)
    reported: list[EngineMessage] = []
    group = Group(processes, folder)
    watchdog = Watchdog(limits, ranks, any(process.queues for process in processes))
    try:
        group.start()
        while group.alive():
            group.wait(LOOK_EVERY)
            for each in engine.new():
                reported.append(each)
                watchdog.engine_reported(each)
            for rank, message in mailbox.new():
                watchdog.received(rank, message)
                on_message(rank, message)
            if watchdog.verdict(group.deaths(), lost(folder)) is not None:
                break
        group.end()
        mailbox.close()  # opened afresh: see LineReader.close
        for rank, message in mailbox.new():
            on_message(rank, message)
        reported += engine.new()
    finally:
        group.end()
        mailbox.close()
        engine.close()
    evidence = Evidence(
        ranks=ranks,
        lost=lost(folder),
        messages=mailbox.messages,
        last=mailbox.last,
        engine_messages=reported,
        processes=processes,
        deaths=group.deaths(),
        stopped=watchdog.stopped,
        oom_kills=oom_kills() - kills + sum(each.processes for each in reported if isinstance(each, OomKills)),
        out_of_memory=tuple(out_of_memory),
        folder=folder,
    )
    outcome, reason = judge(evidence)
    kept = {**evidence.to_record(), "unreadable_lines": mailbox.unreadable, "limits": asdict(limits)}
    return Attempt(outcome, plain(reason), mailbox.messages, time.monotonic() - began, kept)


def prepare(folder: Path) -> None:
    """Make the folder and remove what an earlier, unfinished attempt left in it; StoreError when that fails."""
    with disk(f"cannot prepare {folder}", "free some space or name another folder with -o"):
        folder.mkdir(parents=True, exist_ok=True)
        for pattern in ("rank-*.jsonl", "rank-*.log", "launcher-*.log", FILE, LOGINS):
            for stale in folder.glob(pattern):
                stale.unlink()
        with tempfile.TemporaryFile(dir=folder) as probe:  # a full disk is better met here than in a rank
            probe.write(b"x" * 4096)
