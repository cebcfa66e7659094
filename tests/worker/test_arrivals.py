"""The load `server`: a query waits for its batch, and its answer is its own."""

import numpy as np
import pytest

from stagebench.suite.worker.arrivals import Asked, InProcess, tries
from stagebench.suite.worker.case_parts import BURST, Input, Sampling, Serving
from stagebench.suite.worker.common_clock import wait_until
from stagebench.suite.worker.contract import Unsupported
from stagebench.suite.worker.job import Measure
from stagebench.suite.worker.messages import PARTS_INSIDE
from stagebench.workloads.networks import by_name
from tests.support.behind import Clock
from tests.support.echo import SAMPLES, Echo, echo


class Ticking(Clock):
    """Whoever waits looks at it again and again."""

    def perf_counter(self):
        self.now += 1e-6  # what a look at the clock takes
        return self.now


clock = Ticking()


@pytest.fixture(autouse=True)
def _no_other_clock(monkeypatch):
    """How many queries a batch has is then no matter of the machine's load."""
    monkeypatch.setattr("stagebench.suite.worker.arrivals.time", clock)
    monkeypatch.setattr("stagebench.suite.worker.common_clock.time", clock)
    monkeypatch.setattr("tests.support.echo.time", clock)
    monkeypatch.setattr(
        "stagebench.suite.worker.arrivals.wait_until", lambda at, **how: wait_until(at, clock.perf_counter, **how)
    )


class Swapping(Echo):
    """A batcher that hands out the answers of a batch in another order."""

    def fetch(self, found):
        return found[::-1]


def tried(predictor, rate, **values):
    """Tries at a rate that is less than the capacity by a thousandth."""
    trace = values.pop("trace", [])
    rule = Serving(**{"bound_share": 0.9, **values})
    attempt = InProcess(Asked(predictor, SAMPLES), rule).attempt
    task = Measure(by_name()["mnist_small"].graph(), [], Sampling(seconds=0.0), Input(), serving=rule, trace=trace)
    found = tries(attempt, 1.001 * rate, task, predictor.setup.seed, lambda **_: None)
    return [each for each in found if each.rate == pytest.approx(rate)]


def test_every_query_is_answered_once_and_its_latency_is_its_parts():
    for each in tried(echo(each_s=1e-4), 1000.0):
        assert sum(each.batches) == len(each.latency_s) == each.scheduled
        assert max(each.batches) <= 4
        assert len(each.batch_s) == len(each.batches)
        assert sum(each.stage_s.values()) == pytest.approx(np.mean(each.latency_s))
        assert set(each.stage_s) == set(PARTS_INSIDE)
        assert min(each.stage_s.values()) >= 0
        assert each.stage_s["forward"] > 1e-4 > each.stage_s["h2d"]
        assert min(each.latency_s) >= 1e-4
        assert (each.compared, each.wrong) == (each.scheduled, 0)


def test_a_delay_makes_larger_batches():
    soon, late = (np.mean(tried(echo(), 1000.0, max_delay_ms=delay)[0].batches) for delay in (0.0, 8.0))
    assert soon < 3 < late


def test_a_queue_that_grows_beyond_hope_ends_the_try():
    each = tried(echo(batch=1, batch_s=0.02), 1000.0, bound_ms=5.0)[0]
    assert len(each.latency_s) < each.scheduled


def test_swapped_answers_are_counted():
    each = tried(echo(Swapping, batch_s=0.005), 1000.0)[0]
    assert 0 < each.wrong < len(each.latency_s)  # the one in the middle of three is right


def test_answers_that_are_alike_are_not_compared():
    alike = InProcess(Asked(echo(), 1 + 1e-6 * SAMPLES), Serving())
    assert alike.attempt(1000.0, np.arange(4) / 1000.0).compared == 0


def test_few_shapes_are_asked_of_what_compiles():
    predictor = echo(batch=6, compiles=True)
    InProcess(Asked(predictor, SAMPLES), Serving()).capacity()
    assert predictor.sizes == {1, 2, 4, 6}


def test_what_would_take_hours_is_refused():
    with pytest.raises(Unsupported, match=r"bound_share = 0.99 wants 662 queries"):
        tried(echo(), 1.0, bound_share=0.99)


def test_bursts_arrive_together():
    each = tried(echo(batch=BURST, batch_s=1e-4), 1000.0, arrivals="bursts")[0]
    assert np.mean(each.batches) > 0.7 * BURST
    assert sum(each.batches) == each.scheduled


def test_a_trace_is_played_as_it_is():
    first, second = tried(echo(), 100.0, trace=[0.0, 0.0, 0.01, 0.04])
    assert (first.scheduled, first.rate) == (second.scheduled, second.rate) == (4, 100.0)
    assert first.batches[0] == 2
    assert first.wall_s > 0.04
