"""Runs the cases of a plan in interleaved rounds and writes a record for each process group.

Rounds, not blocks: every case gets its first process before any gets its second, so a
drift of the machine hits all alike. What has a record is not measured again.
"""

import socket
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from suite.contracts.case import Case
from suite.contracts.observer import Observer
from suite.environments.find import Interpreter, find
from suite.environments.fingerprint import fingerprint, load
from suite.environments.hosts import here
from suite.errors import Interrupted, Unavailable
from suite.launching import bundle
from suite.launching.launch import Ready
from suite.plan import Resolved
from suite.plugins import adapters, launchers, workloads
from suite.proofs.prove import Proofs
from suite.results.lock import held
from suite.results.run_folder import CANCELLED, FORMAT, RunFolder
from suite.supervision import Attempt

FAILURES = ("oom", "timeout", "crash", "diverged")
RETRIED = (*FAILURES, "unavailable")  # what the machine lacked may be there by now


@dataclass(frozen=True)
class Settings:
    """What the command line adds to a plan."""

    proofs: bool = True
    retry: bool = False  # measure again what failed or lacked something before
    scale: str | None = None  # the plan's, for the record


class Session:
    """One run: resolved cases, a folder, somebody who listens."""

    def __init__(
        self,
        folder: RunFolder,
        resolved: list[Resolved],
        interpreters: dict[str, str],
        observer: Observer,
        settings: Settings,
    ) -> None:
        """Nothing is started yet."""
        self._folder, self._resolved, self._observer, self._settings = folder, resolved, observer, settings
        self._interpreters = interpreters
        self._proofs = Proofs(interpreters)
        self._proof_of: dict[str, dict[str, Any]] = {}

    def run(self) -> Counter[str]:
        """Measure all that can be measured; how many records there are of each outcome.

        Raises Interrupted when the person stopped it: the same command resumes. RequestError
        when another session measures into the folder.
        """
        with held(self._folder.path):
            return self._run()

    def _run(self) -> Counter[str]:
        items = self._prepare()
        todo, total = list(self._todo(items)), sum(_processes(item) for item in items)
        self._observer.begin([item.case for item in items], total, self._done(items))
        try:
            for repeat, item in todo:
                self._measure(item, repeat)
        except KeyboardInterrupt:
            raise Interrupted(
                f"stopped; {self._done(items)} of {total} records are in {self._folder.path}. "
                "Run the same command again to go on"
            ) from None
        finally:
            self._observer.end()
        return self._outcomes(items)

    def _prepare(self) -> list[Ready]:
        """Find what each case needs, and write down the cases with what stands in the way of some."""
        rows, found, bundles = [], [], self._folder.path / "bundles"
        for resolved in self._resolved:
            outcome, reason = resolved.outcome, resolved.reason
            if outcome is None:
                try:
                    found.append(ready(resolved.case, self._interpreters, bundles / resolved.case.adapter))
                except Unavailable as error:
                    outcome, reason = "unavailable", str(error)
            rows.append({"id": resolved.case.id, "case": resolved.case.to_dict(), "outcome": outcome, "reason": reason})
        host = fingerprint()
        self._folder.write("cases.json", {"scale": self._settings.scale, "cases": rows})
        self._folder.write(f"hosts/{host['host']}.json", host)
        if not found:
            reasons = sorted({f"  {row['reason']}" for row in rows})
            raise Unavailable("\n".join(["no case of this plan can run here:", *reasons]))
        for resolved, row in zip(self._resolved, rows, strict=True):
            if row["outcome"]:
                self._observer.refused(resolved.case, str(row["outcome"]), str(row["reason"]))
        return found

    def _todo(self, items: list[Ready]) -> Iterator[tuple[int, Ready]]:
        for repeat in range(max(_processes(item) for item in items)):
            for item in items:
                if repeat < _processes(item) and not self._have(item.case, repeat):
                    yield repeat, item

    def _have(self, case: Case, repeat: int) -> bool:
        record = self._folder.record(case.id, repeat)
        if record is None or record["outcome"] == CANCELLED:
            return False
        return not (self._settings.retry and record["outcome"] in RETRIED)

    def _measure(self, item: Ready, repeat: int) -> None:
        proof = self._prove(item)
        case, before, started = item.case, load(), datetime.now(UTC)
        self._observer.started(case, repeat)
        folder = self._folder.attempt(case.id, repeat)
        try:
            attempt = item.attempt(folder, "measure", lambda rank, message: self._observer.message(case, rank, message))
        except KeyboardInterrupt:
            seconds = (datetime.now(UTC) - started).total_seconds()
            attempt = Attempt(CANCELLED, f"stopped by a person after {seconds:.0f} s", {}, seconds, {})
            self._write(item, repeat, attempt, proof, started, before)
            raise
        self._observer.finished(case, self._write(item, repeat, attempt, proof, started, before))

    def _write(
        self,
        item: Ready,
        repeat: int,
        attempt: Attempt,
        proof: dict[str, Any],
        started: datetime,
        before: list[float],
    ) -> dict[str, Any]:
        """One record, whole or not at all."""
        case = item.case
        record = {
            "format": FORMAT,
            "case_id": case.id,
            "case": case.to_dict(),
            "repeat": repeat,
            "outcome": attempt.outcome,
            "reason": attempt.reason,
            "started": started.isoformat(timespec="seconds"),
            "seconds": attempt.seconds,
            "interpreter": {
                "path": str(item.interpreter.path),
                "origin": item.interpreter.origin,
                "version": item.interpreter.version,
            },
            "bundle": bundle.written_digest(item.bundle),
            "proof": proof.get("key"),
            "proof_reason": proof.get("reason", ""),
            "load": {"before": before, "after": load()},
            "ranks": ranks(attempt),
            "evidence": attempt.evidence,
        }
        self._folder.write(f"records/{case.id}-r{repeat}.json", record)
        return record

    def _prove(self, item: Ready) -> dict[str, Any]:
        """The case's proof, made at its first process; every proof goes into the run folder too."""
        case = item.case
        if not self._settings.proofs:
            return {"reason": "proofs were switched off for this run"}
        if case.id not in self._proof_of:
            self._observer.proving(case)
            proof = self._proofs.prove(item, self._folder.attempt(case.id, "proof"))
            if proof["key"]:
                self._folder.write(f"proofs/{proof['key']}.json", proof)
            self._proof_of[case.id] = proof
            self._observer.proved(case, proof)
        return self._proof_of[case.id]

    def _done(self, items: list[Ready]) -> int:
        return sum(self._have(item.case, repeat) for item in items for repeat in range(_processes(item)))

    def _outcomes(self, items: list[Ready]) -> Counter[str]:
        counts: Counter[str] = Counter(self._folder_outcomes(items))
        counts.update(row["outcome"] for row in self._folder.cases if row["outcome"])
        return counts

    def _folder_outcomes(self, items: list[Ready]) -> Iterator[str]:
        for item in items:
            for repeat in range(_processes(item)):
                record = self._folder.record(item.case.id, repeat)
                if record is not None:
                    yield record["outcome"]


