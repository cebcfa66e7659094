"""Imported speeds as rows: without processes, and with a mark that keeps them out of every comparison.

A run folder as rows, one a case: outcome, marks, speed, budget, scaling, losses, layers.

Records are read a few at a time and only what rows need is kept, so that a long run fits in
little memory. A row has the speed of the processes that were measured well; a run may be
incomplete, and its rows say so.
"""

import gc
import multiprocessing
import os
import signal
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np

from suite.analysis.comparability import FOREIGN, SHARED_GPUS, Key
from suite.analysis.in_parts import held_whole
from suite.analysis.leaders import Against, against_fastest
from suite.analysis.machine import beside_run, best_of_run, elsewhere, machine_peaks
from suite.analysis.measured import RESIDUAL, Process, process_of
from suite.analysis.rows import Row
from suite.analysis.scaling import over_devices, over_nodes
from suite.analysis.stats import Rates, together
from suite.analysis.trend import drifts
from suite.errors import StagebenchError
from suite.foreign.folder import ForeignRun, Speed
from suite.results.proof import Proof
from suite.results.records import CANCELLED, CaseEntry
from suite.results.run_folder import ResultFolder, RunFolder, case_of
from suite.suggest import shown


def imported_rows(folder: ForeignRun) -> list[Row]:
    """A row a case; what was printed several times of a case counts as that many processes."""
    by_case: dict[str, list[Speed]] = {}
    for speed in folder.speeds:
        by_case.setdefault(speed.case.id, []).append(speed)
    return [_imported_row(id_, speeds) for id_, speeds in by_case.items()]


def _imported_row(id_: str, speeds: list[Speed]) -> Row:
    # Of one process its parts are what steps are of ours: how much they differ is all that is known of its noise.
    parts = 1 / np.asarray(speeds[0].parts) if len(speeds) == 1 and speeds[0].parts else None
    return Row(
        id=id_,
        case=speeds[0].case,
        outcome=FOREIGN,
        reason="; ".join(map(_words, speeds)),
        processes=[],
        marks=[FOREIGN],
        proof_reason="imported",
        published=[tuple((each, _samples(speed)) for each in speed.epoch_s) for speed in speeds if speed.epoch_s],
        rates=Rates({(id_, at): speed.samples_per_second for at, speed in enumerate(speeds)}, parts),
    )


def _samples(speed: Speed) -> float:
    """Of an epoch: its speed is the last epoch's."""
    return speed.samples_per_second * speed.epoch_s[-1]


def _words(speed: Speed) -> str:
    epochs = ", ".join(f"{seconds:.3g}" for seconds in speed.epoch_s)
    return f"{speed.origin.words}{f'; seconds of the first epochs: {epochs}' if epochs else ''}"


INVALID = "invalid"  # what stands in a record's place is not that record
ORDER = (
    "other method",
    "missing rank",
    SHARED_GPUS,
    "non-finite loss",
    "trend",
    "unsteady",
    "unsteady breakdown",
    "more threads than cores",
    "CPU quota",
    "samples skipped",
    "subnormal",
)
CHUNK = 200  # records that are read before any is looked at: one by one, each takes a third longer
PARALLEL_FROM = 4000  # records: fewer are read before another interpreter has started
MOST_WORKERS = 16  # more read faster than one process unpickles
MISSING = "not measured"  # a case that could run, without any record: the run was interrupted


def summarise(folder: RunFolder) -> list[Row]:
    """Every case's row, in the plan's order.

    Invalid records and those of other cases are skipped: `unused_records` names them afterwards.
    """
    with uncollected():
        rows = imported_rows(folder) if isinstance(folder, ForeignRun) else _measured_rows(folder)
        # Of devices that are several.
        scaled = [(row, row.rates) for row in rows if row.rates and SHARED_GPUS not in row.marks]
        entries = [(row.id, row.case, rates) for row, rates in scaled]
        whole = [(row.id, held_whole(row), rates) for row, rates in scaled]
        devices, nodes, verdicts = over_devices(whole), over_nodes(entries), _verdicts(rows)
        peaks = machine_peaks(
            (row.id, row.case, one.about.processors, one.peak) for row in rows for one in row.processes if one.peak
        )
        for row in rows:
            row.scaling, row.over_nodes, row.against = devices.get(row.id), nodes.get(row.id), verdicts.get(row.id)
            row.peak = peaks.get(row.id)
    return rows


def _measured_rows(folder: RunFolder) -> list[Row]:
    cases, proofs, about = folder.cases, folder.proofs(), folder.about
    processes: dict[str, list[Process]] = {entry.id: [] for entry in cases}
    for case_id, process in read_processes(folder, processes, about.method):
        processes[case_id].append(process)
    best = best_of_run(each for several in processes.values() for process in several for each in process.references)
    for several in processes.values():
        several[:] = [replace(one, noise=beside_run(one.noise, one.references, best)) for one in several]
    invalid = {case_of(name): why for name, why in folder.invalid.items()}
    rows = [_row(entry, processes[entry.id], proofs, invalid.get(entry.id), about.until) for entry in cases]
    found = elsewhere((row.id, row.case.placement, one.about.where) for row in rows for one in row.processes)
    found["another time"] = _measured_apart(rows)
    for row in rows:
        row.marks += [mark for mark, marked in found.items() if row.id in marked]
    return rows


