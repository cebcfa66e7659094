import pytest

from suite.analysis.budget import STAGES, of_process, over_processes
from suite.results.records import Rank
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


def closed_sum(budget):
    return sum(getattr(budget, stage) or 0.0 for stage in STAGES)


def test_one_rank_has_no_communication_and_other_closes_the_sum():
    budget = of_process([rank(0)])
    assert budget.native == pytest.approx(1.0)
    assert budget.io == pytest.approx(0.1)  # the mean: medians would hide every second wait
    assert (budget.forward, budget.backward, budget.update, budget.h2d) == (0.3, 0.4, 0.05, 0.01)
    assert budget.communication == 0.0
    assert budget.hidden is None
    assert budget.other == pytest.approx(1.0 - 0.1 - 0.3 - 0.4 - 0.05 - 0.01)
    assert closed_sum(budget) == pytest.approx(budget.native, rel=1e-12)
    assert budget.observer_effect == pytest.approx(1.25)


def test_two_ranks_take_the_critical_one_and_split_communication():
    more = {"compute_only": steps(3.2), "comm_only": steps(1.2), "io_only": steps(0.4)}
    budget = of_process([rank(0, **more), rank(1, forward=0.5, native=4.4, **more)])
    assert budget.critical_rank == 1
    assert budget.forward == 0.5
    assert budget.native == pytest.approx(1.1)  # the slowest rank's wall
    assert budget.communication == pytest.approx(1.1 - 0.8)
    assert budget.hidden == pytest.approx(0.3 - 0.3)
    assert budget.skew == pytest.approx(0.3)  # rank 0 waits for rank 1
    assert budget.staged_communication == 0.25
    assert budget.io_only == pytest.approx(0.1)
    assert closed_sum(budget) == pytest.approx(budget.native, rel=1e-12)


def test_negative_residuals_stay_negative():
    budget = of_process([rank(0, native=2.4)])
    assert budget.other == pytest.approx(0.6 - 0.86)


def test_without_compute_only_communication_is_unknown_and_stays_in_other():
    budget = of_process([rank(0), rank(1)])
    assert budget.communication is None
    assert budget.hidden is None
    assert closed_sum(budget) == pytest.approx(budget.native)


@pytest.mark.parametrize("lost", ["native", "staged"])
def test_no_budget_without_its_passes(lost):
    whole, broken = rank(0), rank(1)
    broken = broken.but(passes={name: one for name, one in broken.passes.items() if name != lost})
    assert of_process([whole, broken]) is None
    assert of_process([]) is None


def test_medians_over_processes_close_again():
    case = case_of(ranks=2)
    budgets = [
        of_process([Rank(rank=rank, passes=passes_of(case, repeat, rank)) for rank in range(2)]) for repeat in range(3)
    ]
    whole = over_processes(budgets)
    assert whole.native == sorted(budget.native for budget in budgets)[1]
    assert whole.backward == sorted(budget.backward for budget in budgets)[1]
    assert closed_sum(whole) == pytest.approx(whole.native, rel=1e-12)
    assert whole.hidden == pytest.approx(whole.comm_only - whole.communication)
    assert whole.to_dict()["observer_effect"] == whole.staged / whole.native
    assert over_processes([]) is None


def test_several_devices_of_one_rank_do_exchange():
    exchanging = of_process([rank(0, compute_only=steps(3.0), comm_only=steps(2.0))], devices=2)
    assert exchanging.communication == pytest.approx(0.25)
    assert exchanging.hidden == pytest.approx(0.25)
    assert of_process([rank(0)], devices=2).communication is None


def test_waiting_for_other_parts_of_the_network_is_in_the_closed_sum():
    waiting, busy = rank(0, bubble=0.25), rank(1, forward=0.5, bubble=0.1)
    budget = of_process([waiting, busy])
    assert (budget.critical_rank, budget.bubble) == (1, 0.1)
    assert closed_sum(budget) == pytest.approx(budget.native, rel=1e-12)
    assert closed_sum(over_processes([budget, budget])) == pytest.approx(budget.native, rel=1e-12)
    assert of_process([rank(0)]).bubble == 0.0
