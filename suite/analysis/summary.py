"""A run folder as rows, one per case: outcome, marks, speed, budget, scaling, losses, layers.

Records are read a few at a time, and only what rows need is kept, so that a long run fits in little memory. A row has
the speed of the processes that were measured well; a run may be incomplete, and its rows show that.
"""

import gc
import multiprocessing
import os
import signal
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from threading import Thread

import numpy as np

from stagebench.suite.analysis.comparability import FAILED_LATER, FOREIGN, SHARED_GPUS
from stagebench.suite.analysis.leaders import Against, against_fastest
from stagebench.suite.analysis.machine import beside_run, best_of_run, elsewhere, machine_peaks
from stagebench.suite.analysis.measured import RESIDUAL, Process, process_of
from stagebench.suite.analysis.roofline import macs_of, tokens_of
from stagebench.suite.analysis.rows import Row
from stagebench.suite.analysis.scaling import over_devices, over_nodes
from stagebench.suite.analysis.stats import Rates, together
from stagebench.suite.analysis.trend import drifts
from stagebench.suite.contracts.case import Case
from stagebench.suite.errors import StagebenchError, StoreError
from stagebench.suite.results.foreign import imported
from stagebench.suite.results.records import CANCELLED, CaseEntry, Proof
from stagebench.suite.results.run_folder import RunFolder, case_of
from stagebench.suite.text import grouped, shown
from stagebench.suite.worker.machine import cores

INVALID = "invalid"  # the file in a record's place is not that record
MISSING = "not measured"  # a case that could run, without any record: the run was interrupted
# Marks of processes, in the order in which a row has them.
ORDER = (
    "other method",
    "missing rank",
    SHARED_GPUS,
    "non-finite loss",
    "trend",
    FAILED_LATER,
    "unsteady breakdown",
    "disturbed breakdown",
    "more threads than cores",
    "CPU quota",
    "samples skipped",
    "subnormal",
)
CHUNK = 200  # records that are read before any is looked at: one by one, each takes a third longer
PARALLEL_FROM = 4000  # records: fewer are read before another interpreter has started
MAX_WORKERS = 16  # more workers read faster than one process unpickles


def summarise(folder: RunFolder) -> list[Row]:
    """Return every case's row, in the plan's order.

    Invalid records and those of other cases are skipped: `unused_records` names them afterwards.
    """
    with uncollected():
        rows = imported_rows(folder) if folder.about.imported else _measured_rows(folder)
        # Scaling is only defined if each rank has its own device.
        scaled = [row for row in rows if SHARED_GPUS not in row.marks]
        devices, nodes = over_devices(scaled), over_nodes(scaled)
        verdicts: dict[str, Against] = {}
        for group in grouped((row for row in rows if row.comparable), lambda row: row.group).values():
            if len(group) > 1:  # a row alone in its group is compared with nothing
                verdicts |= against_fastest({row.id: row.rates for row in group if row.rates})
        peaks = machine_peaks(
            (row.id, row.case, process.about.processors, process.peak)
            for row in rows
            for process in row.processes
            if process.peak
        )
        macs = _by_network(folder, [row for row in rows if row.id in peaks and row.proof], macs_of)
        tokens = _by_network(folder, rows, tokens_of)
        for row in rows:
            row.tokens = tokens.get(row.id) or 0
            row.scaling, row.over_nodes = devices.get(row.id), nodes.get(row.id)
            row.against, row.peak = verdicts.get(row.id), peaks.get(row.id)
            row.macs = macs.get(row.id)
    return rows


@contextmanager
def uncollected() -> Iterator[None]:
    """Disable the search for cycles, of which records and rows have none: it takes a third of the time of many.

    Objects made inside are not searched afterwards either, until the next call.
    """
    enabled = gc.isenabled()
    gc.disable()
    gc.unfreeze()
    try:
        yield
    finally:
        gc.freeze()
        if enabled:
            gc.enable()


def imported_rows(folder: RunFolder) -> list[Row]:
    """Return a row per imported case, without processes and with a mark that keeps it out of every comparison.

    A case that was printed several times counts as that many processes.
    """
    rows = []
    for id_, speeds in grouped(imported(folder).speeds, lambda speed: speed.case.id).items():
        reasons, epochs = [], []
        for speed in speeds:
            reasons.append(speed.origin.words)
            if speed.epoch_s:
                seconds_of_each = ", ".join(f"{seconds:.3g}" for seconds in speed.epoch_s)
                reasons.append(f"seconds of the first epochs: {seconds_of_each}")
                samples = speed.samples_per_second * speed.epoch_s[-1]  # the speed is the last epoch's
                epochs.append(tuple((seconds, samples) for seconds in speed.epoch_s))
        row = Row(id_, speeds[0].case, FOREIGN, "; ".join(reasons), [], [FOREIGN], proof_reason="imported")
        row.published = epochs
        # The parts of a single process stand for steps: how much they differ is all that is known of its noise.
        parts = 1 / np.asarray(speeds[0].parts) if len(speeds) == 1 and speeds[0].parts else None
        row.rates = Rates({(id_, number): speed.samples_per_second for number, speed in enumerate(speeds)}, parts)
        rows.append(row)
    return rows


