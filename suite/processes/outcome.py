"""From the evidence of an attempt to its outcome and the sentence that says why.

The rank that failed first is blamed, not those that its end brought down. `oom` needs proof: a library's words, or a
SIGKILL while the rank's host counted such a kill.
"""

import re
import signal
from collections.abc import Iterator
from dataclasses import dataclass

from stagebench.suite.contracts.engine_messages import EngineFailed
from stagebench.suite.processes.evidence import NO_ANSWER, Evidence, last_lines, missed, named_deaths, ran_out, sidecar
from stagebench.suite.processes.group import Death
from stagebench.suite.processes.watchdog import Stopped
from stagebench.suite.worker.messages import Done, Failed, Hello, Phase, Progress, name_of, of_type

# A rank's report of another one's end, by whatever library they met; all else it reports of itself.
OF_OTHERS = re.compile(r"\bpeer|connect|socket|reset|closed|abort|timed? ?out|\bMPI|\brank \d", re.IGNORECASE)
OF_A_KILL = re.compile(r"\bkilled\b|SIGKILL|signal 9\b|exit ?code -9\b", re.IGNORECASE)  # of a reader's process
# The signals by which a library ends that gets no memory (oneDNN in TensorFlow writes to where it got none), and the
# number of last lines of the log in which it wrote why.
ANSWERS, LAST = (signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS), 20
FULL = 1 << 20  # bytes free; below it a disk counts as full
NAMED = 4  # ranks in a sentence
AHEAD = 1.0  # seconds by which other ranks may report a closed connection before the death itself is noticed


@dataclass(frozen=True)
class Failure:
    """A failure of one rank, of a sidecar, of a host or of the engine."""

    time_s: float  # seconds since the epoch
    rank: int | None  # None: the engine or a sidecar
    outcome: str
    what: str
    sidecar: int | None = None  # its place among the processes
    host: str | None = None  # that was lost
    sentence: bool = False  # `what` is a whole one of the engine's
    certain: bool = False  # ... and explains what the ranks reported, too

    @property
    def by_engine(self) -> bool:
        """True if only the engine reports it, and does not know better than the ranks."""
        return not self.certain and self.rank is None and self.sidecar is None and self.host is None


def judge(evidence: Evidence) -> tuple[str, str]:
    """Return the outcome and the reason; "" if it is "ok"."""
    if evidence.stopped and evidence.stopped.why != "grace":
        return "timeout", timeout(evidence, evidence.stopped)
    failures = [*reported(evidence), *reported_by_engine(evidence), *deaths(evidence), *losses(evidence)]
    if failures:
        proven = [failure for failure in failures if failure.outcome == "oom"]
        # Another host's clock may differ from ours: a rank's own report goes before what became of the engine.
        first = min(proven or failures, key=lambda failure: (failure.by_engine, failure.time_s))
        return first.outcome, sentence(evidence, first)
    for sign, meaning in ((Hello, "never reported that it started"), (Done, "ended without being done")):
        silent = [rank for rank in range(evidence.ranks) if not evidence.sent(rank, sign)]
        if silent:
            reason = f"{named(silent)} of {evidence.ranks} {meaning}" + lines(evidence, silent[0])
            return "crash", reason + full_disk(evidence)
    return "ok", ""


def reported(evidence: Evidence) -> Iterator[Failure]:
    for rank, messages in evidence.messages.items():
        for failed in of_type(Failed, messages):
            killed = evidence.kills(rank) > 0 and OF_A_KILL.search(failed.message)
            proven = failed.kind == "crash" and (killed or ran_out(failed.message, evidence.out_of_memory))
            yield Failure(failed.time_s, rank, "oom" if proven else failed.kind, failed.message)


def reported_by_engine(evidence: Evidence) -> Iterator[Failure]:
    for failed in evidence.engine_messages:
        if isinstance(failed, EngineFailed):
            at = 0.0 if failed.certain else failed.time_s
            # The message passes on a sidecar's last words.
            proven = failed.kind == "crash" and ran_out(failed.message, evidence.out_of_memory)
            kind = "oom" if proven else failed.kind
            yield Failure(at, None, kind, failed.message, sentence=True, certain=failed.certain)


