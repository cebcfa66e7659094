"""The fastest configuration of each adapter, its margin over the default one, and both as a plan."""

from collections.abc import Collection
from dataclasses import dataclass

from reports.bars import bars
from reports.figure import Chart, colour
from reports.panels import Panel
from reports.text import in_words, number
from suite.analysis.best import Best, Contest, contests, settings, usual_of
from suite.analysis.comparability import DISQUALIFYING
from suite.analysis.rows import Row
from suite.contracts.case import Case
from suite.plan.text import Block, plan_text


@dataclass(frozen=True)
class Winners:
    """One network on one set of devices."""

    title: str
    contest: Contest
    chart: Chart


def winners_of(rows: list[Row]) -> list[Winners]:
    """Every contest of the run."""
    adapters = list(dict.fromkeys(row.case.adapter for row in rows))
    return [_winners(contest, adapters) for contest in contests(rows)]


def configuration(best: Best, case: Case) -> list[str]:
    """In words: the batch, and what sets a case apart from the default configuration."""
    usual, chosen = usual_of([best.default, best.row]), settings(case)
    changed = [name for name, value in chosen.items() if usual.get(name) != value and name != "batch"]
    return [f"batch {case.batch}", *(f"{name.removeprefix('knobs.')} {in_words(chosen[name])}" for name in changed)]


def remarks(best: Best) -> str:
    """What a reader should know of the comparison; empty where there is nothing to say."""
    notes = []
    if best.unusual:
        missing = " and ".join(name.removeprefix("knobs.") for name in best.unusual)
        notes.append(f"no case is known to have the default {missing}: compared with the nearest")
    if best.unequal_batches:
        batches = f"{best.default.case.batch} and {best.row.case.batch}"
        notes.append(f"batches of {batches} per device are compared by samples/s")
    if best.row.case.precision != best.default.case.precision:
        notes.append(f"{best.default.case.precision} is compared with {best.row.case.precision}")
    if best.skipped:
        notes.append(f"{len(best.skipped)} not compared: {', '.join(_marks(best.skipped))}")
    return "; ".join(notes)


def answers(found: list[Winners]) -> list[str]:
    """A sentence for each network and set of devices: what the best settings gain each strategy, the fastest first."""
    return [
        f"{one.title}: what an expert gains over the defaults: {'; '.join(map(_answer, one.contest.winners))}."
        for one in found
    ]


def _answer(best: Best) -> str:
    case = best.row.case
    speed = f"{number(best.rate)} samples/s with {', '.join(configuration(best, case))}"
    margin = f", {_margin(best)}" if best.margin else f": {best.verdict}"
    return f"{case.adapter}/{case.strategy} {speed}{margin}"


def plan_of(found: list[Winners], name: str, own_networks: Collection[str] = ()) -> str:
    """Every winner, and the row it was compared with, as a plan of the very same cases."""
    blocks: dict[str, Block] = {}
    for winners in found:
        for best in winners.contest.winners:
            words = f"{winners.title}: the fastest of {best.tried} of {best.row.case.adapter}/{best.row.case.strategy}"
            if best.margin:
                words += f",\n{_margin(best)}"
                blocks[best.default.id] = Block(best.default.case, "the default that it was compared with")
            blocks[best.row.id] = Block(best.row.case, words)
    # A case that is one's winner and another's default is written once, winners first.
    ordered = sorted(blocks.values(), key=lambda block: block.comment.startswith("the default"))
    about = f"The fastest configurations found by the plan {name!r}, and those that they were compared with."
    if any(block.case.workload in own_networks for block in ordered):
        about += "\nKeep this file beside run.json, which has the networks."
    return plan_text("best", f"The best configurations of {name}", about, ordered, own_networks)


def _winners(contest: Contest, adapters: list[str]) -> Winners:
    first = contest.case
    place = first.placement
    where = f"{place.device_count} device{'s' if place.device_count > 1 else ''} ({place.device})"
    if place.nodes > 1:
        where = f"{place.nodes} nodes, {where}"
    data = "synthetic data" if first.data == "synthetic" else f"{first.data_name} from {first.input.mode}"
    title = f"{first.workload} on {data}, {where}"
    return Winners(title, contest, _chart(title, contest, adapters))


def _chart(title: str, contest: Contest, adapters: list[str]) -> Chart:
    winners = contest.winners
    called = [
        f"{best.row.case.adapter}/{best.row.case.strategy} · {' · '.join(configuration(best, best.row.case))}"
        for best in winners
    ]
    panel = Panel(title, [best.row for best in winners], called, "bar: the fastest configuration; diamond: the default")
    rates = [best.row.rate for best in winners if best.row.rate]
    shades = [colour(adapters.index(best.row.case.adapter)) for best in winners]
    beside = [best.default.rates.value if best.default.rates else None for best in winners]
    return panel, bars(panel, rates, shades, "samples/s, all devices together", beside, "default configuration")


def _margin(best: Best) -> str:
    assert best.margin
    margin = best.margin
    return f"{margin.value:.2f} times the default ({margin.low:.2f} to {margin.high:.2f}): {best.verdict}"


def _marks(rows: tuple[Row, ...]) -> list[str]:
    return sorted({mark for row in rows for mark in row.marks if mark in DISQUALIFYING})
