"""The proofs of a session's cases, each made before the case's first process."""

from typing import Any

from stagebench.suite.contracts.case import Case
from stagebench.suite.processes.attempt import Attempt
from stagebench.suite.proofs.make import Proofs, tuned_batch
from stagebench.suite.proofs.side_by_side import Proving, room, share, side_by_side
from stagebench.suite.results.records import Proof
from stagebench.suite.results.run_folder import RunFolder
from stagebench.suite.session.cases import Runnable
from stagebench.suite.session.observer import Observer
from stagebench.suite.session.patience import patiently
from stagebench.suite.worker.messages import Hello, of_type


class CaseProofs:
    """The proof of each case of a run."""

    def __init__(self, folder: RunFolder, interpreters: dict[str, str], observer: Observer) -> None:
        """Keep proofs in the run folder; `interpreters` are the explicit settings ({adapter: path})."""
        self._folder, self._observer, self._proofs = folder, observer, Proofs(interpreters)
        self._proof_of: dict[str, Proof] = {}
        self._doubted: set[str | None] = set()  # keys of proofs

    def make(self, items: list[Runnable]) -> None:
        """Make the missing proofs, as many at a time as the cores and the memory allow."""
        wanted = []
        for item in items:
            if item.case.id not in self._proof_of:
                launch, timing = item.launch, bool(tuned_batch(item.case, item.launch.adapter))
                taken = share(item.case, launch.workload.graph(), launch.here, timing)
                wanted.append((taken, self._proving(item)))
        for case, proof in side_by_side(wanted, room()):
            self._proof_of[case.id] = proof

    def fields(self, case: Case) -> dict[str, Any]:
        """Return the fields of a record that name the case's proof."""
        proof = self._proof_of[case.id]
        return {"proof": proof.key, "proof_reason": proof.reason}

    def doubt(self, case: Case, attempt: Attempt) -> None:
        """Have a proof made again, once, if the ranks saw other variables: the login of a host has changed."""
        proof = self._proof_of.get(case.id)
        if proof is None or proof.key in self._doubted or not unlike(proof, attempt):
            return
        self._doubted.add(proof.key)
        self._proofs.forget(proof)
        self._proof_of = {id_: other for id_, other in self._proof_of.items() if other.key != proof.key}

    def _proving(self, item: Runnable) -> Proving[tuple[Case, Proof]]:
        """Make the case's proof before its first process, and store it in the run folder."""
        case = item.case
        self._observer.proving(case)
        folder = patiently(lambda: self._folder.attempt(case.id, "proof"), self._observer.note)
        proof = yield from self._proofs.proving(case, item.launch, folder)
        if proof.key:
            patiently(lambda: self._folder.write_proof(proof), self._observer.note)
        self._observer.proved(case, proof)
        return case, proof


def unlike(proof: Proof, attempt: Attempt) -> bool:
    """True if ranks saw other arithmetic variables than the proof's ranks."""
    hellos = [hello for sent in attempt.messages.values() for hello in of_type(Hello, sent) if hello.arithmetic]
    proven = {environment.digest for environment in proof.environments}
    return bool(proven) and any(hello.arithmetic.digest not in proven for hello in hellos if hello.arithmetic)
