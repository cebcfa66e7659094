"""The parts of an iteration and their differences, and what of an exchange can be hidden."""

from dataclasses import replace

import numpy as np
import pytest

from stagebench.suite.analysis.budget import (
    STAGES,
    budget_of,
    joined_differences,
    mean_difference,
    over_processes,
    pairs,
)
from stagebench.suite.analysis.overlappable import overlappable
from stagebench.suite.results.rank_report import Rank
from stagebench.suite.worker.contract import LayerTimes
from tests.reports.made_run import case_of, passes_of


def steps(wall, count=4, **more):
    step_s = [wall / count] * count
    return {"step_s": step_s, "warmup_s": step_s, "wall_s": wall, "steady": True, "samples": 8 * count, **more}


def rank(number, forward=0.3, native=4.0, bubble=None, **passes):
    stages = {"io": 0.9, "h2d": 0.01, "forward": forward, "backward": 0.4, "skew": 0.6 - forward}
    stages |= {"communication": 0.25, "update": 0.05}
    stages |= {} if bubble is None else {"bubble": bubble}
    stage_s = {name: [value, value, 9 * value] for name, value in stages.items()}  # medians shrug at a hiccup
    found = {"native": steps(native, io_s=[0.0, 0.2, 0.0, 0.2]), "staged": steps(5.0, stage_s=stage_s), **passes}
    return Rank(rank=number, passes={name: {"name": name, **one} for name, one in found.items()})


def turns(*pairs):
    """A pass in turns with native steps; its own steps do not matter."""
    return steps(4.0, pairs_s=list(pairs))


def closed_sum(budget):
    return sum(getattr(budget, stage) or 0.0 for stage in STAGES)


def test_only_several_devices_have_communication_and_other_closes_the_sum():
    budget = budget_of([rank(0)])
    assert budget.native == pytest.approx(1.0)
    assert budget.io == 0.0
    assert budget.forward == pytest.approx(0.3 * 11 / 3)  # the mean, as of everything: only means add up
    assert budget.communication == 0.0
    assert budget.hidden is None
    assert budget.other == pytest.approx(1.0 - (0.3 + 0.4 + 0.05 + 0.01) * 11 / 3)
    assert closed_sum(budget) == pytest.approx(budget.native, rel=1e-12)
    assert budget.instrumentation_overhead == pytest.approx(1.25)
    exchanging = budget_of([rank(0, compute_only=turns((1.0, 0.75), (1.0, 0.75)), comm_only=steps(2.0))], devices=2)
    assert exchanging.communication == pytest.approx(0.25)
    assert exchanging.hidden == pytest.approx(0.25)
    assert budget_of([rank(0)], devices=2).communication is None


def test_stages_are_those_of_a_machine_as_fast_as_in_the_native_pass():
    """Half as fast during the staged pass: the native steps in turns with it took twice as long as before."""
    made = rank(0)
    found = budget_of([made])
    slow = made.passes["staged"]._replace(pairs_s=[(2.0, 2.5), (2.0, 2.5)])
    turned = budget_of([made.model_copy(update={"passes": made.passes | {"staged": slow}})])
    assert [turned.of(name) for name in ("forward", "backward", "update")] == pytest.approx(
        [found.of(name) / 2 for name in ("forward", "backward", "update")]
    )
    assert turned.instrumentation_overhead == pytest.approx(found.instrumentation_overhead / 2)
    assert closed_sum(turned) == pytest.approx(turned.native, rel=1e-12)
    paced = {"native": made.passes["native"]._replace(own_pace=True), "staged": slow}
    apart = budget_of([made.model_copy(update={"passes": paced})])
    assert apart.forward == found.forward, "in turns, ranks wait for each other"


def test_differences_are_means_of_pairs_with_intervals_round_by_round():
    exchange = turns((0.9, 0.7), (1.1, 0.8), (0.9, 0.7), (1.1, 0.8))
    alone = turns(*[(1.0, 0.3)] * 4)
    budget = budget_of([rank(number, compute_only=exchange, comm_only=alone) for number in range(2)])
    assert budget.communication == pytest.approx(0.25)
    found = budget.exposed_communication
    reach = 3.182 * (4 * 0.05**2 / 3 / 4) ** 0.5  # Student's t of three degrees, by hand
    assert (found.value, found.low, found.of) == (pytest.approx(0.25), pytest.approx(0.25 - reach, rel=1e-3), 4)
    assert budget.hidden == pytest.approx(0.3 - 0.25)
    assert budget.hidden_communication.value == pytest.approx(0.05)
    assert budget.hidden_communication.high == pytest.approx(0.05 + reach, rel=1e-3)
    assert closed_sum(budget) == pytest.approx(budget.native, rel=1e-12)
    # A machine that gets twice as slow from round to round: each has 0.3 s to hide of every second, and hides them.
    slower = (1.0, 2.0, 4.0, 8.0)
    alone, exchange = (turns(*[(one, share * one) for one in slower]) for share in (0.8, 0.5))
    budget = budget_of([rank(number, compute_only=alone, comm_only=exchange) for number in range(2)])
    assert (budget.comm_only, budget.hidden) == pytest.approx((0.5 * 15 / 4, 0.3 * 15 / 4))
    found, spread = budget.hidden_communication, mean_difference([0.3 * one for one in slower])
    assert (found.value, found.low, found.high) == pytest.approx((spread.value, spread.low, spread.high))


