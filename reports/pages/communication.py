"""The cost of exchanging gradients, and strategies of exchanging them, with and without stragglers."""

from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import NamedTuple

from stagebench.reports.charts.html import (
    Cells,
    Content,
    differing,
    folded,
    listing,
    measured,
    note,
    small,
    spread,
    table,
    tag,
)
from stagebench.reports.charts.lines import Line, Lines, thinned
from stagebench.reports.charts.rows import Rows, linear, stack
from stagebench.reports.pages.run import Report, Section, alike, named, of_cases
from stagebench.suite.analysis.budget import Budget
from stagebench.suite.analysis.exchange import (
    Exchange,
    Gain,
    Slowed,
    Stragglers,
    Variant,
    crossover,
    exchanges,
    gains,
    stragglers,
)
from stagebench.suite.analysis.learning import WINDOW, smoothed
from stagebench.suite.analysis.panels import (
    SHOWN,
    Name,
    Panel,
    by_group,
    clipping,
    for_charts,
    kept_whole,
    labels,
    varying,
)
from stagebench.suite.analysis.rows import Row
from stagebench.suite.analysis.stats import Spread
from stagebench.suite.analysis.wording import (
    UNKNOWN,
    accuracy,
    listed,
    mebibytes,
    middle,
    milliseconds,
    number,
    percent,
    share,
)
from stagebench.suite.contracts.case import Case

OPEN = 2  # exchanges that are not folded
KEY = {"communication": "exposed: the step waits for it", "hidden": "hidden behind computation"}


def aggregation(report: Report) -> Section | None:
    """Return what exchanging gradients adds to an iteration, and how much of it computing hides."""
    rows = [row for row in report.rows if row.budget and row.several_devices]
    if not rows:
        return None
    overlappable = any(row.budget.overlappable for row in rows if row.budget)
    heads = "Case | gradients, MiB | alone, ms | exposed, ms! | hidden, ms | hidden, of alone"
    heads += " | overlappable, ms | hidden, of overlappable" * overlappable
    heads += " | exposed, of the iteration! | iteration, ms | waiting for the last rank, ms"

    def cells(row: Row) -> Cells:
        b = row.budget
        assert b
        found: Cells = [mebibytes(gradient_bytes(row)), milliseconds(b.comm_only)]
        found += [[milliseconds(b.communication), differing(b.exposed_communication)]]
        found += [[milliseconds(b.hidden), differing(b.hidden_communication)], hidden_part(b, b.comm_only)]
        found += [milliseconds(b.overlappable), hidden_part(b, b.overlappable)] * overlappable
        waits = [milliseconds(b.waiting.value if b.waiting else None), differing(b.waiting, "steps")]
        return [*found, share(b.exposed_share), milliseconds(b.native), waits]

    def chart(panel: Panel) -> Rows:
        drawn = []
        for name, row in panel.pairs:
            b = row.budget
            assert b
            exposed, known = 1000 * (b.communication or 0.0), b.hidden is None or b.hidden_of(b.comm_only) is not None
            hidden = 1000 * (b.hidden or 0.0) * known
            value = UNKNOWN if b.communication is None else f"{number(exposed)}{'' if known else ' + ?'}"
            words = f"exposed {number(exposed)} ms, hidden {number(hidden) if known else 'not determined'}"
            drawn.append((exposed, hidden, name, row, value, words))
        drawn.sort(key=lambda each: each[0])
        scale = linear(max(max(exposed, 0.0) + max(hidden, 0.0) for exposed, hidden, *_ in drawn), " ms")
        entries = [
            report.entry(name, row, stack(scale, {"communication": exposed, "hidden": hidden}), value, words)
            for exposed, hidden, name, row, value, words in drawn
        ]
        title, axis = _headline(panel.rows)[0], "exchange in ms: exposed, then hidden"
        return Rows(title, panel.title, scale, entries, "exposed, ms", axis, key=KEY, warning=panel.warning)

    title, also = _headline(rows)
    panels = by_group(rows[:SHOWN])
    body = [report.cut(rows, "cases that exchange gradients")]
    drawn = by_group([row for row in rows[:SHOWN] if waits_known(row)])
    body.append(report.drawn("aggregation", map(chart, for_charts(drawn))))
    body.append(table("Aggregating gradients", heads, *report.bodies(panels, cells)))
    return Section("aggregation", title, body, also)


