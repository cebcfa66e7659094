"""Exchanges of gradients: losses at equal samples and equal time, staleness, speeds; what a training learnt."""

import pytest

from suite.analysis.exchange import exchanges
from suite.analysis.learning import Learnt, Staleness, curve, joined_staleness, learnt, reached, smoothed, staleness_of
from suite.analysis.stats import spread
from suite.analysis.summary import summarise
from suite.results.rank_report import Rank
from suite.worker.messages import Epoch, Training
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