def test_a_stage_that_happens_inside_another_one_has_no_figure():
    """A step that takes its batch by itself: reading stands in its forward, and the sum closes all the same."""
    ranks = [rank(0, resident=turns((1.0, 0.8), (1.0, 0.8)))]
    whole = budget_of(ranks, reads=True)
    inside = budget_of(ranks, reads=True, separable=("forward", "backward", "communication", "update"))
    assert (whole.io, whole.h2d) == (pytest.approx(0.2 - whole.h2d), pytest.approx(0.01 * 11 / 3))
    for budget in (inside, over_processes([inside, inside])):
        assert (budget.io, budget.h2d) == (None, None)
        assert budget.exposed_input.value == pytest.approx(0.2)
        assert (budget.forward, budget.update) == (whole.forward, whole.update)
        assert closed_sum(budget) == pytest.approx(budget.native, rel=1e-12)


def test_waiting_for_the_last_rank_is_no_more_than_what_is_exposed():
    """The staged barrier holds every rank for 0.4 s in the mean, and the native step has 0.1 s exposed."""
    exchange = turns((1.0, 0.9), (1.0, 0.9))
    ranks = [rank(0, compute_only=exchange), rank(1, compute_only=exchange)]
    for own, skew in zip(ranks, ([0.8, 0.0, 0.8, 0.0], [0.0, 0.8, 0.0, 0.8]), strict=True):
        own.passes["staged"].stage_s["skew"] = skew
    for budget in (budget_of(ranks), over_processes([budget_of(ranks)] * 2)):
        assert budget.barrier.value == pytest.approx(0.4)
        assert budget.waiting.value == budget.communication == pytest.approx(0.1)
        assert budget.waiting.high == budget.communication
        assert budget.to_dict()["waiting"] == budget.waiting


def test_waiting_for_the_last_rank_is_what_the_rank_that_waits_least_waits():
    """Three ranks take turns in being late: no rank is a straggler, and yet each exchange waits for one."""
    arrivals, barrier = [(0.1, 0.3, 0.1), (0.3, 0.1, 0.1), (0.1, 0.2, 0.2), (0.2, 0.1, 0.1)], 0.01
    waits = list(zip(*([max(step) - own for own in step] for step in arrivals), strict=True))

    def waiting_rank(number):
        found = rank(number)
        stages = {**found.passes["staged"].stage_s, "skew": tuple(each + barrier for each in waits[number])}
        staged = found.passes["staged"]._replace(stage_s=stages)
        return found.model_copy(update={"passes": {**found.passes, "staged": staged}})

    ranks = [waiting_rank(number) for number in range(3)]
    budget = budget_of(ranks)
    assert budget.waits == pytest.approx([0.075, 0.075, 0.125])
    assert budget.waiting.value == pytest.approx(0.075)
    assert budget.waiting.low < 0.075 < budget.waiting.high
    several = over_processes([budget] * 3)
    assert (several.waiting.of, several.waits) == (3, pytest.approx(budget.waits))
    assert budget_of(ranks[:1]).waiting is None


@pytest.mark.parametrize("processes", [2, 3, 5])
@pytest.mark.parametrize(("between", "within"), [(0.0, 1.0), (0.3, 1.0), (1.0, 1.0), (1.0, 0.3), (1.0, 0.0)])
def test_the_interval_of_a_difference_covers_at_every_ratio_of_scatter(processes, between, within):
    """Deviations between processes and of a single round, 12 rounds each; the true difference is 0."""
    draws, rounds = 1500, 12
    generator = np.random.default_rng(processes)
    of_process = generator.normal(0.0, between, (draws, processes, 1))
    values = of_process + generator.normal(0.0, within, (draws, processes, rounds))
    covered = 0
    for several in values.tolist():
        found = joined_differences([mean_difference(each) for each in several])
        covered += found.low <= 0.0 <= found.high
    assert covered / draws >= 0.93
    one, other = mean_difference([1.0, 1.1, 0.9]), mean_difference([1.0, 1.2])
    told = [joined_differences(each) for each in ([one], [one, other])]
    assert [(each.processes, each.of) for each in told] == [(1, 3), (2, 2)], "of one process: of its rounds"


