"""Which cases of a run are worth another round: what cannot be told apart yet, nor be called equal."""

from collections import defaultdict
from collections.abc import Iterable

from suite.analysis.comparability import Key, group
from suite.analysis.leaders import open_questions
from suite.analysis.measured import rate, round_of
from suite.analysis.stats import Round
from suite.contracts.case import Case
from suite.results.records import CANCELLED
from suite.results.run_folder import RunFolder


def open_cases(folder: RunFolder, cases: Iterable[tuple[Case, bool]], processes: int, threshold: float) -> set[str]:
    """Ids of those (case, synchronous) whose comparisons are open at that half-width, after `processes` rounds at most.

    What failed, and what does not train the same network, is compared with nothing.
    """
    failed = {key for key, proof in folder.proofs().items() if not proof.passed}
    groups: dict[Key, dict[str, dict[Round, float]]] = defaultdict(dict)
    planned: dict[Key, list[int]] = defaultdict(list)
    for case, synchronous in cases:
        rates = _rates(folder, case, processes, failed) if "native" in case.passes else None
        if rates is not None:
            groups[group(case, synchronous)][case.id] = rates
            planned[group(case, synchronous)].append(case.sampling.processes)
    return set().union(*(open_questions(rates, threshold, min(planned[key])) for key, rates in groups.items()))


def _rates(folder: RunFolder, case: Case, processes: int, failed: set[str]) -> dict[Round, float] | None:
    """Samples/s by round so far; None where one failed."""
    rates = {}
    for repeat in range(processes):
        record = folder.record(case.id, repeat)
        if record is None or record.outcome == CANCELLED:
            continue
        found = rate(record)
        if record.outcome != "ok" or found is None or record.proof in failed:
            return None
        rates[round_of(record)] = found
    return rates