def _measured_rows(folder: RunFolder) -> list[Row]:
    cases, proofs, about = folder.cases, folder.proofs(), folder.about
    processes: dict[str, list[Process]] = {entry.id: [] for entry in cases}
    for case_id, process in read_processes(folder, processes, about.method):
        processes[case_id].append(process)
    best = best_of_run(own for several in processes.values() for each in several for own in each.references)
    for several in processes.values():
        several[:] = [replace(each, noise=beside_run(each.noise, each.references, best)) for each in several]
    invalid = {case_of(name): why for name, why in folder.invalid.items()}
    rows = [_row(entry, processes[entry.id], proofs, invalid.get(entry.id), about.until) for entry in cases]

    marked = elsewhere((row.id, row.case.placement, process.about.where) for row in rows for process in row.processes)
    rounds = {row.id: frozenset(row.rates.by_round) for row in rows if row.rates}
    if rounds:  # rows that have hardly a round in common with most of the run
        ((usual, _),) = Counter(rounds.values()).most_common(1)
        marked["another time"] = {id_ for id_, own in rounds.items() if not together(own, usual)}
    for row in rows:
        row.marks += [mark for mark, ids in marked.items() if row.id in ids]
    return rows


def read_processes(folder: RunFolder, cases: Collection[str], method: int) -> Iterator[tuple[str, Process]]:
    """Yield (case id, process) of every record of these case ids; then `folder.invalid` names the records skipped.

    Many records are read by a pool of processes, one per core. A pool starts its processes by importing `__main__`: a
    script that calls this needs the usual guard, or all records are read in this process.
    """
    names = folder.record_names()
    chunks = [names[start : start + CHUNK] for start in range(0, len(names), CHUNK)]
    workers = min(cores(), MAX_WORKERS, len(chunks))
    done = 0
    if len(names) >= PARALLEL_FROM and workers > 1:
        pool, begun = None, (folder.path, frozenset(cases), method)
        try:
            pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _begin_worker, begun)
            with _safe_path():
                results = pool.map(_work, chunks)
            for chunk, (processes, invalid) in zip(chunks, results, strict=True):
                for name in chunk:
                    folder.invalid.pop(name, None)  # it may have been replaced since it was read last
                folder.invalid.update(invalid)
                yield from processes
                done += 1
        except (
            BrokenProcessPool,
            BrokenPipeError,
        ):  # a worker ended: this process reads the rest
            pass
        finally:
            if pool is not None:
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
        except Exception as error:  # a record, whatever wrote it, does not keep the others from being shown
            problem = f"no figures come of its values ({type(error).__name__}: {shown(str(error), 200)[1:-1]})"
            folder.refuse(record, problem)
    return processes


@contextmanager
def _safe_path() -> Iterator[None]:
    """Keep workers from importing files of the current folder: other code, or another release's."""
    before = dict(os.environ)
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        yield
    finally:
        del os.environ["PYTHONSAFEPATH"]
        os.environ.update(before)


_worker: tuple[RunFolder, Collection[str], int]  # what a process of the pool reads, with which method


def _begin_worker(path: Path, cases: Collection[str], method: int) -> None:
    """Prepare a process of the pool, once."""
    global _worker
    _worker = RunFolder.open(path), cases, method
    gc.disable()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent is interrupted, too, and ends the pool
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End this process with its parent: a pool's processes outlive a parent that was killed."""
    parent = multiprocessing.parent_process()
    if parent:
        parent.join()
        os._exit(1)


def _work(names: Sequence[str]) -> tuple[list[tuple[str, Process]], dict[str, str]]:
    """Return the processes of a chunk of records, and the reason for each invalid one."""
    folder, cases, method = _worker
    folder.invalid = {}
    return _processes(folder, cases, method, names), folder.invalid


def _by_network(
    folder: RunFolder, rows: Iterable[Row], count_of: Callable[[Path, Case], int | None]
) -> dict[str, int | None]:
    """Return what `count_of` counts of a network by row id; rows of one network are counted once."""
    counts: dict[str, int | None] = {}
    for same in grouped(rows, lambda row: (row.case.workload, row.case.graph_digest, row.case.infers)).values():
        count = None
        with suppress(StoreError):  # a file of the folder holds no network: the page names it
            count = count_of(folder.path, same[0].case)
        counts |= dict.fromkeys((row.id for row in same), count)
    return counts