def test_a_pair_s_sides_are_the_slowest_rank_s_and_none_where_a_rank_lacks_them():
    whole, lacking = rank(0, compute_only=turns((1.0, 0.7))), rank(1)
    assert pairs([whole], "compute_only") == [(1.0, 0.7)]
    assert pairs([whole, lacking], "compute_only") == []
    assert pairs([lacking], "compute_only") == []
    ranks = [rank(0, compute_only=turns((1.0, 0.7), (1.0, 0.7))), rank(1, compute_only=turns((0.9, 0.8), (1.2, 0.6)))]
    assert budget_of(ranks).communication == pytest.approx(((1.0 - 0.8) + (1.2 - 0.7)) / 2)


@pytest.mark.parametrize(("native", "io", "h2d"), [(0.95, 0.45, 0.01 * 11 / 3), (0.52, 0.02 - 0.01 * 11 / 3, 0.0)])
def test_exposed_input_is_native_less_resident_the_copy_first(native, io, h2d):
    budget = budget_of([rank(0, resident=turns((native, 0.5), (native, 0.5)))], reads=True)
    added = native - 0.5
    assert budget.exposed_input.value == pytest.approx(added)
    assert budget.h2d == pytest.approx(min(0.01 * 11 / 3, added))
    assert budget.io + budget.h2d == pytest.approx(added)
    assert closed_sum(budget) == pytest.approx(budget.native, rel=1e-12)


def test_what_was_not_measured_stays_in_other_which_may_be_negative():
    budget = budget_of([rank(0)], reads=True)
    assert budget.io is None
    assert closed_sum(budget) == pytest.approx(budget.native, rel=1e-12)
    budget = budget_of([rank(0, native=2.4)])
    assert budget.other == pytest.approx(0.6 - 0.76 * 11 / 3)
    budget = budget_of([rank(0), rank(1)])
    assert budget.communication is None
    assert budget.hidden is None
    assert closed_sum(budget) == pytest.approx(budget.native)


@pytest.mark.parametrize("lost", ["native", "staged"])
def test_no_budget_without_its_passes(lost):
    whole, broken = rank(0), rank(1)
    broken = broken.but(passes={name: one for name, one in broken.passes.items() if name != lost})
    assert budget_of([whole, broken]) is None
    assert budget_of([]) is None


def test_means_over_processes_close_again():
    case = case_of(ranks=2)
    budgets = [
        budget_of([Rank(rank=rank, passes=passes_of(case, repeat, rank)) for rank in range(2)], reads=True)
        for repeat in range(3)
    ]
    whole = over_processes(budgets)
    assert whole.native == pytest.approx(sum(budget.native for budget in budgets) / 3)
    assert whole.exposed_communication.of == 3  # processes, no longer pairs
    assert whole.exposed_communication.value == pytest.approx(whole.communication)
    assert whole.exposed_input.value == pytest.approx(whole.io + whole.h2d)
    assert closed_sum(whole) == pytest.approx(whole.native, rel=1e-12)
    assert whole.hidden == pytest.approx(whole.comm_only - whole.communication)
    assert whole.to_dict()["instrumentation_overhead"] == whole.staged / whole.native
    assert over_processes(budgets[:1]).intervals == {}, "one process has no scatter of processes"
    assert over_processes(budgets[:1]).exposed_communication == budgets[0].exposed_communication
    assert over_processes([]) is None


def test_stages_the_residual_and_the_overhead_have_intervals_over_processes():
    """Each process's stages are set against its own native step: a drift of both leaves the overhead as it is."""
    forwards, natives = (0.3, 0.36, 0.33), (3.0, 3.6, 3.3)
    budgets = [budget_of([rank(0, native=now, forward=own)]) for own, now in zip(forwards, natives, strict=True)]
    found = over_processes(budgets).intervals
    half = 4.302653 * np.std([each.forward for each in budgets], ddof=1) / 3**0.5
    forward, residual = found["forward"], found["other"]
    assert (forward.low, forward.high) == pytest.approx((forward.value - half, forward.value + half))
    assert forward.value == pytest.approx(over_processes(budgets).forward)
    assert residual.value == pytest.approx(over_processes(budgets).other)
    others = [each.other for each in budgets]
    assert (residual.high - residual.low) / 2 == pytest.approx(4.302653 * np.std(others, ddof=1) / 3**0.5)
    overheads = [each.staged / each.native for each in budgets]
    assert found["instrumentation_overhead"].value == pytest.approx(np.mean(overheads))
    assert found["forward"].processes == 3
    without = over_processes([*budgets, replace(budgets[0], update=None)])
    assert "update" not in without.intervals, "a process has no figure"


