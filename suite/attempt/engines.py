"""What MPI engines say of a rank that died without a word of its own.

Seen with Open MPI 4.1.8 and 5.0.11 and MPICH 4.3.2. MPICH names the process, not the rank.
"""

import re
import signal
from pathlib import Path

from suite.attempt.logs import last_lines

# Signals that end a rank of themselves; SIGABRT and SIGTERM are also how a library answers another rank's end.
NO_ANSWER = (signal.SIGKILL, signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE)
SAYS = (
    re.compile(
        r"process\s+rank\s+(?P<rank>\d+)\s+with\s+PID\s+\d+\s+on\s+node\s+\S+\s+exited\s+on\s+signal\s+(?P<signal>\d+)"
    ),
    re.compile(r"Process name:\s+\[.*,(?P<rank>\d+)\]\s+Exit code:\s+(?P<code>\d+)"),
    re.compile(
        r"PID\s+(?P<pid>\d+)\s+RUNNING AT\s+\S+\s+=\s+EXIT CODE:\s+(?P<code>\d+)(.*?\(signal (?P<signal>\d+)\))?",
        re.DOTALL,
    ),
)

# Where another host's part of it ended badly too, MPICH forgets to say whether its code was a signal's number.
UNSURE = "process manager error"
# Open MPI's ranks may notice that another one has gone before its own daemon tells of it, and end the job themselves.
PEER = re.compile(r"peer process has unexpectedly disconnected.*?Peer host:\s+(?P<host>\S+)", re.DOTALL)


def lost_peer(log: Path) -> str | None:
    """The host of a rank that the others missed first, where the engine's log tells of one."""
    found = PEER.search("\n".join(last_lines(log, 100)))
    return found["host"] if found else None


def first_death(log: Path, pids: dict[int, int]) -> tuple[int, int] | None:
    """(rank, exit code or -signal) of the first dead rank that an engine's log names, else None.

    `pids` maps process numbers to ranks, as the ranks told when they started.
    """
    text = "\n".join(last_lines(log, 100))
    for pattern in SAYS:
        found = pattern.search(text)
        if found is None:
            continue
        groups = found.groupdict()
        rank = groups["rank"] if "rank" in groups else pids.get(int(groups["pid"]))
        if rank is not None:
            return int(rank), _code(groups, unsure=UNSURE in text)
    return None


def _code(groups: dict[str, str | None], unsure: bool) -> int:
    number = int(groups.get("signal") or groups.get("code") or 0)
    return -number if groups.get("signal") or (unsure and number in NO_ANSWER) else number
