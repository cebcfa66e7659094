"""The trainings of a run: the rows of one differ in their number of devices, and the model is fitted to one of them.

That is the smallest on several devices, else the one on one device. The larger ones are compared with the prediction
and show its error.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from stagebench.suite.analysis.budget import Budget
from stagebench.suite.analysis.comparability import DISQUALIFYING, SHARED_GPUS
from stagebench.suite.analysis.rows import Row
from stagebench.suite.analysis.scaling import alike, held_whole, in_parts, microbatches_per_stage, placed, trainings
from stagebench.suite.analysis.stats import Interval
from stagebench.suite.contracts.case import Case
from stagebench.suite.plan.checks import INTO_STAGES
from stagebench.suite.predict.collectives import MOST_ERROR
from stagebench.suite.predict.pipeline import strategy_of
from stagebench.suite.predict.prediction import Asked
from stagebench.suite.predict.scenario import MODEL_ERROR, Scenario
from stagebench.suite.text import grouped

# Marks of interest to a reader.
TELLING = ("no proof", "trend", "other machine", "disturbed", "GPU throttled", "CPU quota", "large residual")
# Marks of a row that nothing can be learnt from.
WRONG = ("proof failed", "non-finite loss", "missing rank", SHARED_GPUS)


@dataclass(frozen=True)
class Series:
    """A training at several sizes."""

    base: Row  # fitted to; for several pipelines it may be the row of a single pipeline, which is not in `rows`
    rows: tuple[Row, ...]

    @property
    def in_parts(self) -> bool:
        """True if several devices hold one network together, in stages."""
        return in_parts(self.base)

    @property
    def label(self) -> str:
        case = self.rows[-1].case
        ranks = case.placement.ranks_per_node
        nodes = f", {ranks} rank{'s' if ranks > 1 else ''} a node" if case.placement.nodes > 1 else ""
        batch = f"{case.batch}" if self.together is None else f"{self.together} of all devices together"
        stages = f", {self._stages}" if self.in_parts else ""
        return f"{case.adapter}/{case.strategy} {case.workload} batch {batch} {case.data_name}{nodes}{stages}"

    @property
    def _stages(self) -> str:
        """How a batch goes through the stages, in words."""
        declared, schedule = self.base.declared, self.base.case.knobs.get("schedule")
        assert declared
        pieces = microbatches_per_stage(self.base) if self.by_stage else declared.microbatches
        words = [f"{pieces} microbatch{'es' if pieces != 1 else ''}{' a stage' if self.by_stage else ''}"]
        if self.side_by_side:
            words.insert(0, f"{declared.model_parallel_size} stages")
        return ", ".join([*words, schedule] if schedule else words)

    @property
    def side_by_side(self) -> bool:
        """True if, of a network in stages, more devices make more pipelines, not more stages of one."""
        strategy = strategy_of(self.rows[-1].case)
        return strategy is not None and isinstance(strategy.model_parallel, str)

    @property
    def by_stage(self) -> bool:
        """True if, of a network in stages, more stages take more microbatches."""
        pieces = {row.declared.microbatches for row in self.rows if row.declared and in_parts(row)}
        return not self.side_by_side and len(pieces) > 1

    @property
    def devices(self) -> int:
        return self.base.case.placement.device_count

    @property
    def measured(self) -> dict[int, Interval]:
        """Samples/s by the number of devices."""
        return {row.case.placement.device_count: row.rate for row in (self.base, *self.rows) if row.rate}

    @cached_property
    def budget(self) -> Budget:
        assert self.base.budget
        return self.base.budget

    @property
    def together(self) -> int | None:
        """Samples of all devices together (strong scaling); None where each has its own."""
        case = self.base.case
        return case.global_batch if case.scaling == "strong" else None

    @property
    def link(self) -> str:
        """A key of the link that the base's exchange takes, equal for every network that trains so."""
        return str((exchange_of(self.base.case), self.base.case.placement))

    @property
    def between_stages(self) -> str:
        """A key of the link between stages, whatever the strategy, within a process or between processes."""
        case, place = self.base.case, self.base.case.placement
        nodes = place.nodes > 1 and (place.nodes, place.devices_per_node)
        return str((case.adapter, case.precision, place.device, place.devices > 1, nodes))

    @property
    def gradient_bytes(self) -> int | None:
        """The bytes that each device contributes to an exchange."""
        return next((one.gradient_bytes for one in self.base.measured if one.gradient_bytes), None)

    @property
    def fed(self) -> float:
        """Seconds of an iteration without waiting for input."""
        budget = self.budget
        inside = budget.exposed_input.value if budget.io is None and budget.exposed_input else 0.0
        return max(budget.native - (budget.io or inside), 0.0)

    @property
    def compute(self) -> float:
        """Seconds of an iteration without waiting for input and without exchange."""
        return max(self.fed - (self.budget.communication or 0.0), 0.0)

    @property
    def speed_error(self) -> float:
        """The relative distance from the measured speed to the farther end of its 95 % interval."""
        rate = self.base.rate
        assert rate
        return max(rate.high / rate.value - 1, 1 - rate.low / rate.value)

    @property
    def comm_only_error(self) -> float:
        """Half of the 95 % interval of `comm_only`, seconds.

        It has no interval of its own, but its two parts have: what is exposed and what is hidden. Their errors are
        taken to be independent. Noise of the exposed part is in the hidden one with the opposite sign, so that this is
        mostly too much.
        """
        exposed, hidden = self.budget.exposed_communication, self.budget.hidden_communication
        if exposed is None or hidden is None:
            # Without turns an exchange is assumed to scatter as whole steps do.
            return self.speed_error * (self.budget.comm_only or 0.0)
        return math.hypot((exposed.high - exposed.low) / 2, (hidden.high - hidden.low) / 2)

    def scenario(self, **parts: Any) -> Scenario:
        """Return a scenario with the batch and the readers of the series, and the error of its speed."""
        case = self.base.case
        return Scenario(
            batch=case.batch,
            read=(self.budget.io_only or 0.0) * case.readers,
            readers=case.readers,
            compute_error=min(MOST_ERROR, self.speed_error),
            model_error=MODEL_ERROR,
            **parts,
        )

    def asked(self, scenario: Scenario, sources: Sequence[str], **parts: Any) -> Asked:
        """Return the training to predict; `sources` are those of its scenario, the stages' apart, in words."""
        marks = [mark for mark in self.base.marks if mark in TELLING]
        stages = f"stages: {self.base.case.label}" + (f" ({', '.join(marks)})" if marks else "")
        cases = tuple(row.id for row in self.rows)
        every = stages, *sources
        return Asked(self.label, scenario, every, self.measured, self.devices, cases, self.together, **parts)