def test_waiting_for_other_parts_is_in_the_closed_sum_and_has_no_figure_where_nobody_tells_it_apart():
    waiting, busy = rank(0, bubble=0.25), rank(1, forward=0.5, bubble=0.1)
    budget = budget_of([waiting, busy])
    assert (budget.critical_rank, budget.bubble) == (1, pytest.approx(0.1 * 11 / 3))
    assert closed_sum(budget) == pytest.approx(budget.native, rel=1e-12)
    assert closed_sum(over_processes([budget, budget])) == pytest.approx(budget.native, rel=1e-12)
    assert budget_of([rank(0)]).bubble == 0.0
    budget = budget_of([rank(0), rank(1)], in_parts=True)
    assert (budget.bubble, over_processes([budget, budget]).bubble) == (None, None)
    assert closed_sum(budget) == pytest.approx(budget.native, rel=1e-12)
    assert budget_of([rank(0, bubble=0.25)], in_parts=True).bubble == pytest.approx(0.25 * 11 / 3)


@pytest.mark.parametrize(
    ("alone", "exposed", "share"),
    [
        (0.4, (0.1, 0.1, 0.1, 0.1), 0.75),
        (0.4, (0.41, 0.41, 0.40, 0.41), 0.0),  # nothing is hidden, within its error
        (0.4, (0.8, 0.8, 0.8, 0.8), None),  # more than all of it is exposed
        (0.4, (0.0, 0.6, 0.3, -0.2), None),  # noise
    ],
)
def test_a_hidden_share_that_noise_made_is_not_told(alone, exposed, share):
    exchange = turns(*((1.0, 1.0 - seconds) for seconds in exposed))
    budget = budget_of(
        [rank(number, compute_only=exchange, comm_only=turns(*[(1.0, alone)] * 4)) for number in range(2)]
    )
    assert budget.hidden_of(alone) == (None if share is None else pytest.approx(share, abs=1e-3))
    assert budget.hidden_of(None) is None


def layers(*rows):
    times = {"forward_s": 0.0, "communication_s": 0.0}
    ready, made = 0.0, []
    for seconds, size in reversed(rows):
        ready += seconds
        made.append(LayerTimes(layer="", kind="", backward_s=seconds, bytes=size, ready_s=ready, **times))
    return made[::-1]


@pytest.mark.parametrize(
    ("rows", "comm_only", "update", "backward", "hidden"),
    [
        # Ready after 1, 3 and 4 s; each takes 10 s on the link, the first from 1 s on: the last arrives at 31 s.
        (((1, 5), (2, 5), (1, 5)), 30, 0, None, 3),
        (((10, 5), (10, 5), (10, 5)), 3, 0, None, 2),  # a quick link: all but the first layer's gradient
        (((1, 5), (4, 0), (1, 5)), 4, 0, None, 2),  # a layer without parameters takes time and moves nothing
        # Backward ends at 2 s; arrivals at 11 and 21 s; the first update hides behind the second arrival.
        (((1, 5), (1, 5)), 20, 4, None, 1 + 2),
        (((5, 0), (1, 0), (0, 7)), 2, 1, None, 2),  # the end of backward hides nothing
        (((0, 7), (6, 0)), 2, 1, None, 0),
        # Timed one by one, they take half as long in their stage: complete after 5, 10 and 15 s.
        (((10, 5), (10, 5), (10, 5)), 3, 0, 15, 2),
        (((2, 5), (4, 5), (2, 5)), 30, 0, 4, 3),
        (((1, 0),), 1, 1, None, None),  # nothing is exchanged
        ((), 1, 1, None, None),
    ],
)
def test_what_can_be_hidden_of_an_exchange(rows, comm_only, update, backward, hidden):
    found = overlappable(layers(*rows), comm_only, update, **({"backward": backward} if backward else {}))
    assert found == (hidden if hidden is None else pytest.approx(hidden))


def test_gradients_leave_when_they_are_complete_whatever_the_layers_order_if_it_was_seen():
    first, second = layers((1, 5), (1, 5))
    swapped = [first._replace(ready_s=1.0), second._replace(ready_s=2.0)]
    assert overlappable(swapped, comm_only=20, update=4) == overlappable([first, second], comm_only=20, update=4)
    assert overlappable([first, second._replace(ready_s=None)], comm_only=1, update=1) is None


def test_what_passes_between_layers_makes_no_negative_overlap():
    """The last gradient is complete after 12 s, though the layers take 8 s: a stage of 8 s ends with it."""
    first, second = layers((4, 5), (4, 5))
    slow = [first._replace(ready_s=12.0), second._replace(ready_s=6.0)]
    assert overlappable(slow, comm_only=2, update=0, backward=8) == pytest.approx(1)
    late = [one._replace(ready_s=12.0) for one in slow]
    assert overlappable(late, comm_only=2, update=0, backward=8) == 0.0
    assert overlappable(slow, comm_only=-1, update=0, backward=8) is None