def waits_known(row: Row) -> bool:
    """Check whether it was measured how long a step waits for the exchange."""
    return row.budget is not None and row.budget.communication is not None


def _headline(rows: Sequence[Row]) -> tuple[str, str]:
    if not any(map(waits_known, rows)):
        return "How long a step waits for the exchange was not measured", "The pass compute_only measures it."
    budgets = [(row, row.budget, row.budget.exposed_communication) for row in rows if row.budget]
    sure = [(row, budget.exposed_share or 0.0) for row, budget, exposed in budgets if exposed and exposed.low > 0]
    if not sure:
        return "No case waits measurably for the exchange", ""
    worst, part = max(sure, key=lambda pair: pair[1])
    waits = "The case waits" if len(rows) == 1 else f"{of_cases(len(sure), len(rows))} wait"
    longest = f"{labels([worst.case])[0].words}, {worst.case.workload}, waits longest."
    return f"{waits} for the exchange, up to {percent(part)} of the step", longest


def gradient_bytes(row: Row) -> float | None:
    """Return what every device contributes to the exchange of a step, on average, as its ranks reported it."""
    reported = [process.gradient_bytes for process in row.measured if process.gradient_bytes]
    return float(reported[0]) if reported else None


def hidden_part(budget: Budget, whole: float | None) -> Content:
    """Return hidden communication as a share of `whole`."""
    found = budget.hidden_of(whole)
    return small("not determined") if found is None and whole and budget.hidden is not None else share(found)


class Exchanged(NamedTuple):
    """A training by several strategies."""

    title: str
    exchange: Exchange
    named: list[tuple[Name, Variant]]

    def losses(self, value: Callable[[Variant], Spread | None]) -> list[tuple[Spread, str]]:
        """Return the losses of strategies that may be compared, the lowest first; [] where there is one alone."""
        known = [(found, name.words) for name, each in self.named if each.sound and (found := value(each))]
        return sorted(known, key=lambda pair: pair[0].value) if len(known) > 1 else []

    @property
    def answer(self) -> str:
        """The strategy that comes furthest, by samples and by seconds."""
        after = {
            f"{number(self.exchange.samples)} samples": self.losses(lambda each: each.after_samples),
            f"{number(self.exchange.seconds)} s of training": self.losses(lambda each: each.after_seconds),
        }
        said = []
        for when, losses in after.items():
            if losses:
                (least, name), *others = losses
                said.append(f"After {when}, {name} has the lowest loss, {number(least.value)}{alike(least, others)}.")
        return " ".join(said)

    @property
    def first(self) -> str:
        """The strategy with the lowest loss after the common samples; "" where there is one alone."""
        losses = self.losses(lambda each: each.after_samples)
        return losses[0][1] if losses else ""


def exchanges_of(rows: list[Row]) -> list[Exchanged]:
    """Return every training on several devices that was done by more than one strategy."""
    found = exchanges(rows)
    questions = varying([_question(exchange.variants[0].case) for exchange in found])
    made = []
    for exchange, words in zip(found, questions, strict=True):
        first = exchange.variants[0].case
        what = [f"{first.workload} on {first.data_name}", *words, f"{first.placement.device_count} devices"]
        made.append(Exchanged(", ".join(dict.fromkeys(what)), exchange, named(exchange.variants, seed=0)))
    return made


def _question(case: Case) -> dict[str, str]:
    return {
        "workload": f"{case.workload} on {case.data_name}",
        "repeat": f"{case.input.repeat}× data",
        "batch": f"batch {case.batch} per device",
        "optimiser": ", ".join(filter(None, (f"{case.optimiser} at {case.lr:g}", clipping(case)))),
        "devices": f"{case.placement.device_count} devices",
        "nodes": f"{case.placement.nodes} nodes",
        "precision": case.precision,
        "straggler": f"straggler {case.straggler:.0%}" if case.straggler else "no straggler",
    }


