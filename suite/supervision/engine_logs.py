"""What engines print of a rank that died without a report of its own.

Seen with Open MPI 4.1.8 and 5.0.11, MPICH 4.3.2 and Slurm 22.05. MPICH names the process, not the rank; Slurm says
of a signal what strsignal(3) says.
"""

import re
import signal
from pathlib import Path

from suite.supervision.logs import last_lines

# Signals that end a rank of themselves; SIGABRT and SIGTERM are also how a library answers another rank's end.
NO_ANSWER = (signal.SIGKILL, signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE)
SIGNALS = {signal.strsignal(number) or "": int(number) for number in signal.valid_signals() if signal.strsignal(number)}
PRINTED = (
    re.compile(
        r"process\s+rank\s+(?P<rank>\d+)\s+with\s+PID\s+\d+\s+on\s+node\s+\S+\s+exited\s+on\s+signal\s+(?P<signal>\d+)"
    ),
    re.compile(r"Process name:\s+\[.*,(?P<rank>\d+)\]\s+Exit code:\s+(?P<code>\d+)"),
    re.compile(
        r"PID\s+(?P<pid>\d+)\s+RUNNING AT\s+\S+\s+=\s+EXIT CODE:\s+(?P<code>\d+)(.*?\(signal (?P<signal>\d+)\))?",
        re.DOTALL,
    ),
)
SRUN = re.compile(
    r"srun: error: \S+: tasks? (?P<rank>\d+)\S*: "
    r"(Exited with exit code (?P<code>\d+)|(?P<strsignal>" + "|".join(map(re.escape, SIGNALS)) + "))"
)

# Where another host's part of it ended badly too, MPICH forgets to say whether its code was a signal's number.
UNSURE = "process manager error"
# Open MPI's ranks may notice that another one has gone before its own daemon reports it, and end the job themselves.
PEER = re.compile(r"peer process has unexpectedly disconnected.*?Peer host:\s+(?P<host>\S+)", re.DOTALL)
CLOSED = re.compile(
    r"An error occurred in Socket closed.*?process rank (?P<rank>\d+) with PID \d+ .*?calling", re.DOTALL
)


def missed(log: Path) -> tuple[str | None, int | None] | None:
    """(host, by which rank) of a rank that another one missed first, as far as the engine's log shows; else None."""
    text = "\n".join(last_lines(log, 100))
    peer, closed = PEER.search(text), CLOSED.search(text)
    if not peer and not closed:
        return None
    return peer["host"] if peer else None, int(closed["rank"]) if closed else None


def first_death(log: Path, pids: dict[int, int]) -> tuple[int, int] | None:
    """(rank, exit code or -signal) of the first dead rank that an engine's log names, else None.

    `pids` maps process numbers to ranks, as the ranks reported when they started.
    """
    text = "\n".join(last_lines(log, 100))
    for pattern in PRINTED:
        found = pattern.search(text)
        if found is None:
            continue
        groups = found.groupdict()
        rank = groups["rank"] if "rank" in groups else pids.get(int(groups["pid"]))
        if rank is not None:
            return int(rank), _code(groups, unsure=UNSURE in text)
    return _by_srun(text)


def _by_srun(text: str) -> tuple[int, int] | None:
    """The first that srun names, but one ended by a signal that is no answer before one that left by itself.

    srun names tasks as their nodes report them, and Open MPI's ranks leave when they miss another one: whoever is
    quicker stands first. What srun itself ends gets SIGTERM.
    """
    named = [(int(found["rank"]), _code(found.groupdict(), unsure=False)) for found in SRUN.finditer(text)]
    return next((each for each in named if -each[1] in NO_ANSWER), named[0] if named else None)


def _code(groups: dict[str, str | None], unsure: bool) -> int:
    name = groups.get("strsignal")
    if name:
        return -SIGNALS[name]
    number = int(groups.get("signal") or groups.get("code") or 0)
    return -number if groups.get("signal") or (unsure and number in NO_ANSWER) else number
