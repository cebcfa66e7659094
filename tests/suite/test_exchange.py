"""Exchanges of gradients: losses at equal samples and time, staleness, speeds, stragglers; what a training learnt."""

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest

from stagebench.suite.analysis.exchange import Slowed, crossover, exchanges, gains, stragglers, time_to
from stagebench.suite.analysis.learning import (
    Learnt,
    Staleness,
    curve,
    joined_staleness,
    learnt,
    reached,
    smoothed,
    staleness_of,
)
from stagebench.suite.analysis.stats import spread
from stagebench.suite.analysis.summary import summarise
from stagebench.suite.contracts.case import Case, Placement
from stagebench.suite.results.rank_report import Rank
from stagebench.suite.session.cases import slowed
from stagebench.suite.worker.messages import Epoch, Training
from tests.reports import made_experiments
from tests.reports.made_experiments import exchanges as made
from tests.reports.made_experiments import learner, taught


def test_a_curve_counts_the_samples_of_all_ranks_and_is_smoothed_by_the_window_that_ends_at_a_point():
    found = curve(Learnt((), (0, 1, 9), (3.0, 2.0, 1.0), 0.9, (0.1, 0.2, 1.0)), 16)
    assert found.by(seconds=False) == (16.0, 32.0, 160.0)
    assert found.by(seconds=True) == (0.1, 0.2, 1.0)
    assert smoothed([1, 2, 3, 10], [4.0, 2.0, 0.0, 8.0], 2) == [4.0, 3.0, 1.0, 8.0]
    assert smoothed([1, 2], [4.0, None], 5) == [4.0, None]  # a loss that was no number is not smoothed away
    assert reached([1, 2, 3, 10], [4.0, 2.0, 0.0, 8.0], 3, 2) == 1.0
    assert reached([1, 2, 3], [4.0, 2.0, 0.0], 9, 2) is None


def test_staleness_is_of_all_steps_of_all_ranks_and_a_spread_of_the_known():
    def noted(*notes):
        return [Rank(rank=rank, notes=each) for rank, each in enumerate(notes)]

    ranks = noted(
        {"staleness": {"mean": 1.0, "max": 2, "steps": 30}}, {"staleness": {"mean": 3.0, "max": 7, "steps": 10}}
    )
    assert staleness_of(ranks) == Staleness(1.5, 7.0, 40)
    assert staleness_of(noted({}, {"staleness": {"mean": 0.0, "max": 0, "steps": 0}})) is None
    assert joined_staleness([]) is None
    assert spread([3.0, None, 1.0, 2.0]).__dict__ == {"value": 2.0, "low": 1.0, "high": 3.0, "of": 3}
    assert spread([None]) is None
    assert spread([1.0, 2.0]).overlaps(spread([2.0, 3.0]))
    assert not spread([1.0, 2.0]).overlaps(spread([2.5]))


@pytest.fixture
def found(tmp_path):
    (exchange,) = exchanges(summarise(made(tmp_path / "run")))
    return {variant.case.strategy: variant for variant in exchange.variants}, exchange


def test_equal_samples_and_equal_time_are_two_questions_of_all_variants(found):
    variants, exchange = found
    assert list(variants) == ["ddp", "dist_sync", "dist_async"]
    assert all(len(variant.curves) == 2 for variant in variants.values())  # two seeds
    assert exchange.samples == 90 * 16 * 4  # 1438 / 16 steps an epoch
    assert exchange.seconds == min(curve.seconds[-1] for variant in variants.values() for curve in variant.curves)
    variants, _ = found
    losses = {name: (variant.after_samples.value, variant.after_seconds.value) for name, variant in variants.items()}
    assert losses["ddp"][0] == losses["dist_sync"][0] < losses["dist_async"][0]  # the same steps, and stale ones
    assert losses["ddp"][1] < losses["dist_sync"][1]  # which is slower
    assert variants["dist_async"].seen.value > variants["ddp"].seen.value > variants["dist_sync"].seen.value
    variants, exchange = found
    one = variants["ddp"].curves[0]
    truth = 2.3 * 2.718281828 ** (-(exchange.samples / 16) * (16 / 216) / 12) + 0.1
    assert variants["ddp"].after_samples.value == pytest.approx(truth, abs=0.03)
    assert one.losses[-1] != pytest.approx(variants["ddp"].after_samples.value, abs=1e-6)


def test_speeds_are_those_of_the_native_pass(found):
    variants, _ = found
    assert [name for name, variant in variants.items() if variant.against and variant.against.leads] == ["ddp"]
    assert variants["dist_sync"].against.ratio.value == pytest.approx(0.8, rel=0.1)
    assert variants["dist_sync"].against.verdict == "slower"
    assert variants["dist_async"].against is None, "it is another algorithm"
    assert (variants["dist_async"].staleness.mean, variants["ddp"].staleness) == (pytest.approx(1.4), None)