def exchange(report: Report) -> Section | None:
    """Return the same training on the same number of devices, by different strategies of exchanging gradients."""
    every = exchanges_of(report.rows)
    if not every:
        return None
    body: Cells = []
    counts = accumulate(len(one.named) for one in every)
    for index, (one, count) in enumerate(zip(every, counts, strict=True)):
        seconds = one.exchange.seconds
        heads = "Strategy | samples/s! | of the fastest | verdict< | while training, samples/s"
        heads += f" | loss after {number(one.exchange.samples)} samples!"
        heads += f" | loss after {number(seconds)} s!" if seconds else ""
        lines = []
        for name, variant in one.named:
            against, stale = variant.against, variant.staleness
            cells: Cells = [report.head(name, variant.rows[0])]
            cells.append(measured(variant.speed.rate if variant.speed else None))
            cells += [measured(against.ratio), against.verdict.partition(":")[0]] if against else ["", "–"]
            cells += [middle(variant.rate), spread(variant.after_samples)]
            cells += [[spread(variant.after_seconds), small(f"{middle(variant.seen)} samples")]] * bool(seconds)
            staleness = [number(stale.mean), small(f"at most {number(stale.most)}")] if stale else "–"
            lines.append([*cells, accuracy(variant.accuracy), staleness, str(len(variant.curves))])
        curves: Content = note(f"Without curves: this page draws those of the first {SHOWN} strategies.")
        if count <= SHOWN:
            curves = report.drawn("exchange", _curves(one))
        whole = table(one.title, f"{heads} | last accuracy | staleness | trainings", lines)
        said = tag("p", one.answer) if one.answer else None
        body.append(folded(one.title, said, curves, whole, open_=index < OPEN))
    answers = [f"{one.title}. {one.answer}" for one in every if one.answer]
    known = [one.first for one in every if one.first]
    title = f"{len(every)} training{'s' * (len(every) > 1)} by several strategies"
    if known:
        best = max(dict.fromkeys(known), key=known.count)
        where = f" in {known.count(best)} of {len(every)} trainings" if len(every) > 1 else ""
        title = f"{best} has the lowest loss{where}"
    return Section("exchange", title, body, "", answers)


def _curves(one: Exchanged) -> list[Lines]:
    shown, warning = kept_whole(one.named, lambda pair: pair[1].rows)
    charts = []
    for what, across, stretch in (
        ("samples", "samples seen by all devices", one.exchange.samples),
        ("seconds", "seconds of training", one.exchange.seconds),
    ):
        lines = []
        for name, variant in shown if stretch else ():
            curve, kind = variant.curves[0], "lead" if name.words == one.first else "rest"
            at = curve.by(what == "seconds")
            losses = smoothed(at, curve.losses, WINDOW * (stretch or 0.0))
            lines.append(Line(name.words, thinned(at), thinned(losses), kind=kind))
        if lines:
            title, setting, up = f"Loss by {what}", f"{one.title} · loss by {what}", "loss, smoothed"
            charts.append(Lines(title, setting, lines, across, up, warning=warning))
    return charts


class SlowedRank(NamedTuple):
    """Variants of one training by the straggler's share."""

    title: str
    found: Stragglers
    named: list[tuple[Name, Slowed]]

    @property
    def sound(self) -> list[tuple[str, Slowed]]:
        return [(name.words, variant) for name, variant in self.named if all(row.sound for row in variant.rows)]

    @property
    def answers(self) -> list[str]:
        """The soonest strategy with each share, and where those that do not wait overtake those that do."""
        waiting = [(name, variant) for name, variant in self.sound if variant.synchronous]
        freer = [(name, variant) for name, variant in self.sound if not variant.synchronous]
        found = [self._soonest(part) for part in self.found.shares]
        return [each for each in [*found, *(_sooner(*one, *other) for one in waiting for other in freer)] if each]

    def first(self, part: float) -> tuple[Spread, str, Slowed] | None:
        """Return the strategy that is soonest with a straggler's share; None of fewer than two."""
        times = [(found, name, variant) for name, variant in self.sound if (found := variant.spread(part))]
        return min(times, key=lambda each: each[0].value) if len(times) > 1 else None

    def _soonest(self, part: float) -> str:
        first = self.first(part)
        if first is None:
            return ""
        least, name, variant = first
        more = alike(least, ((other.spread(part), called) for called, other in self.sound if called != name))
        most = max(other.samples_per_update for _, other in self.sound if other.spread(part))
        if variant.samples_per_update < most:
            more += f"; it updates after {variant.samples_per_update} samples, others after up to {most}"
        when = f"With a straggler of {part:.0%}" if part else "Without a straggler"
        reached = f"{name} is the first to reach a loss of {number(self.found.loss)}, after {number(least.value)} s"
        return f"{when}, {reached}{more}."


