"""A session that measures training: each case proven before its first process, then measured in rounds."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from suite.contracts import knobs
from suite.contracts.adapter import Adapter
from suite.contracts.case import Case
from suite.data.sets import locate
from suite.plan import Resolved
from suite.plugin_errors import ask
from suite.processes.attempt import Attempt, Limits, Measuring
from suite.processes.jobs import measuring
from suite.processes.launch import Launch, OnMessage, launch_of
from suite.proofs.make import Proofs, tuned_batch
from suite.proofs.side_by_side import Proving, Share, room, share, side_by_side
from suite.results.proof import Proof
from suite.results.rank_report import training_rank
from suite.results.records import Declared
from suite.results.run_folder import RunFolder
from suite.session.end_rule import PLANNED, EndRule
from suite.session.observer import Observer
from suite.session.patience import patiently
from suite.session.resumable import Runnable, Session
from suite.session.turns import MOST
from suite.text import grouped
from suite.worker.messages import Hello, Kernels, Notes, Pass, Phase, Training, of_type
from suite.worker.pass_kinds import BY_NAME, KERNELS, NATIVE, TRAIN

# (folder, (case, synchronous), most processes so far, half-width) -> ids of cases that need a further round
OpenCases = Callable[[RunFolder, Iterable[tuple[Case, bool]], int, float], set[str]]


def none_open(folder: RunFolder, cases: Iterable[tuple[Case, bool]], processes: int, threshold: float) -> set[str]:
    """Return no case: the plan's processes are enough."""
    return set()


@dataclass(frozen=True)
class Settings:
    """The settings that the command line adds to a plan."""

    proofs: bool = True
    retry: bool = False  # measure cases again that failed or were unavailable
    scale: str | None = None  # the plan's scale profile, for the record
    end: EndRule = PLANNED
    open_cases: OpenCases = none_open  # called if the end rule allows further rounds


class TrainingSession(Session[Case]):
    """A run of a plan."""

    def __init__(
        self,
        folder: RunFolder,
        resolved: Sequence[Resolved],
        interpreters: dict[str, str],
        observer: Observer,
        settings: Settings,
    ) -> None:
        """Take a plan's resolved cases and the explicit interpreters ({adapter: path})."""
        super().__init__(folder, resolved, observer, settings.retry, settings.end)
        self.scale, self._interpreters = settings.scale, interpreters
        self._run, self._open_cases = folder, settings.open_cases
        self._proofs = Proofs(interpreters) if settings.proofs else None
        self._proof_of: dict[str, Proof] = {}
        self._doubted: set[str | None] = set()  # keys of proofs

    def launch(self, case: Case, bundles: Path) -> Launch:
        """Return the launch in the adapter's interpreter; Unavailable also if the data set is missing."""
        return launch_of_case(case, self._interpreters, bundles / case.adapter)

    def processes(self, case: Case) -> int:
        return case.sampling.processes

    def undecided(self, items: list[Runnable[Case]], processes: int) -> list[Runnable[Case]]:
        """Return the cases whose comparisons are still open."""
        asked = [(item.case, ask(item.launch.adapter, "synchronous", item.case)) for item in items]
        undecided = self._open_cases(self._run, asked, processes, self._end.clear)
        return [item for item in items if item.case.id in undecided]

    def prepare(self, items: list[Runnable[Case]]) -> None:
        """Make the missing proofs, as many at a time as the cores and the memory allow."""
        if self._proofs is not None:
            todo = [item for item in items if item.case.id not in self._proof_of]
            wanted = [(_share(item), self._proving(item, self._proofs)) for item in todo]
            for case, proof in side_by_side(wanted, room()):
                self._proof_of[case.id] = proof

    def record_fields(self, item: Runnable[Case]) -> dict[str, Any]:
        """Return the proof that the record names, and what the adapter declares for the case."""
        declared = declared_of(item.case, item.launch.adapter)
        if self._proofs is None:
            return {"declared": declared, "proof_reason": "proofs were switched off for this run"}
        proof = self._proof_of[item.case.id]
        return {"declared": declared, "proof": proof.key, "proof_reason": proof.reason}

    def turn_key(self, item: Runnable[Case]) -> Hashable:
        """Return what the cases of one comparison share; None if a waiting case would take time from the others."""
        case, place, adapter = item.case, item.case.placement, item.launch.adapter
        working = ask(adapter, "sidecars", case) or not ask(adapter, "synchronous", case)
        busy = working or case.straggler or place.device != "cpu"
        if NATIVE not in case.passes or busy or not item.launch.here or case.input.page_cache == "cold":
            return None
        devices = place.ranks * place.devices
        return case.workload, case.data, case.batch, case.precision, devices, place.threads

    def turn_groups(self, items: list[Runnable[Case]]) -> list[list[Runnable[Case]]]:
        """Join both tunings if they are few enough; else split them, since comparisons within a tuning come first."""
        by_tuning = list(grouped(items, lambda item: item.case.tuning).values())
        return [list(chain(*by_tuning))] if len(items) <= MOST else by_tuning

    def attempt(
        self, item: Runnable[Case], repeat: int, folder: Path, on_message: OnMessage, in_turns: bool
    ) -> Measuring:
        case, launch = item.case, item.launch
        data = locate(case.data, launch.workload, launch.adapter.capabilities.format(case.input.format))
        task = measuring(case, repeat, launch.workload, data)
        attempt = yield from launch.running(folder, task, on_message, in_turns)
        self._doubt(item, attempt)
        return replace(attempt, reason=attempt.reason + slowed(case, attempt) + kept(attempt))

    def reports(self, attempt: Attempt) -> dict[str, Any]:
        """Return the ranks' last message of each kind, passes by name, notes joined; and the passes' outcomes."""
        ranks = [training_rank(rank, sent) for rank, sent in sorted(attempt.messages.items())]
        return {"ranks": ranks, "passes": pass_ends(attempt)}

    def _proving(self, item: Runnable[Case], proofs: Proofs) -> Proving[tuple[Case, Proof]]:
        """Make the case's proof before its first process, and store it in the run folder."""
        case = item.case
        self._observer.proving(case)
        folder = patiently(lambda: self._folder.attempt(case.id, "proof"), self._observer.note)
        proof = yield from proofs.proving(case, item.launch, folder)
        if proof.key:
            patiently(lambda: self._folder.write_proof(proof), self._observer.note)
        self._observer.proved(case, proof)
        return case, proof

    def _doubt(self, item: Runnable[Case], attempt: Attempt) -> None:
        """Have a proof made again, once, if the ranks saw other variables: the login of a host has changed."""
        proof = self._proof_of.get(item.case.id)
        if self._proofs is None or proof is None or proof.key in self._doubted or not unlike(proof, attempt):
            return
        self._doubted.add(proof.key)
        self._proofs.forget(proof)
        self._proof_of = {id_: other for id_, other in self._proof_of.items() if other.key != proof.key}


