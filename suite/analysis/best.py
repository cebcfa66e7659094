"""Each strategy's fastest configuration of one network on one set of devices, and its margin over the default one."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stagebench.suite.analysis.rows import Row
from stagebench.suite.analysis.stats import LEVEL, Interval, ratio
from stagebench.suite.contracts.case import Case
from stagebench.suite.plan import text
from stagebench.suite.text import grouped

# Settings that are swept in search of speed, in the order in which they are named. A setting in neither list (data,
# crops, the page cache, devices) is a question of its own, not a configuration.
OWN = ("tuning", "precision", "format", "prefetch")  # with the knobs: part of the adapter's default
CHOSEN = ("batch", "threads", "readers", "binding")
USUAL = {name: text.setting(text.USUAL, name) for name in (*OWN, *CHOSEN)}


@dataclass(frozen=True)
class Best:
    """The winner of a strategy."""

    row: Row
    default: Row  # the row nearest to the default configuration; the winner itself if that wins
    margin: Interval | None  # the winner's samples/s over the default's; None if it is the default
    tried: int  # sound configurations with a speed
    skipped: Sequence[Row]  # rows that are not comparable
    unusual: tuple[str, ...]  # settings in OWN and knobs of `default` that differ from the adapter's default
    ahead: bool  # True if the winner is detectably faster than every other one

    @property
    def rate(self) -> float:
        return self.row.speed

    @property
    def unequal_batches(self) -> bool:
        """True if winner and default take different batches: then samples/s are compared, not iterations."""
        return self.row.case.batch != self.default.case.batch

    @property
    def verdict(self) -> str:
        if self.margin is not None:
            return self.margin.verdict
        default = "the nearest to the default" if self.unusual else "the default"
        return f"{default} is the fastest" if self.ahead else f"none is detectably faster than {default}"


@dataclass(frozen=True)
class Contest:
    """A network, its input and a set of devices; the fastest strategy first."""

    winners: Sequence[Best]

    @property
    def case(self) -> Case:
        """A case whose network, input and devices are those of all."""
        return self.winners[0].row.case


def contests(rows: Iterable[Row]) -> list[Contest]:
    """Return every network and set of devices, with strategies that were measured in more than one configuration."""
    found = []
    for same in grouped((row for row in rows if row.rates), lambda row: question(row.case)).values():
        members = grouped(same, lambda row: (row.case.adapter, row.case.strategy, row.synchronous))
        winners = [_best(tried) for tried in members.values() if sum(row.comparable for row in tried) > 1]
        # A strategy that is not equivalent to synchronous training comes last, however fast it is.
        winners.sort(key=lambda best: (not best.row.synchronous, -best.rate))
        if winners:
            found.append(Contest(winners))
    return found


def question(case: Case) -> tuple[object, ...]:
    """Return the key that all configurations of one contest share."""
    place = case.placement
    read = [value for name, value in case.input._asdict().items() if name not in OWN]
    devices = (place.device, place.nodes, place.device_count)
    asked = (case.infers, str(case.serving), case.optimiser, case.clip_norm)
    return case.workload, case.graph_digest, case.data, *read, *asked, *devices


def settings(case: Case) -> dict[str, Any]:
    """Return the settings chosen for speed, by name: the adapter's own first, then those of any adapter."""
    own, chosen = ({name: text.setting(case, name) for name in names} for names in (OWN, CHOSEN))
    return own | prefixed(case.knobs) | chosen


def prefixed(knobs: Mapping[str, Any]) -> dict[str, Any]:
    """Return an adapter's knobs as settings: a knob may be called `batch`."""
    return {f"knobs.{name}": value for name, value in knobs.items()}


def usual_of(rows: Iterable[Row]) -> dict[str, Any]:
    """Return the default of every setting when the rows were measured; without a declaration, knobs that all share."""
    rows = list(rows)
    defaults = next((row.declared.knob_defaults for row in rows if row.declared), None)
    if defaults is None:
        knobs = [row.case.knobs for row in rows]
        defaults = {name: value for name, value in knobs[0].items() if all(each.get(name) == value for each in knobs)}
    return USUAL | prefixed(defaults)


def _best(rows: list[Row]) -> Best:
    sound = [row for row in rows if row.comparable]
    winner = max(sound, key=lambda row: row.speed)
    # The default has the fewest unusual settings of its adapter's own, then the fewest others.
    usual = usual_of(sound)
    unusual = {
        row.id: [name for name, value in settings(row.case).items() if usual.get(name) != value] for row in sound
    }
    own = {id_: tuple(name for name in names if name not in CHOSEN) for id_, names in unusual.items()}
    default = min(sound, key=lambda row: (len(own[row.id]), len(unusual[row.id])))
    # The fastest of many is also the luckiest: the interval holds for every row that might have won.
    level = 1 - (1 - LEVEL) / (len(sound) - 1)
    others = [row for row in sound if row is not winner]
    margins = {row.id: ratio(winner.rates, row.rates, level) for row in others if winner.rates and row.rates}
    return Best(
        row=winner,
        default=default,
        margin=margins.get(default.id),
        tried=len(sound),
        skipped=[row for row in rows if not row.comparable],
        unusual=own[default.id],
        ahead=all(margin.low > 1.0 for margin in margins.values()),
    )