def test_one_strategy_or_another_training_is_no_comparison(run):
    for case in (learner("pytorch", 2), learner("caffempi", 2, lr=0.5), learner("caffempi", 1), learner("pytorch", 1)):
        run.proven(case, repeats=1, ranks=taught(case))
    assert exchanges(summarise(run.folder)) == []


def test_a_knob_may_make_the_variant(run):
    for knob in ("layerwise", "merged"):
        case = learner("caffempi", 2, knobs={"overlap": knob})
        run.proven(case, repeats=1, ranks=taught(case))
    (exchange,) = exchanges(summarise(run.folder))
    assert [variant.case.knobs["overlap"] for variant in exchange.variants] == ["layerwise", "merged"]


def test_records_without_seconds_are_compared_by_samples_alone(run):
    for adapter in ("pytorch", "caffempi"):
        case = learner(adapter, 2)
        ranks = taught(case)
        for rank in ranks:
            rank["training"]["loss_s"] = []
        run.proven(case, repeats=1, ranks=ranks)
    (exchange,) = exchanges(summarise(run.folder))
    assert exchange.seconds is None
    assert [variant.after_seconds for variant in exchange.variants] == [None, None]
    assert all(variant.after_samples for variant in exchange.variants)


def rank(seconds, accuracies, losses, samples=100):
    epochs = [
        Epoch(train_s=each, test_s=0.0, samples=samples, steps=1, accuracy=accuracy, loss=losses[-1])
        for each, accuracy in zip(seconds, accuracies, strict=True)
    ]
    return Training(epochs, list(range(len(losses))), losses, [])


def test_an_epoch_and_an_opening_last_as_long_as_on_the_slowest_rank_and_a_target_may_be_missed():
    both = learnt([rank([2.0, 1.0], [0.5, 0.9], [2.0, 1.0]), rank([3.0, 0.5], [0.5, 0.9], [1.0, 0.0])], 0.9)
    assert [epoch.seconds for epoch in both.epochs] == [3.0, 1.0]
    assert both.epochs[0].rate == pytest.approx(200 / 3)
    assert both.losses == (1.5, 0.5)
    assert (both.best, both.seconds) == (0.9, 4.0)
    assert (both.target_epoch, both.target_seconds) == (2, 4.0)
    found = learnt([rank([1.0], [0.5], [2.0])], 0.9)
    assert (found.target_epoch, found.target_seconds) == (None, None)
    ranks = [rank([1.0], [0.5], [2.0])._replace(open_s=seconds) for seconds in (0.5, 3.0, None)]
    assert learnt(ranks[:2], 0.9).opening_seconds == 3.0
    assert learnt(ranks, 0.9).opening_seconds is None, "a rank did not keep it"
    staggered = [one._replace(loss_steps=[at]) for at, one in enumerate(ranks[:2])]
    assert learnt(staggered, 0.9).opening_seconds == 3.0


def test_energy_is_counted_until_the_target_is_reached():
    ranks = [rank([2.0, 1.0, 1.0], [0.5, 0.9, 0.95], [2.0, 1.0])]
    assert learnt(ranks, 0.9, [200.0, 100.0, 50.0].__getitem__).target_joules == 300.0
    assert learnt(ranks, 0.99, [200.0, 100.0, 50.0].__getitem__).target_joules is None
    assert learnt(ranks, 0.9, [200.0, None, 50.0].__getitem__).target_joules is None, "no counter could be read"
    assert learnt(ranks, 0.9).target_joules is None


def test_curves_are_compared_over_the_first_steps_and_laid_out_as_their_losses_came():
    one = learnt([rank([1.0], [0.5], [2.0] * 60)], 0.9)
    other = learnt([rank([1.0], [0.5], [2.0] * 49 + [2.5] + [9.0] * 10)], 0.9)
    assert one.distance(other) == pytest.approx(0.5)
    broken = learnt([rank([1.0], [0.5], [2.0, None])], 0.9)
    assert one.distance(broken) is None
    assert broken.losses == (2.0, None)
    fast, slow = rank([3.0], [0.5], [2.0, 1.0, 0.5]), rank([3.0], [0.5], [1.8])
    fast, slow = (
        each._replace(loss_steps=steps, loss_s=seconds)
        for each, steps, seconds in ((fast, (0, 1, 3), (0.5, 1.0, 2.0)), (slow, (2,), (1.5,)))
    )
    found = learnt([fast, slow], 0.9)
    assert (found.steps, found.losses, found.seconds_then) == ((0, 1, 2, 3), (2.0, 1.0, 1.8, 0.5), (0.5, 1.0, 1.5, 2.0))


