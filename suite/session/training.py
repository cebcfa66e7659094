"""A session that measures training: each case proven before its first process, then measured in rounds."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from suite.contracts.case import Case
from suite.contracts.observer import Observer
from suite.data.sets import locate
from suite.launching.launch import Launch, OnMessage, launch_of
from suite.plan import Resolved
from suite.proofs.prove import Proofs
from suite.results.run_folder import RunFolder
from suite.session.resumable import Runnable, Session
from suite.supervision import Attempt, Limits

BODIES = {"layers": "layers", "training": "record", "wire": "interfaces"}  # kind of message: what of it is kept


@dataclass(frozen=True)
class Settings:
    """What the command line adds to a plan."""

    proofs: bool = True
    retry: bool = False  # measure again what failed or lacked something before
    scale: str | None = None  # the plan's, for the record


class TrainingSession(Session[Case]):
    """One run of a plan."""

    def __init__(
        self,
        folder: RunFolder,
        resolved: Sequence[Resolved],
        interpreters: dict[str, str],
        observer: Observer[Case],
        settings: Settings,
    ) -> None:
        """`interpreters` are the explicit settings (adapter: path)."""
        super().__init__(folder, resolved, observer, settings.retry)
        self.scale, self._interpreters = settings.scale, interpreters
        self._proofs = Proofs(interpreters) if settings.proofs else None
        self._proof_of: dict[str, dict[str, Any]] = {}

    def launch(self, case: Case, bundles: Path) -> Launch:
        """In the adapter's own interpreter; Unavailable, too, where its data set is missing."""
        return launch_of_case(case, self._interpreters, bundles / case.adapter)

    def processes(self, case: Case) -> int:
        """As the plan's sampling says."""
        return case.sampling.processes

    def before(self, item: Runnable[Case]) -> dict[str, Any]:
        """The proof that the record names."""
        proof = self._prove(item)
        return {"proof": proof.get("key"), "proof_reason": proof.get("reason", "")}

    def attempt(self, item: Runnable[Case], folder: Path, on_message: OnMessage) -> Attempt:
        """Every pass of the case."""
        case, launch = item.case, item.launch
        data = locate(case.data, launch.workload, launch.adapter.capabilities.format(case.input.format))
        return launch.run(folder, "measure", on_message, data=data)

    def ranks(self, attempt: Attempt) -> list[dict[str, Any]]:
        """The last message of each kind, the passes by name, the notes joined."""
        return [_rank(rank, messages) for rank, messages in sorted(attempt.messages.items())]

    def _prove(self, item: Runnable[Case]) -> dict[str, Any]:
        """The case's proof, made at its first process; every proof goes into the run folder too."""
        case = item.case
        if self._proofs is None:
            return {"reason": "proofs were switched off for this run"}
        if case.id not in self._proof_of:
            self._observer.proving(case)
            proof = self._proofs.prove(case, item.launch, self._folder.attempt(case.id, "proof"))
            if proof["key"]:
                self._folder.write(f"proofs/{proof['key']}.json", proof)
            self._proof_of[case.id] = proof
            self._observer.proved(case, proof)
        return self._proof_of[case.id]


def launch_of_case(case: Case, interpreters: dict[str, str], bundle_folder: Path) -> Launch:
    """The launch of a case, within its own limits; Unavailable says what this machine lacks."""
    return launch_of(case, Limits(case.time_limit, case.silence_limit), interpreters, bundle_folder)


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
