"""Each strategy's fastest configuration of one network on one set of devices, and its margin over the default one."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from suite.analysis.rows import Row
from suite.analysis.stats import LEVEL, Interval, ratio
from suite.contracts.case import Case
from suite.groups import grouped
from suite.plan import text

# Swept in search of speed, in the order in which they are named. What stands in neither list (data, crops, the page
# cache, devices) is a question of its own, not a configuration.
OWN = ("tuning", "precision", "format", "prefetch")  # with the knobs: what the adapter's default is about
CHOSEN = ("batch", "threads", "readers", "binding")
USUAL = {name: text.setting(text.USUAL, name) for name in (*OWN, *CHOSEN)}


@dataclass(frozen=True)
class Best:
    """One strategy's winner."""

    row: Row
    default: Row  # the row nearest to the default configuration; the winner itself when that wins
    margin: Interval | None  # the winner's samples/s over the default's; None when it is the default
    tried: int  # configurations with a speed and nothing that speaks against them
    skipped: tuple[Row, ...]  # those that something speaks against
    unusual: tuple[str, ...]  # what of its own sets that row apart from the adapter's default: no row is nearer
    ahead: bool  # whether the winner is detectably faster than every other one

    @property
    def rate(self) -> float:
        return self.row.speed

    @property
    def unequal_batches(self) -> bool:
        """Whether the two take different batches: then samples/s are compared, not iterations."""
        return self.row.case.batch != self.default.case.batch

    @property
    def verdict(self) -> str:
        if self.margin is not None:
            return self.margin.verdict
        default = "the nearest to the default" if self.unusual else "the default"
        return f"{default} is the fastest" if self.ahead else f"none is detectably faster than {default}"


@dataclass(frozen=True)
class Contest:
    """One network, input and set of devices; the fastest strategy first."""

    winners: tuple[Best, ...]

    @property
    def case(self) -> Case:
        """What its cases share is read off this one."""
        return self.winners[0].row.case


def contests(rows: Iterable[Row]) -> list[Contest]:
    """Every network and set of devices, with the strategies that were measured in more than one configuration."""
    contests = []
    for asked in grouped((row for row in rows if row.rates), lambda row: question(row.case)).values():
        members = grouped(asked, lambda row: (row.case.adapter, row.case.strategy, row.synchronous))
        best = [_best(tried) for tried in members.values()]
        # What is not equal to synchronous training does not stand before it, however fast it is.
        found = [one for one in best if one and one.tried > 1]
        winners = sorted(found, key=lambda one: (not one.row.synchronous, -one.rate))
        if winners:
            contests.append(Contest(tuple(winners)))
    return contests


def question(case: Case) -> tuple[object, ...]:
    """What all configurations of one contest share."""
    place = case.placement
    read = {key: value for key, value in asdict(case.input).items() if key not in OWN}
    return (
        *(case.workload, case.graph_digest, case.data, *read.values(), case.optimiser),
        *(place.device, place.nodes, place.device_count),
    )


def settings(case: Case) -> dict[str, Any]:
    """What was chosen for speed, by name: the adapter's own first, then what any adapter is given."""
    own, chosen = ({name: text.setting(case, name) for name in names} for names in (OWN, CHOSEN))
    return {**own, **prefixed(case.knobs), **chosen}


def prefixed(knobs: Mapping[str, Any]) -> dict[str, Any]:
    """An adapter's knobs among the settings: one may be called `batch`."""
    return {f"knobs.{name}": value for name, value in knobs.items()}


def usual_of(rows: Iterable[Row]) -> dict[str, Any]:
    """The default of every setting when the rows were measured; format 1 kept no knob's: then what none of them set."""
    first, *_ = several = list(rows)
    shared = {
        name: value
        for name, value in first.case.knobs.items()
        if all(row.case.knobs.get(name) == value for row in several)
    }
    return {**USUAL, **prefixed(next((row.declared.knob_defaults for row in several if row.declared), shared))}


def _best(rows: list[Row]) -> Best | None:
    sound = [row for row in rows if row.comparable]
    if not sound:
        return None
    usual = usual_of(sound)
    winner = max(sound, key=lambda row: row.speed)
    default = min(sound, key=lambda row: _distance(row.case, usual))
    assert winner.rates
    assert default.rates
    # The fastest of many is also the luckiest: the interval holds for every one that might have won.
    level = 1 - (1 - LEVEL) / max(1, len(sound) - 1)
    return Best(
        row=winner,
        default=default,
        margin=None if winner is default else ratio(winner.rates, default.rates, level),
        tried=len(sound),
        skipped=tuple(row for row in rows if not row.comparable),
        unusual=tuple(name for name in _differing(default.case, usual) if name not in CHOSEN),
        ahead=all(ratio(winner.rates, row.rates, level).low > 1.0 for row in sound if row.rates and row is not winner),
    )


def _differing(case: Case, usual: Mapping[str, Any]) -> list[str]:
    return [name for name, value in settings(case).items() if usual.get(name) != value]


def _distance(case: Case, usual: Mapping[str, Any]) -> tuple[int, int]:
    """How many settings of its own, and how many others, are not the usual ones."""
    differing = _differing(case, usual)
    others = sum(name in CHOSEN for name in differing)
    return len(differing) - others, others