def way(seconds):
    """Times to the loss by share, a seed each."""
    return Slowed((), {share: {(seed, 0): time for seed, time in enumerate(times)} for share, times in seconds.items()})


WAITS = way({0.0: (1.0, 1.0, 1.0), 0.5: (2.0, 2.0, 2.0), 0.75: (4.0, 4.0, 4.0)})


def test_ways_cross_where_their_times_are_equal_by_the_shares_that_were_taken():
    freer = way({0.0: (1.9, 2.0, 2.1), 0.5: (1.9, 2.0, 2.1), 0.75: (1.9, 2.0, 2.1)})
    found = crossover(WAITS, freer)
    assert found.value == pytest.approx(0.5, abs=0.01)
    assert 0.4 < found.low < found.value < found.high < 0.6
    freer = way({0.0: (2.0, 2.0), 0.5: (2.0, 2.0), 0.75: (2.0, 2.0)})
    waits = replace(WAITS, shares={0.5: [0.3, 0.4], 0.75: [0.7]})
    assert crossover(waits, replace(freer, shares={0.5: [0.45]})).value == pytest.approx(0.4)
    scattered = way({0.0: (1.1, 0.6, 1.8), 0.5: (1.0, 1.0, 1.0), 0.75: (1.0, 1.0, 1.0)})
    found = crossover(WAITS, scattered)
    assert found.low is None
    assert 0 < found.value < found.high < 0.5


def test_trainings_are_paired_by_their_repeat(tmp_path):
    rows = summarise(made_experiments.stragglers(tmp_path / "run"))
    for row in rows:
        row.processes = [replace(each, repeat=3) for each in row.processes]
    (found,) = stragglers(rows)
    every = [times for variant in found.variants for times in variant.seconds.values()]
    assert {repeat for times in every for _, repeat in times} == {3}


def test_a_share_that_is_no_number_is_not_taken(tmp_path):
    folder = made_experiments.stragglers(tmp_path / "run")
    for path in (folder.path / "records").iterdir():
        path.write_text(path.read_text().replace('"taken": 0.71', '"taken": "most of it"'))
    (found,) = stragglers(summarise(folder))
    known = {share: one.taken(share) is not None for one in found.variants for share in (0.5, 0.75)}
    assert known == {0.5: True, 0.75: False}


@pytest.mark.parametrize(
    ("synchronous", "knobs", "samples"), [(True, {}, 96), (False, {"backups": 1}, 64), (False, {"backups": 0}, 32)]
)
def test_samples_behind_an_update(synchronous, knobs, samples):
    case = Case("pytorch", "parameter_server", "mnist_small", Placement(ranks_per_node=3), batch=32, knobs=knobs)
    assert Slowed((SimpleNamespace(case=case, synchronous=synchronous),), {}).samples_per_update == samples


@pytest.mark.parametrize("times", [(0.5, 0.5, 0.5), (9.0, 9.0, 9.0), (math.inf, 2.0, 2.0)])
def test_ways_that_do_not_cross(times):
    assert crossover(WAITS, way(dict.fromkeys((0.0, 0.5, 0.75), times))) is None


def test_gains_are_known_of_every_share_by_times_to_the_smoothed_loss():
    found = gains(WAITS, way({0.0: (0.5, 0.5, 0.5), 0.5: (2.0,), 0.75: (math.inf, 2.0, 2.0)}))
    known = [(gain.share, gain.mean, gain.half) for gain in found]
    assert known == [(0.0, pytest.approx(math.log(2)), pytest.approx(0)), (0.5, 0, None)]
    assert [gain.detectable for gain in found] == [True, False]
    lesson = Learnt((), tuple(range(100)), tuple(1.0 - step / 100 for step in range(100)), 0.9, tuple(range(1, 101)))
    assert time_to(lesson, 0.5) == 56, "the mean over the last ten steps lags by 4.5"
    assert time_to(lesson, 0.01) == math.inf


@pytest.mark.parametrize(
    ("why", "remedy"),
    [
        ("time", "raise time_limit = 60 or lower straggler = 0.75"),
        ("silence", "raise silence_limit = 30 or lower straggler = 0.75"),
        ("grace", ""),  # a rank had died
        (None, ""),  # an engine had no room
    ],
)
def test_a_straggler_is_named_where_a_limit_of_the_case_passes(why, remedy):
    place = Placement(ranks_per_node=2)
    case = Case("pytorch", "ddp", "mnist_small", place, straggler=0.75, time_limit=60.0, silence_limit=30.0)
    attempt = SimpleNamespace(evidence={"stopped": {"why": why} if why else None})
    who = "; rank 1 is a straggler that lost 75% of its time, as the plan asks: "
    assert slowed(case, attempt) == (who + remedy if remedy else "")
    assert slowed(case.on(straggler=0.0), attempt) == ""