def deaths(evidence: Evidence) -> Iterator[Failure]:
    """Yield a failure for each process that ended badly before the controller ended the group."""
    reports = list(reported(evidence))
    of_others = [report for report in reports if OF_OTHERS.search(report.what)]
    for death in evidence.deaths:
        if death.code == 0 or death.ours:
            continue
        rank, code, at = death.rank, death.code, death.time_s
        sidecar_index = death.index if evidence.processes[death.index].sidecar else None
        what = ended(code)
        if rank is None and sidecar_index is None:
            rank, code, what = found_by_engine(evidence, death)
            # The engine saw this rank die first, whatever others reported before the engine itself ended. But a daemon
            # may kill all ranks at the first closed connection, as MPICH's does, and name one of those.
            # A rank's report of itself, which another one's end does not explain, shows that.
            mistaken = code == -signal.SIGKILL and len(of_others) < len(reports)
            at = at if rank is None or evidence.sent(rank, Failed) or mistaken else 0.0
        elif rank is not None and not evidence.sent(rank, Failed):
            missed_by = [other for other in of_others if re.search(rf"\brank {rank}\b", other.what)]
            if -code in NO_ANSWER or missed_by:  # another rank reported that this one had gone: its end came first
                at -= AHEAD
        proven = _by(signal.SIGKILL, code) and evidence.kills(rank) > 0
        log = f"rank-{rank}.log" if rank is not None and any(_by(number, code) for number in ANSWERS) else None
        if sidecar_index is not None:  # a sidecar reports nothing but its log
            log = f"launcher-{sidecar_index}.log"
        if log is not None:
            written = "\n".join(last_lines(evidence.folder / log, LAST))
            proven = proven or ran_out(written, evidence.out_of_memory)
        yield Failure(at, rank, "oom" if proven else "crash", what, sidecar_index)


def _by(number: signal.Signals, code: int) -> bool:
    return code in (-number, 128 + number)


def losses(evidence: Evidence) -> Iterator[Failure]:
    """Yield a failure for each host whose login ended before all ranks were done: it died, or refused the login."""
    if all(evidence.sent(rank, Done) for rank in range(evidence.ranks)):
        return
    for login in evidence.lost:
        there = next((rank for rank in range(evidence.ranks) if evidence.host(rank) == login.host), None)
        what = (
            f"was not reached: its login {ended(login.code)} (correct `hosts` or --hosts, or make a login there work)"
        )
        if all(evidence.sent(rank, Hello) for rank in range(evidence.ranks)):
            what = f"was lost: its login {ended(login.code)}"
        yield Failure(login.time_s, there, "crash", what, host=login.host)


def found_by_engine(evidence: Evidence, death: Death) -> tuple[int | None, int, str]:
    """Return (rank, code, what) of the dead rank that the engine names, or (None, code, what) of the engine itself."""
    hellos = {rank: evidence.hello(rank) for rank in evidence.messages}
    pids = {hello.pid: rank for rank, hello in hellos.items() if hello}
    log = evidence.folder / f"launcher-{death.index}.log"
    patterns = evidence.processes[death.index].failures
    dead = named_deaths(log, patterns, pids)
    if dead and dead[0][0] in evidence.messages:
        (first, code), *others = dead
        # An engine may report other ranks that the same signal ended before the first one.
        unsure = patterns.any_order and -code in NO_ANSWER
        same = sorted({rank for rank, its in others if unsure and its == code} - {first})
        were = f"{'was' if len(same) == 1 else 'were'} {named(same)}"
        return first, code, ended(code) + (f" (so {were}, and who was first is not known)" if same else "")
    host, by = missed(log, patterns) or ("", None)
    # The only rank that can be the one that others missed.
    gone = [rank for rank in range(evidence.ranks) if rank != by and not evidence.sent(rank, Done)]
    gone = [rank for rank in gone if host in (None, evidence.host(rank))]
    if len(gone) == 1:
        return gone[0], death.code, f"closed its connections without a word, on {evidence.host(gone[0])},"
    unnamed = " and does not say which of its processes was killed" if death.code == 128 + signal.SIGKILL else ""
    return None, death.code, ended(death.code) + unnamed


def sentence(evidence: Evidence, failure: Failure) -> str:
    """Return the reason: who failed, how, and the last lines."""
    if failure.sentence:
        late = next((rank for rank in range(evidence.ranks) if not evidence.sent(rank, Done)), None)
        return failure.what + lines(evidence, late)
    who = f"rank {failure.rank}" if failure.rank is not None else evidence.engine_name
    if failure.sidecar is not None:
        who = sidecar(evidence.processes[failure.sidecar])
    if failure.host is not None:
        who = f"the host {failure.host}"
    own = failure.host is None and failure.rank is not None and evidence.sent(failure.rank, Failed)
    text = f"{who}: {failure.what}" if own else f"{who} {failure.what}{doing(evidence, failure.rank)}"
    kills = evidence.kills(failure.rank)
    if kills > 0:
        text += f" (the kernel ended {kills} process(es) for want of memory meanwhile)"
    return text + ("" if own else lines(evidence, failure.rank, failure.sidecar)) + full_disk(evidence)


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
        # A warm-up has more steps than asked for if its seconds are not over.
        of = f"{last.step}, of at least {last.of}" if last.step > last.of else f"{last.step} of {last.of}"
        return f" in {last.name} ({last.phase}, step {of})"
    return f" in {last.name}" if isinstance(last, Phase) else f" after {name_of(last)!r}"


def ended(code: int) -> str:
    """Put an exit code into words; 128 + N is how engines and shells report signal N."""
    if code < 0:
        cause = " (as when /dev/shm is full: a container's --shm-size)" if -code == signal.SIGBUS else ""
        return f"was ended by {signal_name(-code)}{cause}"
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