def series_of(rows: Sequence[Row]) -> list[Series]:
    """Return every training of a run that a model can be fitted to."""
    every = sorted((row for row in rows if not unlike(row)), key=_devices)
    groups = list(grouped((row for row in every if not in_parts(row)), _training).values())
    alone = {alike(group[0].case): group for group in groups if not group[0].several_devices}
    scaled = [group for group in groups if group[0].several_devices]
    whole = [[*alone.get(alike(group[0].case), []), *group] for group in scaled] or alone.values()
    parts = [[*alone.get(alike(held_whole(group[0])), []), *group] for group in trainings(every)]
    series = [*whole, *parts]
    return [Series(base, tuple(group)) for group in series if (base := _base(group, every))]


def _base(group: Sequence[Row], every: Sequence[Row]) -> Row | None:
    """Return the row to fit to, from the group or, for pipelines, a single pipeline among `every` row; None without."""

    def pipeline(row: Row) -> tuple[object, ...]:
        """Return the key that a pipeline shares with several of them, side by side."""
        held = row.declared and (row.declared.model_parallel_size, row.declared.microbatches)
        return held, alike(held_whole(row)), placed(row.case), row.case.knobs.get("schedule")

    if in_parts(group[-1]):
        whole = [row for row in every if row.declared and row.declared.model_parallel_size == _devices(row)]
        single = [row for row in whole if in_parts(row) and pipeline(row) == pipeline(group[-1])]
        group = [*filter(in_parts, group), *single]
    # Several devices come first: they have an exchange.
    fitting = (row for row in group if not lacks(row))
    return min(fitting, key=lambda row: (not row.several_devices, _devices(row)), default=None)


def _training(row: Row) -> str:
    """Return the key that the rows of a series share."""
    case = row.case
    return str((alike(case), row.several_devices and (case.strategy, placed(case))))


def exchange_of(case: Case) -> str:
    """Return a key of how gradients are exchanged, on any hosts."""
    return str((case.adapter, case.strategy, case.tuning, case.precision, case.knobs))


def _devices(row: Row) -> int:
    return row.case.placement.device_count


def unlike(row: Row) -> str | None:
    """Return why a model of synchronous SGD does not apply to a row; None if it does."""
    if not row.rate:
        return "it was not measured" + (f" ({row.reason})" if row.reason else "")
    wrong = next((mark for mark in row.marks if mark in WRONG), None)
    if wrong:
        return f"{wrong}: {DISQUALIFYING[wrong]}"
    if not row.synchronous:
        return "its strategy is asynchronous"
    if not in_parts(row):
        return None
    strategy = strategy_of(row.case)
    if strategy is None:
        return f"its devices hold one network together, and nothing installed here says how {row.case.adapter} cuts it"
    if row.case.knobs.get("schedule") == "interleaved":
        return "its ranks hold several stages each, in turns, and there is no model of that"
    if strategy.cut in INTO_STAGES:
        return None
    parts = "branches are distributed" if strategy.cut == "branches" else "layers are cut"
    return f"its devices hold one network together, and there is no model of one whose {parts} over them"


def lacks(row: Row) -> str | None:
    """Return why no model can be fitted to a row; None if one can."""
    if row.case.infers:
        return "it infers, and the model is of training"
    if not row.budget:
        if "incomplete" in row.marks:
            return "not every process was measured, and none with all passes; resume the run"
        passes = "native and staged" if in_parts(row) else "native, staged, compute_only and comm_only"
        return f"it lacks the pass `staged`; measure it with passes {passes}"
    if row.budget.communication is None and not in_parts(row):
        return "it lacks the pass `compute_only`"
    if row.several_devices and row.declared and "communication" not in row.declared.separable and not in_parts(row):
        return "its exchange is a part of another stage"
    return None
