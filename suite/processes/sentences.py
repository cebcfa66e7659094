"""The sentences of an attempt's reason: which rank, its failure, its activity, and the last lines."""

import signal

from suite.processes.evidence import Evidence, last_lines
from suite.processes.watchdog import Stopped
from suite.worker.messages import Done, Phase, Progress, name_of

FULL = 1 << 20  # bytes free; below it a disk counts as full
NAMED = 4  # ranks in a sentence


def timeout(evidence: Evidence, stopped: Stopped) -> str:
    """Name the limit that was passed, by which rank, doing what."""
    limit = f"{stopped.limit_s:g} s"
    if stopped.why == "silence":
        if stopped.rank is None:
            return f"all ranks were done, yet did not end within the silence limit of {limit}"
        rank = stopped.rank
        return f"rank {rank} sent no message for {limit} (silence limit){doing(evidence, rank)}{lines(evidence, rank)}"
    late = [rank for rank in range(evidence.ranks) if not evidence.sent(rank, Done)]
    if not late:
        return f"all ranks were done, yet did not end within the time limit of {limit}"
    return (
        f"{named(late)} not done within the time limit of {limit}{doing(evidence, late[0])}{lines(evidence, late[0])}"
    )


def doing(evidence: Evidence, rank: int | None) -> str:
    """Return the rank's last activity, as the end of a clause."""
    if rank is None:
        return ""
    last = evidence.last.get(rank)
    if last is None:
        return " before its first message"
    if isinstance(last, Progress):
        return f" in {last.name} ({last.phase}, step {steps(last.step, last.of)})"
    return f" in {last.name}" if isinstance(last, Phase) else f" after {name_of(last)!r}"


def steps(step: int, of: int) -> str:
    """Return "step of steps"; a warm-up has more steps than asked for if its seconds are not over."""
    return f"{step}, of at least {of}" if step > of else f"{step} of {of}"


def ended(code: int) -> str:
    """Put an exit code into words; 128 + N is how engines and shells report signal N."""
    if code < 0:
        return f"was ended by {signal_name(-code)}"
    return f"ended with exit code {code}" + (f" (128 + {signal_name(code - 128)})" if 128 < code < 160 else "")


def signal_name(number: int) -> str:
    """Return "SIGKILL" and so on; real-time signals have numbers only."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def lines(evidence: Evidence, rank: int | None, sidecar: int | None = None) -> str:
    """Quote the last lines of a rank's log or, if it is empty, of the program that started the rank, by its name.

    `sidecar`: its place among the processes; its own log is quoted.
    """
    starter = next((i for i, process in enumerate(evidence.processes) if process.rank in (rank, None)), 0)
    starter = starter if sidecar is None else sidecar
    own = [] if rank is None else last_lines(evidence.folder / f"rank-{rank}.log", 3)
    quoted = list(own)
    # A program that starts one rank alone may report what that rank could not: "connection lost".
    if not own or evidence.processes[starter].rank is not None:
        quoted += last_lines(evidence.folder / f"launcher-{starter}.log", 3)
    of_engine = not own and sidecar is None and rank not in (None, *(process.rank for process in evidence.processes))
    whose = f"the last lines of {evidence.engine_name}" if of_engine else "its last lines"
    return f"; {whose}: " + " | ".join(quoted) if quoted else ""


def full_disk(evidence: Evidence) -> str:
    """Name a full disk: a likely cause that no rank could have written down."""
    if evidence.free >= FULL:
        return ""
    return f"; the disk of {evidence.folder} is full: free some space or name another folder with -o"


def named(ranks: list[int]) -> str:
    """Name ranks, the first few of many."""
    shown = ", ".join(map(str, ranks[:NAMED])) + (f" and {len(ranks) - NAMED} more" if len(ranks) > NAMED else "")
    return f"rank{'s' if len(ranks) > 1 else ''} {shown}"