def unused_records(folder: RunFolder) -> str | None:
    """Return a note about records that no row holds, once they were read; None if every record has its row."""
    remarks = []
    invalid, strays = list(folder.invalid.values()), folder.strays()
    for names, why, separator in ((invalid, "invalid", "; "), (strays, "of no case of this plan", ", ")):
        if names:
            few = separator.join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
            remarks.append(f"{len(names)} record{'s' * (len(names) > 1)} skipped, {why}: {few}")
    return ". ".join(remarks) or None


def _row(
    entry: CaseEntry, processes: list[Process], proofs: dict[str, Proof], invalid: str | None, until: float | None
) -> Row:
    """Return a case's row; `invalid` is the reason for skipping a record of it, `until` the run's."""
    processes.sort(key=lambda process: process.repeat)
    failed = [process for process in processes if process.outcome not in ("ok", CANCELLED)]
    if not failed and all(process.outcome == CANCELLED for process in processes):
        failed = processes  # else a cancelled process takes nothing from what was measured
    outcome, reason = "ok", ""
    if not processes:
        outcome = entry.outcome or MISSING
        reason = entry.reason or ("" if entry.outcome else "the run stopped before it")
    elif failed:
        outcome, reason = failed[0].outcome, failed[0].reason
    else:
        reason = next((process.reason for process in processes if process.outcome == "ok" and process.reason), "")
    if invalid and outcome in ("ok", MISSING):
        outcome, reason = INVALID, invalid
    row = Row(entry.id, entry.case, outcome, reason, processes)
    mark = _prove(row, proofs)
    row.marks = list(_marks(row, mark)) if processes else []
    by_round = {process.round: process.rate for process in row.measured if process.rate}
    if by_round:
        planned = entry.case.sampling.processes
        looked = until is not None or len(by_round) > planned  # a later command may have measured more
        steps = row.measured[0].step_seconds if len(by_round) == 1 else None
        row.rates = Rates(by_round, steps, planned if looked else None)
    return row


def _prove(row: Row, proofs: dict[str, Proof]) -> str:
    """Give a row its proof, and the reason why it has none or not quite its own; return its mark, "" without one."""
    abouts = [process.about for process in row.processes]
    keys = sorted({about.proof for about in abouts if about.proof})
    row.proof = proof = proofs.get(keys[0]) if len(keys) == 1 else None
    if proof is None:
        row.proof_reason = next((about.proof_reason for about in abouts if about.proof_reason), "no proof was made")
        if keys:
            row.proof_reason = f"proofs/{keys[0]}.json is missing from the run folder"
        if len(keys) > 1:
            named = ", ".join(keys)
            row.proof_reason = f"its records name different proofs ({named}): the framework changed during the run"
        return "no proof"
    others = set().union(*(about.processors for about in abouts)).difference(proof.processors)
    if others and proof.processors:
        row.proof_reason = f"proven on {', '.join(proof.processors)}, measured on {', '.join(sorted(others))}"
        return "proof of another machine" if proof.passed else "proof failed"
    proven = {each.digest: each.values for each in proof.environments}
    measured = [pair for about in abouts for pair in about.environments.items()]
    unproven = next((values for digest, values in measured if digest not in proven), None)
    if proven and unproven is not None:
        row.proof_reason = _differing(next(iter(proven.values())), unproven)
        return "proof under other variables" if proof.passed else "proof failed"
    return "" if proof.passed else "proof failed"


def _differing(proven: Mapping[str, str], measured: Mapping[str, str]) -> str:
    words = []
    for name in sorted({*proven, *measured}):
        then, now = (f"with {each[name]!r}" if name in each else "without it" for each in (proven, measured))
        if then != now:
            words.append(f"{name}: proven {then}, measured {now}")
    return "; ".join(words) or "proven and measured with paths in different home folders"


def _marks(row: Row, proof_mark: str) -> Iterable[str]:
    marks: set[str] = set().union(*(process.marks for process in row.processes))
    if row.measured and drifts([process.trend for process in row.measured]):
        marks.add("trend")
    yield from (mark for mark in ORDER if mark in marks)
    budget = row.budget
    conditions = {
        "large residual": budget and max(abs(budget.other), -(budget.communication or 0.0)) > RESIDUAL * budget.native,
        proof_mark: True,
        "disturbed": any(process.noise.disturbed for process in row.processes),
        "GPU throttled": any(gpu.faults for gpu in row.gpus),
        "other server version": len({each.model_server.version for each in row.measured if each.model_server}) > 1,
        "quick": row.case.sampling.quick,
        "incomplete": row.answers < row.case.sampling.processes,
        "one process": len(row.measured) == 1,
    }
    yield from (mark for mark, holds in conditions.items() if mark and holds)
