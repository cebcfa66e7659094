"""A session that measures communication by itself: a record for each case.

    RUN/
      run.json                 "kind": "comm"; otherwise as of a training's run, see suite.results.run_folder
      plan.toml                what was asked for
      cases.json               every case with its id, or why it cannot run
      hosts, bundles, records, attempts   as of a training's run

A record's ranks hold the rows that suite.worker.comm sends; suite.analysis.links reads them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from suite.comm.cases import CommCase, configuration, job, limits, refusal
from suite.comm.offers import Offer
from suite.contracts.observer import Observer
from suite.launching.launch import Launch, OnMessage, launch_of
from suite.plugins import workloads
from suite.results.run_folder import RunFolder
from suite.session.resumable import Runnable, Session
from suite.supervision import Attempt

KIND = "comm"


@dataclass(frozen=True)
class Refusable:
    """A case, and why its backend cannot do it, as far as one can tell without running it."""

    case: CommCase
    reason: str

    @property
    def outcome(self) -> str | None:
        """None: it can run."""
        return "unsupported" if self.reason else None


class CommSession(Session[CommCase]):
    """One run of `stagebench comm`."""

    def __init__(
        self,
        folder: RunFolder,
        cases: Sequence[tuple[CommCase, Offer]],
        interpreters: dict[str, str],
        observer: Observer[CommCase],
        retry: bool = False,
    ) -> None:
        """`interpreters` are the explicit settings (adapter or backend: path)."""
        planned = [Refusable(case, refusal(case, offer) or "") for case, offer in cases]
        super().__init__(folder, planned, observer, retry)
        self._interpreters, self._offers = interpreters, {case.id: offer for case, offer in cases}

    def launch(self, case: CommCase, bundles: Path) -> Launch:
        """As the processes of the backend's strategy are started."""
        offer, known = self._offers[case.id], workloads()
        interpreter, code = offer.interpreter(self._interpreters), bundles / offer.adapter.name
        return launch_of(configuration(case, offer, known), limits(case, known), self._interpreters, code, interpreter)

    def before(self, item: Runnable[CommCase]) -> dict[str, Any]:
        """Tells its records apart from a training's."""
        return {"kind": KIND}

    def attempt(self, item: Runnable[CommCase], folder: Path, on_message: OnMessage) -> Attempt:
        """Every size, or every gradient tensor."""
        return item.launch.run(folder, "comm", on_message, **job(item.case, self._offers[item.case.id], workloads()))

    def ranks(self, attempt: Attempt) -> list[dict[str, Any]]:
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