def read_processes(folder: RunFolder, cases: Collection[str], method: int) -> Iterator[tuple[str, Process]]:
    """Yield (case id, process) of every record of these case ids; then `folder.invalid` names the records skipped.

    Many records are read by a pool of processes, one a core. A pool starts its processes by importing `__main__`: a
    script that calls this needs the usual guard, or all records are read here.
    """
    names = folder.record_names()
    chunks = [names[start : start + CHUNK] for start in range(0, len(names), CHUNK)]
    workers = min(len(os.sched_getaffinity(0)), MOST_WORKERS, len(chunks))
    done = 0
    if len(names) >= PARALLEL_FROM and workers > 1:
        pool = ProcessPoolExecutor(
            workers, multiprocessing.get_context("spawn"), _begin_worker, (folder.path, frozenset(cases), method)
        )
        try:
            with _safe_path():
                futures = [pool.submit(_work, chunk) for chunk in chunks]
            for chunk, future in zip(chunks, futures, strict=True):
                processes, invalid = future.result()
                for name in chunk:
                    folder.invalid.pop(name, None)  # it may have been replaced since it was read last
                folder.invalid.update(invalid)
                yield from processes
                done += 1
        except BrokenProcessPool:  # whatever ended a worker, this process reads the rest
            pass
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
    for chunk in chunks[done:]:
        yield from _processes(folder, cases, method, chunk)


def _processes(
    folder: RunFolder, cases: Collection[str], method: int, names: Sequence[str]
) -> list[tuple[str, Process]]:
    processes = []
    for record in list(folder.records(cases, names)):
        try:
            processes.append((record.case_id, process_of(record, method)))
        except (StagebenchError, MemoryError):
            raise
        except Exception as error:  # one record, whoever wrote it, does not keep the others from being shown
            problem = f"no figures come of its values ({type(error).__name__}: {shown(str(error), 200)[1:-1]})"
            folder.refuse(record, problem)
    return processes


@contextmanager
def _safe_path() -> Iterator[None]:
    """Keep workers from importing what lies in the current folder: other code, or another release's."""
    before = os.environ.get("PYTHONSAFEPATH")
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONSAFEPATH"]
        else:
            os.environ["PYTHONSAFEPATH"] = before


def _begin_worker(path: Path, cases: Collection[str], method: int) -> None:
    """Prepare a process of the pool, once."""
    global _worker
    _worker = RunFolder.open(path), cases, method
    gc.disable()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent is interrupted, too, and ends the pool
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A pool's processes outlive a parent that was killed."""
    parent = multiprocessing.parent_process()
    if parent:
        parent.join()
        os._exit(1)


_worker: tuple[RunFolder, Collection[str], int]


def _work(names: Sequence[str]) -> tuple[list[tuple[str, Process]], dict[str, str]]:
    """Return the processes of a chunk of records, and the reason for each invalid one."""
    folder, cases, method = _worker
    folder.invalid = {}
    return _processes(folder, cases, method, names), folder.invalid


def _measured_apart(rows: Iterable[Row]) -> set[str]:
    """The rows that have hardly a round in common with most of the run."""
    rounds = {row.id: frozenset(row.rates.by_round) for row in rows if row.rates}
    ((usual, _),) = Counter(rounds.values()).most_common(1) or [(frozenset(), 0)]
    return {id_ for id_, own in rounds.items() if not together(own, usual)}


@contextmanager
def uncollected() -> Iterator[None]:
    """Without the search for cycles, which records and rows have none of: it takes a third of the time of many.

    What was made meanwhile is not searched afterwards either, until the next time.
    """
    searched = gc.isenabled()
    gc.disable()
    gc.unfreeze()
    try:
        yield
    finally:
        gc.freeze()
        if searched:
            gc.enable()


def _verdicts(rows: Iterable[Row]) -> dict[str, Against]:
    """By row id; a row alone in its group is compared with nothing."""
    groups: dict[Key, dict[str, Rates]] = defaultdict(dict)
    for row in rows:
        if row.rates and row.comparable:
            groups[row.group][row.id] = row.rates
    return {id_: one for group in groups.values() if len(group) > 1 for id_, one in against_fastest(group).items()}