def _sooner(name: str, waiting: Slowed, other: str, freer: Slowed) -> str:
    """Return from which share on a strategy that does not wait is sooner, or at which share tried; "": none tells."""
    sooner, found, tried = f"{other} is sooner than {name}", crossover(waiting, freer), gains(waiting, freer)
    if found:  # an end of its interval may be beyond the shares that were tried
        low = "below the least tried" if found.low is None else f"{found.low:.0%}"
        high = "beyond the most tried" if found.high is None else f"{found.high:.0%}"
        return f"{sooner} once a straggler loses {found.value:.0%} of its time ({low} to {high})."
    if not tried:
        return ""

    def shares(some: Iterable[Gain]) -> str:
        return listed([f"{gain.share:.0%}" for gain in some])

    ahead, alike = [gain for gain in tried if gain.mean > 0], [gain for gain in tried if not gain.detectable]
    where = f"{'every share' if ahead else 'none of the shares'} tried ({shares(tried)})"
    if 0 < len(ahead) < len(tried):
        where = f"{shares(ahead)} alone, of {shares(tried)}"
    doubt = f"; no detectable difference at {shares(alike)}" if alike else ""
    if any(gain.half is None for gain in tried):
        doubt = "; a single seed has no interval"
    return f"{sooner} at {where}{doubt}."


def slowed_of(rows: list[Row]) -> list[SlowedRank]:
    """Return every training with several shares of a straggler."""
    made = []
    for found in stragglers(rows):
        case = found.variants[0].case
        title = f"{case.workload} on {case.data_name}, {case.placement.words}"
        made.append(SlowedRank(title, found, named(found.variants, seed=0, straggler=0.0)))
    return made


def straggling(report: Report) -> Section | None:
    """Return the time to a loss by the share that one rank loses."""
    every = slowed_of(report.rows)
    if not every:
        return None
    body: Cells = []
    for one in every:
        heads = "Strategy | samples per update"
        for part in one.found.shares:
            heads += f" | {f'straggler {percent(part)}' if part else 'no straggler'}, s to the loss!"
            heads += " | times as long | taken" if part else ""
        lines = []
        for name, variant in one.named:
            cells: Cells = [report.head(name, variant.rows[0]), str(variant.samples_per_update)]
            for part in one.found.shares:
                load = variant.taken(part)
                cells.append(spread(variant.spread(part)))
                cells += [number(variant.slowdown(part)), share(load.value) if load else "–"] if part else []
            lines.append(cells)
        body += [tag("h3", one.title), report.drawn("stragglers", [_time_to_loss(one)])]
        body += [listing(one.answers, "ul.findings"), table(one.title, heads, lines)]
    most = every[0].found.shares[-1]
    first = every[0].first(most)
    title = f"With a straggler of {most:.0%}, {first[1]} is soonest" if first else "Stragglers"
    answers = [f"{one.title}. {answer}" for one in every for answer in one.answers]
    return Section("stragglers", title, body, "", answers)


def _time_to_loss(one: SlowedRank) -> Lines | None:
    shown, warning = kept_whole(one.named, lambda pair: pair[1].rows)
    first, shares = one.first(one.found.shares[-1]), one.found.shares
    lines = []
    for name, variant in shown:
        across = [100 * (load.value if (load := variant.taken(part)) else part) for part in shares]
        kind = "lead" if first and first[1] == name.words else "rest"
        lines.append(Line.of(name.words, across, map(variant.spread, shares), kind))
    title, setting = f"Time to a loss of {number(one.found.loss)}", f"{one.title} · time to a loss"
    axes = "% of time that the load took", "seconds to the loss"
    return Lines(title, setting, lines, *axes, warning=warning) if lines else None
