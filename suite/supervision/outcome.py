"""From the facts of an attempt to its outcome and the sentence that says why.

The rank that failed first is blamed, not those that its end brought down. `oom` needs
proof: the rank's own word, or a SIGKILL while the kernel's count of such kills rose.
"""

import re
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from suite.supervision.engines import NO_ANSWER, first_death, missed
from suite.supervision.facts import Facts, companion
from suite.supervision.processes import Death
from suite.supervision.wording import doing, ended, full_disk, lines, named, timeout

# What a rank says of another one's end, by whatever library it met it; who speaks of nobody else tells of itself.
OF_OTHERS = re.compile(r"\bpeer|connect|socket|reset|closed|abort|timed? ?out|\bMPI|\brank \d", re.IGNORECASE)
AHEAD = 1.0  # seconds by which the others may tell of a closed connection before the death itself is noticed


@dataclass(frozen=True)
class Failure:
    """Something that went wrong with one rank or with the engine."""

    time: float  # seconds since the epoch
    rank: int | None  # None: the engine or a companion
    outcome: str
    what: str
    companion: int | None = None  # its place among the processes
    host: str | None = None  # that was lost
    told: bool = False  # `what` is a whole sentence of the engine's
    certain: bool = False  # ... and explains what the ranks said, too

    @property
    def by_engine(self) -> bool:
        """Whether only the engine tells of it, and does not know better than the ranks."""
        return not self.certain and self.rank is None and self.companion is None and self.host is None


def judge(facts: Facts) -> tuple[str, str]:
    """(outcome, reason)."""
    if facts.stopped and facts.stopped.why != "grace":
        return "timeout", timeout(facts, facts.stopped)
    failures = [*words(facts), *engine_words(facts), *deaths(facts), *losses(facts)]
    if failures:
        proven = [failure for failure in failures if failure.outcome == "oom"]
        # Another host's clock may differ from ours: a rank's own words go before what became of the engine.
        first = min(proven or failures, key=lambda failure: (failure.by_engine, failure.time))
        return first.outcome, sentence(facts, first)
    for sign, meaning in (("hello", "never said that it started"), ("done", "ended without being done")):
        silent = [rank for rank in range(facts.ranks) if not facts.said(rank, sign)]
        if silent:
            reason = f"{named(silent)} of {facts.ranks} {meaning}" + lines(facts, silent[0])
            return "crash", reason + full_disk(facts)
    return "ok", ""


def words(facts: Facts) -> Iterator[Failure]:
    """Failures that ranks told of."""
    for rank, messages in facts.messages.items():
        for message in messages:
            if message["type"] == "failed":
                yield Failure(message.get("time", 0.0), rank, message.get("kind", "crash"), message.get("message", ""))


def engine_words(facts: Facts) -> Iterator[Failure]:
    """Failures that the engine told of."""
    for message in facts.engine_words:
        if message["type"] == "failed":
            certain = message.get("certain") is True
            at = 0.0 if certain else message.get("time", 0.0)
            yield Failure(at, None, message["kind"], message["message"], told=True, certain=certain)


def deaths(facts: Facts) -> Iterator[Failure]:
    """Processes that ended badly and not by us."""
    for death in facts.deaths:
        if death.code == 0 or death.ours:
            continue
        rank, code, at = death.rank, death.code, death.time
        beside = death.index if facts.processes[death.index].companion else None
        what = ended(code)
        if rank is None and beside is None:
            rank, code, what = engine_says(facts, death)
            # The engine saw it die first, whatever the others said before the engine itself ended. But MPICH's daemon
            # kills all at the first closed connection, and may name one of those.
            mistaken = code == -signal.SIGKILL and explained(facts)
            at = at if rank is None or facts.said(rank, "failed") or mistaken else 0.0
        elif rank is not None and -code in NO_ANSWER and not facts.said(rank, "failed"):
            at -= AHEAD
        killed = code in (-signal.SIGKILL, 128 + signal.SIGKILL)
        proven = killed and facts.oom_kills > 0
        yield Failure(at, rank, "oom" if proven else "crash", what, beside)


def explained(facts: Facts) -> bool:
    """Whether a rank told of a failure of its own, which another one's end does not explain."""
    return any(not OF_OTHERS.search(failure.what) for failure in words(facts))


def losses(facts: Facts) -> Iterator[Failure]:
    """Hosts whose login ended while somebody was not done: dead ones, or those nobody can log in to."""
    if all(facts.said(rank, "done") for rank in range(facts.ranks)):
        return
    for login in facts.lost:
        there = next((rank for rank in range(facts.ranks) if facts.host(rank) == login.host), None)
        how = "was lost" if all(facts.said(rank, "hello") for rank in range(facts.ranks)) else "was not reached"
        yield Failure(login.time, there, "crash", f"{how}: its login {ended(login.code)}", host=login.host)


def engine_says(facts: Facts, death: Death) -> tuple[int | None, int, str]:
    """(rank, code, words) of one that died without a word, where the engine tells of it; else the engine's own."""
    pids = {
        message["pid"]: rank
        for rank, messages in facts.messages.items()
        for message in messages
        if message["type"] == "hello" and "pid" in message
    }
    log = facts.folder / f"launcher-{death.index}.log"
    named = first_death(log, pids)
    if named:
        return *named, ended(named[1])
    gone = gone_without_a_word(facts, log)
    if gone is not None:
        return gone, death.code, f"closed its connections without a word, on {facts.host(gone)},"
    return None, death.code, ended(death.code)


def gone_without_a_word(facts: Facts, log: Path) -> int | None:
    """The one rank that can be meant where others missed somebody."""
    told = missed(log)
    if told is None:
        return None
    host, by = told
    able = [rank for rank in range(facts.ranks) if rank != by and not facts.said(rank, "done")]
    found = [rank for rank in able if host in (None, facts.host(rank))]
    return found[0] if len(found) == 1 else None


def sentence(facts: Facts, failure: Failure) -> str:
    """Who failed, how, and the last words."""
    if failure.told:
        late = next((rank for rank in range(facts.ranks) if not facts.said(rank, "done")), None)
        return failure.what + lines(facts, late)
    who = f"rank {failure.rank}" if failure.rank is not None else facts.engine
    if failure.companion is not None:
        who = companion(facts.processes[failure.companion])
    if failure.host is not None:
        who = f"the host {failure.host}"
    told = failure.host is None and failure.rank is not None and facts.said(failure.rank, "failed")
    text = f"{who}: {failure.what}" if told else f"{who} {failure.what}{doing(facts, failure.rank)}"
    if facts.oom_kills > 0:
        text += f" (the kernel ended {facts.oom_kills} process(es) for want of memory meanwhile)"
    return text + ("" if told else lines(facts, failure.rank, failure.companion)) + full_disk(facts)
