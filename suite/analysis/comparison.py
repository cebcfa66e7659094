"""Like beside like: every comparable row against the fastest of its group, with a verdict."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from suite.analysis.stats import Estimate, Interval, ratio
from suite.contracts.case import Case

Entry = tuple[str, Case, Estimate | None]
Key = tuple[str | int, ...]


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
