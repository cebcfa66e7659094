"""Like beside like: which rows may be compared, and each of them against the fastest of its group, with a verdict."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from suite.analysis.stats import Estimate, Interval, ratio
from suite.contracts.case import Case

# Marks that keep a row out of every cross-framework chart and comparison, and what they mean.
DISQUALIFYING = {
    "no proof": "nothing shows that it trains the same network",
    "proof failed": "it does not train the same network",
    "non-finite loss": "it did not learn",
    "unsteady": "the native pass's warm-up never settled",
    "other method": "its figures were defined in another way, by another version of stagebench",
    "missing rank": "not all ranks reported, or the engine connected another number",
}
# Marks that a reader should know, without more.
NOTED = {
    "quick": "shorter sampling than the full measurement",
    "incomplete": "not every process was measured",
    "samples skipped": "unreadable samples were replaced by their neighbours; the notes name them",
    "one process": "the interval knows the noise of steps only",
    "unsteady breakdown": "the warm-up of another pass than native never settled",
    "large residual": "the stages explain the speed badly: conditions changed between passes, or fusing wins much",
}

Entry = tuple[str, Case, Estimate | None]
Key = tuple[str | int, ...]


def comparable(marks: Iterable[str]) -> bool:
    """Whether none of a row's marks speaks against comparing it with other frameworks' rows."""
    return not any(mark in DISQUALIFYING for mark in marks)


@dataclass(frozen=True)
class Against:
    """A row's speed over that of the fastest row of its group."""

    fastest: str  # id of the row compared with; the row's own when it is the fastest
    ratio: Interval
    verdict: str  # "leads", "slower", "no detectable difference"


def group(case: Case) -> Key:
    """Rows are compared when these are equal: the same network, input, arithmetic, devices and care.

    Not the format of the records: each framework has its own.
    """
    place = case.placement
    return (
        case.workload,
        case.graph_digest,
        case.data,
        case.precision,
        case.optimiser,
        place.device,
        place.nodes,
        place.ranks_per_node * place.devices,
        place.threads,
        case.batch,
        case.tuning,
        *(str(value) for key, value in asdict(case.input).items() if key != "format"),
    )


def against_fastest(entries: Iterable[Entry]) -> dict[str, Against]:
    """By row id; a row alone in its group is compared with nothing and left out."""
    groups: dict[Key, list[tuple[str, Estimate]]] = defaultdict(list)
    for id_, case, estimate in entries:
        if estimate is not None:
            groups[group(case)].append((id_, estimate))
    found: dict[str, Against] = {}
    for members in (members for members in groups.values() if len(members) > 1):
        best_id, best = max(members, key=lambda member: member[1].value)
        for id_, estimate in members:
            interval = ratio(estimate, best)
            found[id_] = Against(best_id, interval, "leads" if id_ == best_id else interval.verdict)
    return found
