"""Measures cases of communication one after the other, a record each, whole or not at all.

    RUN/
      run.json                 "kind": "comm"; otherwise as of a training's run, see suite.results.run_folder
      plan.toml                what was asked for
      cases.json               every case with its id, or why it cannot run
      hosts, bundles, records, attempts   as of a training's run

A record's ranks hold the rows that suite.worker.comm sends; suite.analysis.links reads them.
"""

from collections import Counter
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from suite.comm.cases import CommCase, job, launched, refusal
from suite.comm.offers import Offer
from suite.environments.fingerprint import fingerprint, load
from suite.errors import Interrupted, Unavailable
from suite.launching import bundle
from suite.launching.launch import Ready
from suite.plugins import workloads
from suite.results.lock import held
from suite.results.run_folder import FORMAT, RunFolder
from suite.session import RETRIED, ready
from suite.supervision import Attempt

KIND = "comm"


class Listener:
    """What a session tells; the defaults say nothing."""

    def refused(self, case: CommCase, outcome: str, reason: str) -> None:
        """A case that cannot run here."""

    def begin(self, cases: list[CommCase], done: int) -> None:
        """Before anything starts: the cases that can run, and how many of them are there already."""

    def started(self, case: CommCase) -> None:
        """A process group is about to be launched."""

    def message(self, case: CommCase, rank: int, message: dict[str, Any]) -> None:
        """A worker's message (suite.worker.job)."""

    def finished(self, case: CommCase, record: dict[str, Any]) -> None:
        """A record has been written."""

    def end(self) -> None:
        """Nothing more comes, also when it failed or was interrupted."""


@dataclass(frozen=True)
class Item:
    """A case with all that is needed to start it."""

    case: CommCase
    offer: Offer
    ready: Ready


class CommSession:
    """One run: cases, a folder, somebody who listens."""

    def __init__(
        self,
        folder: RunFolder,
        cases: list[tuple[CommCase, Offer]],
        interpreters: dict[str, str],
        listener: Listener,
        retry: bool = False,
    ) -> None:
        """`retry`: measure again what failed, or lacked something, before."""
        self._folder, self._cases, self._interpreters = folder, cases, interpreters
        self._listener, self._retry = listener, retry

    def run(self) -> Counter[str]:
        """Measure what has no record yet; how many cases there are of each outcome.

        Raises Interrupted when the person stopped it, Unavailable when nothing can run here.
        """
        with held(self._folder.path):
            items = self._prepare()
            todo = [item for item in items if not self._have(item.case)]
            self._listener.begin([item.case for item in items], len(items) - len(todo))
            try:
                for item in todo:
                    self._measure(item)
            except KeyboardInterrupt:
                done = sum(self._have(item.case) for item in items)
                raise Interrupted(
                    f"stopped; {done} of {len(items)} records are in {self._folder.path}. "
                    "Run the same command again to go on"
                ) from None
            finally:
                self._listener.end()
        return self._outcomes()

    def _prepare(self) -> list[Item]:
        rows, items = [], []
        for case, offer in self._cases:
            outcome, reason = "unsupported", refusal(case, offer)
            if reason is None:
                try:
                    items.append(self._item(case, offer))
                except Unavailable as error:
                    outcome, reason = "unavailable", str(error)
            stands = outcome if reason else None
            rows.append({"id": case.id, "case": asdict(case), "outcome": stands, "reason": reason or ""})
            if reason:
                self._listener.refused(case, outcome, reason)
        host = fingerprint()
        self._folder.write("cases.json", {"cases": rows})
        self._folder.write(f"hosts/{host['host']}.json", host)
        if not items:
            reasons = sorted({f"  {row['reason']}" for row in rows})
            raise Unavailable("\n".join(["nothing of this can run here:", *reasons]))
        return items

    def _item(self, case: CommCase, offer: Offer) -> Item:
        bundles, interpreter = self._folder.path / "bundles", offer.interpreter(self._interpreters)
        training = launched(case, offer, workloads())
        return Item(case, offer, ready(training, self._interpreters, bundles / offer.adapter.name, interpreter))

    def _have(self, case: CommCase) -> bool:
        record = self._folder.record(case.id, 0)
        return record is not None and not (self._retry and record["outcome"] in RETRIED)

    def _measure(self, item: Item) -> None:
        case, before, started = item.case, load(), datetime.now(UTC)
        self._listener.started(case)
        attempt = item.ready.attempt(
            self._folder.attempt(case.id, 0),
            "comm",
            lambda rank, message: self._listener.message(case, rank, message),
            **job(case, item.offer, workloads()),
        )
        record = {
            "format": FORMAT,
            "kind": KIND,
            "case_id": case.id,
            "case": asdict(case),
            "repeat": 0,
            "outcome": attempt.outcome,
            "reason": attempt.reason,
            "started": started.isoformat(timespec="seconds"),
            "seconds": attempt.seconds,
            "interpreter": asdict(item.ready.interpreter) | {"path": str(item.ready.interpreter.path)},
            "bundle": bundle.written_digest(item.ready.bundle),
            "load": {"before": before, "after": load()},
            "ranks": ranks(attempt),
            "evidence": attempt.evidence,
        }
        self._folder.write(f"records/{case.id}-r0.json", record)
        self._listener.finished(case, record)

    def _outcomes(self) -> Counter[str]:
        found: Counter[str] = Counter()
        for row in self._folder.cases:
            record = None if row["outcome"] else self._folder.record(row["id"], 0)
            found[row["outcome"] or (record["outcome"] if record else "missing")] += 1
        return found


def ranks(attempt: Attempt) -> list[dict[str, Any]]:
    """What each rank said: hello, joined, its rows in order, the bytes that each interface carried."""
    found = []
    for rank, messages in sorted(attempt.messages.items()):
        said: dict[str, Any] = {"rank": rank, "hello": None, "joined": None, "rows": [], "wire": None}
        for message in messages:
            body = {key: value for key, value in message.items() if key not in ("type", "time")}
            if message["type"] in ("hello", "joined"):
                said[message["type"]] = body
            elif message["type"] == "comm":
                said["rows"].append(body["row"])
            elif message["type"] == "wire":
                said["wire"] = body["interfaces"]
            elif message["type"] == "failed":
                said["failed"] = body
        found.append(said)
    return found
