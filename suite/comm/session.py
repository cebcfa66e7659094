"""A session that measures communication alone: a record for each case (suite.comm.records)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from suite.comm.cases import CommCase, configuration, gradient_tensors, limits, refusal, task
from suite.comm.offers import Offer
from suite.comm.records import CommFolder, Tensor, comm_rank
from suite.plugins import workloads
from suite.processes.attempt import Attempt, Measuring
from suite.processes.launch import Launch, OnMessage, launch_of
from suite.session.observer import Observer
from suite.session.resumable import Runnable, Session


class CommSession(Session[CommCase]):
    """A run of `stagebench comm`."""

    def __init__(
        self,
        folder: CommFolder,
        cases: Sequence[tuple[CommCase, Offer]],
        interpreters: dict[str, str],
        observer: Observer,
        retry: bool = False,
    ) -> None:
        """`interpreters` are the explicit settings (adapter or backend: path)."""
        refused = [(case, refusal(case, offer)) for case, offer in cases]
        planned = [(case, "unsupported" if why else None, why or "") for case, why in refused]
        super().__init__(folder, planned, observer, retry)
        self._interpreters, self._offers = interpreters, {case.id: offer for case, offer in cases}

    def launch(self, case: CommCase, bundles: Path) -> Launch:
        """Return the launch that the backend's strategy has in training."""
        offer, known = self._offers[case.id], workloads()
        interpreter, code = offer.interpreter(self._interpreters), bundles / offer.adapter.name
        return launch_of(configuration(case, offer, known), limits(case, known), self._interpreters, code, interpreter)

    def record_fields(self, item: Runnable[CommCase]) -> dict[str, Any]:
        """Return the gradient tensors of the case's network."""
        if item.case.workload is None:
            return {}
        named = gradient_tensors(workloads()[item.case.workload])
        return {"tensors": [Tensor(name=name, numbers=numbers) for name, numbers in named]}

    def attempt(
        self, item: Runnable[CommCase], repeat: int, folder: Path, on_message: OnMessage, in_turns: bool
    ) -> Measuring:
        return item.launch.running(folder, task(item.case, self._offers[item.case.id], workloads()), on_message)

    def reports(self, attempt: Attempt) -> dict[str, Any]:
        return {"ranks": [comm_rank(rank, sent) for rank, sent in sorted(attempt.messages.items())]}
