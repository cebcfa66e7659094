"""What engines say of a rank that died without a word of its own.

Seen with Open MPI 4.1.8 and 5.0.11, MPICH 4.3.2 and Slurm 22.05. MPICH names the process, not the rank; Slurm says
of a signal what strsignal(3) says.
"""

import re
import signal
from pathlib import Path

from suite.attempt.logs import last_lines

SAYS = (
    re.compile(
        r"process\s+rank\s+(?P<rank>\d+)\s+with\s+PID\s+\d+\s+on\s+node\s+\S+\s+exited\s+on\s+signal\s+(?P<signal>\d+)"
    ),
    re.compile(r"Process name:\s+\[.*,(?P<rank>\d+)\]\s+Exit code:\s+(?P<code>\d+)"),
    re.compile(
        r"PID\s+(?P<pid>\d+)\s+RUNNING AT\s+\S+\s+=\s+EXIT CODE:\s+(?P<code>\d+)(.*?\(signal (?P<signal>\d+)\))?",
        re.DOTALL,
    ),
    re.compile(
        r"srun: error: \S+: tasks? (?P<rank>\d+)\S*: "
        r"(Exited with exit code (?P<code>\d+)|(?P<strsignal>[A-Z][A-Za-z ]+[a-z]))"
    ),
)
SIGNALS = {signal.strsignal(number): int(number) for number in signal.valid_signals()}


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
        number = groups.get("signal") or SIGNALS.get(groups.get("strsignal"))
        if rank is not None and (number or groups["code"]):
            return int(rank), -int(number) if number else int(groups["code"])
    return None
