"""The fastest configuration, and its margin over the default one."""

from functools import partial

import pytest

from stagebench.suite.analysis.best import USUAL, contests, question, settings
from stagebench.suite.analysis.stats import ratio
from stagebench.suite.analysis.summary import summarise
from stagebench.suite.contracts.case import Case, Placement
from stagebench.suite.worker.case_parts import Input
from tests.reports.made_experiments import autotune
from tests.reports.made_run import case_of, declared

DECLARED = declared(memory_format="contiguous")
PLAIN = {"tuning": "default", "knobs": {"memory_format": "contiguous"}, "passes": ("native",)}


@pytest.fixture
def run(run):
    """Its records say what the adapter declares, unless a test says otherwise."""
    run.proven = partial(run.proven, declared=DECLARED)
    return run


def only(run):
    (contest,) = contests(summarise(run.folder))
    (best,) = contest.winners
    return best


def uneven(*factors):
    """A change to records: native steps of each repeat take so many times as long."""

    def change(record):
        factor, native = factors[record["repeat"]], record["ranks"][0]["passes"]["native"]
        native |= {"step_s": [factor * one for one in native["step_s"]], "wall_s": factor * native["wall_s"]}

    return change


def test_the_usual_is_what_a_plan_means_that_says_nothing():
    plain = Case("", "", "")
    assert {name: settings(plain)[name] for name in USUAL} == USUAL


def test_the_fastest_of_a_sweep_and_its_margin(tmp_path):
    contest, _ = contests(summarise(autotune(tmp_path / "run")))
    pytorch, caffempi = contest.winners  # the faster first
    chosen = settings(pytorch.row.case)
    assert (chosen["threads"], chosen["knobs.memory_format"], pytorch.tried) == (2, "channels_last", 8)
    assert settings(pytorch.default.case) == {**USUAL, "knobs.memory_format": "contiguous"}
    assert pytorch.margin.value == pytest.approx(1.2 * 2**0.8, rel=0.05)
    assert pytorch.margin.low < pytorch.margin.value < pytorch.margin.high
    assert (pytorch.verdict, pytorch.unusual) == ("faster", ())
    # Ten times as fast, and nothing proves that it trains the same network.
    assert [row.case.batch for row in caffempi.skipped] == [16]
    assert caffempi.row.case.batch == 8


def test_no_detectable_difference_is_a_verdict(run):
    run.proven(case_of(**PLAIN))
    other = run.proven(case_of(**{**PLAIN, "knobs": {"memory_format": "channels_last"}}), slower=0.9995)
    run.changed(other, uneven(0.99, 1.0, 1.005))
    assert only(run).verdict == "no detectable difference"


def test_a_margin_holds_for_every_configuration_that_might_have_won(run):
    for format_ in ("contiguous", "channels_last", "a", "b", "c", "d"):
        case = case_of(**{**PLAIN, "knobs": {"memory_format": format_}})
        run.proven(case, slower=0.9 + 0.1 * (format_ == "contiguous"))
    best = only(run)
    alone = ratio(best.row.rates, best.default.rates)
    assert best.margin.low <= alone.low < alone.high <= best.margin.high


def test_what_is_no_synchronous_training_is_searched_by_itself(run):
    for knobs, synchronous in (({}, True), ({"compression": "powersgd"}, False)):
        about = {**declared(compression="none"), "synchronous": synchronous}
        for batch in (8, 16):
            values = {**PLAIN, "batch": batch, "knobs": knobs}
            run.proven(case_of(**values), slower=1.0 if synchronous else 0.5, declared=about)
    (contest,) = contests(summarise(run.folder))
    found = [(best.row.synchronous, best.tried) for best in contest.winners]
    assert found == [(True, 2), (False, 2)], "the latter is twice as fast"


def test_a_default_that_wins_has_no_margin(run):
    default = run.proven(case_of(**PLAIN))
    run.proven(case_of(**PLAIN, batch=16), slower=3.0)
    best = only(run)
    assert (best.row.id, best.margin, best.verdict) == (default.id, None, "the default is the fastest")
    run.proven(case_of("caffempi", passes=("native",)), slower=0.1)
    assert only(run).row.id == default.id, "what was not searched wins nothing"


def test_a_default_that_is_ahead_by_noise_is_not_called_the_fastest(run):
    default = run.proven(case_of(**PLAIN))
    run.changed(run.proven(case_of(**PLAIN, batch=16), slower=2.0), uneven(0.9, 1.03, 1.1))  # twice the batch
    best = only(run)
    assert (best.row.id, best.verdict) == (default.id, "none is detectably faster than the default")


def test_what_of_the_default_no_case_has_is_told(run):
    run.proven(case_of(**PLAIN | {"tuning": "tuned"}))
    run.proven(case_of(**PLAIN | {"tuning": "tuned"}, batch=16), slower=1.5)
    best = only(run)
    assert best.unusual == ("tuning",)
    assert best.default.case.batch == 8
    assert best.unequal_batches


def test_of_format_1_nobody_knows_which_knob_is_the_default(run):
    run.proven(case_of(**PLAIN), declared=None)
    run.proven(case_of(**{**PLAIN, "knobs": {"memory_format": "channels_last"}}), slower=0.8, declared=None)
    assert only(run).unusual == ("knobs.memory_format",)


def test_defaults_are_those_of_when_it_was_measured_whatever_is_installed_now(run):
    about = declared(memory_format="channels_last")
    run.proven(case_of(**PLAIN), declared=about)
    run.proven(case_of(**{**PLAIN, "knobs": {"memory_format": "channels_last"}}), slower=0.8, declared=about)
    best = only(run)
    assert best.default.case.knobs == {"memory_format": "channels_last"}
    assert best.verdict == "the default is the fastest"


def test_devices_data_strategies_and_clipping_are_other_questions(run):
    run.proven(case_of(**PLAIN))
    run.proven(case_of(**PLAIN, ranks=2))
    run.proven(case_of(**PLAIN, strategy="other"))
    run.proven(case_of(**PLAIN, input=Input(mode="memory")))
    run.proven(case_of(**PLAIN, clip_norm=1.0))
    run.add(case_of(**PLAIN, batch=16))  # without a proof
    assert contests(summarise(run.folder)) == []
    here = Placement(ranks_per_node=2)
    assert question(case_of(placement=here)) == question(case_of(placement=Placement(devices=2)))