def _share(item: Runnable[Case]) -> Share:
    timing = bool(tuned_batch(item.case, item.launch.adapter))
    return share(item.case, item.launch.workload.graph(), item.launch.here, timing)


LIMITS = {"time": "time_limit", "silence": "silence_limit"}  # by the reason of a watchdog


def unlike(proof: Proof, attempt: Attempt) -> bool:
    """True if ranks saw other arithmetic variables than the proof's ranks."""
    hellos = [hello for sent in attempt.messages.values() for hello in of_type(Hello, sent) if hello.arithmetic]
    proven = {environment.digest for environment in proof.environments}
    return bool(proven) and any(hello.arithmetic.digest not in proven for hello in hellos if hello.arithmetic)


def slowed(case: Case, attempt: Attempt) -> str:
    """Return the addition to the reason of a straggler's case that passed a limit; "" for any other case."""
    stopped = attempt.evidence["stopped"] or {}
    limit = LIMITS.get(stopped.get("why", ""))
    if not case.straggler or limit is None:
        return ""
    rank, share = case.placement.ranks - 1, case.straggler
    return (
        f"; rank {rank} is a straggler that lost {share:.0%} of its time, as the plan asks: raise {limit} = "
        f"{getattr(case, limit):g} or lower straggler = {share:g}"
    )


def pass_ends(attempt: Attempt) -> dict[str, str]:
    """Return the outcome of each pass that began, in order: "ok" once every rank has sent its result.

    A pass that an adapter could not measure has a note instead of an outcome.
    """
    begun: dict[str, None] = {}
    finished, noted = Counter[str](), set[str]()
    for sent in attempt.messages.values():
        begun |= dict.fromkeys(phase.name for phase in of_type(Phase, sent) if phase.name in BY_NAME)
        names = {each.name for each in of_type(Pass, sent)}
        finished.update(names | {KERNELS for _ in of_type(Kernels, sent)} | {TRAIN for _ in of_type(Training, sent)})
        noted |= {name for each in of_type(Notes, sent) for name in each.notes}
    ranks, ends = len(attempt.messages), dict[str, str]()
    for name in begun:
        if finished[name] == ranks:
            ends[name] = "ok"
        elif name not in noted:
            ends[name] = attempt.outcome
    if attempt.outcome == "diverged" and ends:  # a pass is sent before its loss is judged
        ends[next(reversed(ends))] = "diverged"
    return ends


def kept(attempt: Attempt) -> str:
    """Return the addition to the reason of an attempt that ended badly after its speed was measured; else ""."""
    ends = pass_ends(attempt)
    if attempt.outcome in ("ok", "diverged") or ends.get(NATIVE) != "ok":
        return ""
    broken = [name for name, end in ends.items() if end != "ok"]
    place = f"in the pass {broken[0]}" if broken else "after the last pass"
    return f"; it happened {place}: the speed, measured before, is kept"


def declared_of(case: Case, adapter: Adapter) -> Declared:
    """Return what an adapter declares for a case."""
    able = adapter.capabilities
    strategy = able.strategy(case.strategy)
    return Declared(
        knob_defaults=knobs.values(able.knobs),
        synchronous=ask(adapter, "synchronous", case),
        separable=strategy.separable if strategy else (),
        model_parallel_size=ask(adapter, "model_parallel_size", case),
        microbatches=ask(adapter, "microbatches", case),
    )


def launch_of_case(case: Case, interpreters: dict[str, str], bundle_folder: Path) -> Launch:
    """Return the launch of a case, within its own limits; Unavailable if this machine lacks something."""
    return launch_of(case, Limits(case.time_limit, case.silence_limit), interpreters, bundle_folder)