def ready(
    case: Case, interpreters: dict[str, str], bundle_folder: Path, interpreter: Interpreter | None = None
) -> Ready:
    """All that a case needs, in that interpreter or the adapter's own; Unavailable says what this machine lacks."""
    adapter, launcher = adapters()[case.adapter], launchers()[case.placement.launcher]
    interpreter = interpreter or find(adapter, interpreters)
    missing = launcher.missing(case.placement, interpreter.path)
    if missing:
        raise Unavailable(missing)
    first = case.placement.hosts[0] if case.placement.hosts else "localhost"
    if adapter.companions(case) and not (launcher.companions_on_first_host or here(first)):
        raise Unavailable(
            f"{case.adapter}/{case.strategy} meets its servers on the first host, {first}, and they are started "
            f"on this machine, {socket.gethostname()}; name this machine first in `hosts`, or run stagebench on {first}"
        )
    code = bundle.write(adapter, bundle_folder)
    return Ready(case, adapter, workloads()[case.workload], launcher, interpreter, code)


def _processes(item: Ready) -> int:
    return item.case.sampling.processes


def ranks(attempt: Attempt) -> list[dict[str, Any]]:
    """What each rank said, as the record keeps it: the last of each kind, the passes by name, the notes joined."""
    return [_rank(rank, messages) for rank, messages in sorted(attempt.messages.items())]


BODIES = {"layers": "layers", "training": "record", "wire": "interfaces"}  # kind of message: what of it is kept


def _rank(rank: int, messages: list[dict[str, Any]]) -> dict[str, Any]:
    content: dict[str, Any] = {"rank": rank, "hello": None, "joined": None, "passes": {}, "notes": {}}
    content.update(dict.fromkeys(BODIES))
    for message in messages:
        kind = message["type"]
        body = {key: value for key, value in message.items() if key not in ("type", "time")}
        if kind in ("hello", "joined"):
            content[kind] = body
        elif kind == "pass":
            content["passes"][body["record"]["pass"]] = body["record"]
        elif kind in BODIES:
            content[kind] = body[BODIES[kind]]
        elif kind == "notes":
            content["notes"].update(body["notes"])
        elif kind == "failed":
            content["failed"] = body
    return content


def folder_for(path: Path, plan_text: str, about: dict[str, Any], scale: str | None = None) -> RunFolder:
    """The run folder, new or resumed; RequestError when it belongs to another plan, or to another scale of it."""
    folder = RunFolder(path)
    folder.create(about)
    folder.adopt_plan(plan_text, scale)
    return folder