def unused_records(folder: ResultFolder[Any, Any]) -> str | None:
    """The note about records that no row holds, once they were read; None when every record has its row."""
    found = (("invalid", list(folder.invalid.values()), "; "), ("of no case of this plan", folder.strays(), ", "))
    remarks = [
        f"{len(names)} record{'s' * (len(names) > 1)} skipped, {why}: {_few(names, between)}"
        for why, names, between in found
        if names
    ]
    return ". ".join(remarks) or None


def _few(names: list[str], between: str) -> str:
    return between.join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _row(
    entry: CaseEntry, processes: list[Process], proofs: dict[str, Proof], invalid: str | None, until: float | None
) -> Row:
    """`invalid`: why a record of the case is not used; `until`: the run's."""
    processes.sort(key=lambda process: process.repeat)
    outcome, reason = _outcome(entry, processes)
    if invalid and outcome in ("ok", MISSING):
        outcome, reason = INVALID, invalid
    row = Row(entry.id, entry.case, outcome, reason, processes)
    keys = {process.about.proof for process in processes if process.about.proof}
    if len(keys) == 1:
        row.proof = proofs.get(keys.copy().pop())
    row.proof_reason = _proof_reason(row, keys)
    row.marks = list(_marks(row))
    by_round = {process.round: process.rate for process in row.measured if process.rate}
    if by_round:
        planned = entry.case.sampling.processes
        looked = until is not None or len(by_round) > planned  # a later command may have measured on
        steps = row.measured[0].step_seconds if len(by_round) == 1 else None
        row.rates = Rates(by_round, steps, planned if looked else None)
    return row


def _outcome(entry: CaseEntry, processes: list[Process]) -> tuple[str, str]:
    if not processes:
        return entry.outcome or MISSING, entry.reason or ("" if entry.outcome else "the run stopped before it")
    bad = [process for process in processes if process.outcome != "ok"]
    # What a person stopped takes nothing from what was measured.
    failed = [process for process in bad if process.outcome != CANCELLED] or (bad if len(bad) == len(processes) else [])
    return (failed[0].outcome, failed[0].reason) if failed else ("ok", "")


def _of_the_proof(row: Row) -> Iterable[str]:
    if row.proof is None:
        yield "no proof"
    elif not row.proof.passed:
        yield "proof failed"
    elif _elsewhere(row):
        yield "proof of another machine"
    elif _other_variables(row):
        yield "proof under other variables"


def _elsewhere(row: Row) -> set[str]:
    """Processors that measured and did not prove; nothing where they were not kept yet."""
    measured = set().union(*(process.about.processors for process in row.processes))
    return measured - set(row.proof.processors) if row.proof and row.proof.processors else set()


def _other_variables(row: Row) -> str:
    """What ranks that measured saw and none that proved did, in words; "" where that is nothing, or was not kept."""
    proven = {each.digest: each.values for each in row.proof.environments} if row.proof else {}
    measured: dict[str, dict[str, str]] = {}
    for process in row.processes:
        measured |= process.about.environments
    unproven = [values for digest, values in measured.items() if digest not in proven]
    if not proven or not unproven:
        return ""
    before, after = next(iter(proven.values())), unproven[0]
    named = [name for name in sorted({*before, *after}) if before.get(name) != after.get(name)]
    words = [f"{name}: proven {_value(before, name)}, measured {_value(after, name)}" for name in named]
    return "; ".join(words) or "proven and measured with paths in different home folders"


def _value(variables: dict[str, str], name: str) -> str:
    return f"with {variables[name]!r}" if name in variables else "without it"


def _proof_reason(row: Row, keys: set[str]) -> str:
    if row.proof:
        others = ", ".join(sorted(_elsewhere(row)))
        return f"proven on {', '.join(row.proof.processors)}, measured on {others}" if others else _other_variables(row)
    if len(keys) > 1:
        return f"its records name different proofs ({', '.join(sorted(keys))}): the framework changed during the run"
    if keys:
        return f"proofs/{keys.copy().pop()}.json is missing from the run folder"
    reasons = [process.about.proof_reason for process in row.processes if process.about.proof_reason]
    return reasons[0] if reasons else "no proof was made"


def _marks(row: Row) -> Iterable[str]:
    if row.processes:
        found: set[str] = set().union(*(process.marks for process in row.processes))
        if row.measured and drifts([process.trend for process in row.measured]):
            found.add("trend")
        yield from (mark for mark in ORDER if mark in found)
        yield from _of_the_row(row)


def _of_the_row(row: Row) -> Iterable[str]:
    if row.budget and max(abs(row.budget.other), -(row.budget.communication or 0.0)) > RESIDUAL * row.budget.native:
        yield "large residual"
    yield from _of_the_proof(row)
    if any(process.noise.disturbed for process in row.processes):
        yield "disturbed"
    if any(gpu.faults for gpu in row.gpus):
        yield "GPU throttled"
    if row.case.sampling.quick:
        yield "quick"
    if row.answers < row.case.sampling.processes:
        yield "incomplete"
    if len(row.measured) == 1:
        yield "one process"
