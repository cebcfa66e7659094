"""The page of the load `server`, of honest records however odd they are."""

import re
from dataclasses import replace
from itertools import count

import pytest

from stagebench.reports.pages.run import Report
from stagebench.reports.pages.serving import serving
from stagebench.suite.analysis.summary import summarise
from stagebench.suite.worker.case_parts import Sampling, Serving
from tests.reports.made_run import MadeRun, case_of

SETTINGS = {"strategy": "inference", "passes": ("offline", "server"), "sampling": Sampling(steps=700, processes=3)}


@pytest.fixture
def page(tmp_path):
    """Gives the page's text of a case whose tries are changed."""
    numbers = count()

    def made(change=lambda tried: None, versions=(), **rule):
        run = MadeRun(tmp_path / f"run-{next(numbers)}", "serving")
        case = run.proven(case_of("pytorch", batch=4, serving=Serving(**rule), **SETTINGS))

        def changed(record):
            for tried in record["ranks"][0]["tries"]:
                change(tried)
            if versions:
                record["ranks"][0]["model_server"]["version"] = versions[record["repeat"] % len(versions)]

        run.changed(case, changed)
        row = run.only()
        assert (row.outcome, row.reason) == ("ok", "")
        return row, serving(Report(run.folder, [row]))

    return made


def refused(tried):
    tried.update(latency_s=[], batches=[], batch_s=[], compared=0, refused=400)
    tried["stage_s"] = dict.fromkeys(tried["stage_s"], 0.0)


def late(tried):
    tried["lag_s"] = [0.01] * 400


def wrong(tried):
    tried["wrong"] = 400


def lost(tried):
    """One in a hundred got no answer."""
    before = sum(tried["latency_s"]) / 400
    for name in ("latency_s", "batches", "batch_s"):
        tried[name] = tried[name][4:]
    tried.update(compared=396, failed=4)
    tried["stage_s"]["server"] += sum(tried["latency_s"]) / 396 - before


def given_up(tried):
    for name in ("latency_s", "batches", "batch_s", "lag_s"):
        tried[name] = tried[name][:100]
    tried["stage_s"]["server"] = sum(tried["latency_s"]) / 100 - 0.00103
    tried.update(compared=100)


@pytest.mark.parametrize(
    ("change", "unanswered", "headline"),
    [
        (refused, 4800, "No rate that was tried keeps its bound"),
        (late, 0, "Not known: the generator of queries was late"),
        (wrong, 0, "No rate that was tried keeps its bound"),
        (lost, 48, "No rate that was tried keeps its bound"),
        (given_up, 0, "No rate that was tried keeps its bound"),
        (lambda tried: tried["rate"] == 200 and refused(tried), 2400, "100 queries/s keep the bound"),
        (lambda tried: None, 0, "At least 200 queries/s keep the bound"),
    ],
    ids=["refused", "late", "wrong", "lost", "given up", "fails at 200", "well"],
)
def test_tries_behind_a_server_are_counted_and_judged(page, change, unanswered, headline):
    row, section = page(change, model_server="mosec", bound_ms=1000.0)
    assert row.served.unanswered == unanswered
    assert section.title == headline
    text = str(section)
    assert "mosec 1.0" in text
    assert ">inf<" not in text
    assert ("Where the time of a query goes" in text) == (change not in (refused, late))


def test_a_trace_has_no_model_beside_it(page):
    _, section = page(arrivals="/data/day.txt@0123456789ab", bound_ms=1000.0)
    assert "model is off" not in str(section)


def test_the_hop_goodput_and_the_best_rate_are_shown(page):
    _, section = page(model_server="mosec", bound_ms=1000.0)
    text = str(section)
    assert ">hop<" in text
    assert ">0.010<" in text
    assert ">way back<" in text
    assert "Model and measurement" in text


def test_the_best_batch_and_delay_are_marked_as_measured_and_as_the_model_says(tmp_path):
    run = MadeRun(tmp_path / "run", "serving")
    for delay in (0.0, 2.0):
        run.proven(case_of("pytorch", batch=4, serving=Serving(max_delay_ms=delay, bound_ms=1000.0), **SETTINGS))
    text = str(serving(Report(run.folder, summarise(run.folder))).body)
    heat, _, after = text.partition("the largest of all")
    latencies, _, charts = after.partition("● the least, ○")
    assert heat.count("● at least 200") == 2, "both keep it up to the largest rate that was tried"
    assert "● " in latencies
    assert "○ " in latencies
    assert "answers/s within the bound" in charts


def test_settings_on_one_page_have_titles_of_their_own(tmp_path):
    run = MadeRun(tmp_path / "run", "serving")
    for arrivals in ("poisson", "bursts"):
        for delay in (0.0, 2.0):
            rule = Serving(max_delay_ms=delay, bound_ms=1000.0, arrivals=arrivals)
            run.proven(case_of("pytorch", batch=4, serving=rule, **SETTINGS))
    text = str(serving(Report(run.folder, summarise(run.folder))).body)
    titles = re.findall('<p class="sub">([^<]*: which batch and delay)', text)
    assert len(set(titles)) == len(titles) == 2


def test_a_server_that_ended_before_its_last_try_has_no_result(tmp_path):
    run = MadeRun(tmp_path / "run", "serving")
    case = run.proven(case_of("pytorch", batch=4, serving=Serving(model_server="mosec"), **SETTINGS))
    run.changed(case, lambda record: record["ranks"][0].update(model_server=None))
    assert (run.only().outcome, run.only().served) == ("ok", None)


def test_a_server_elsewhere_shows_what_is_known_of_it(page):
    def seen_from_here(tried):
        tried.update(batches=[], batch_s=[])
        lag = tried["stage_s"]["lag"]
        tried["stage_s"] = {"lag": lag, "server": sum(tried["stage_s"].values()) - lag}

    rule = {"model_server": "raw", "address": "http://there:80/x", "options": {}, "bound_ms": 1000.0}
    row, section = page(seen_from_here, **rule)
    text = str(section)
    assert "at least 200" in text
    assert "at http://there:80/x" in text
    assert "model is off" not in text
    assert row.served.first[0].batch is None


def test_the_delay_that_held_is_shown_and_processes_that_met_different_servers_are_marked(page):
    served = page(model_server="mosec", options={"capacity": 9}, bound_ms=1000.0)[0].served
    assert served.delay_ms(Serving(max_delay_ms=0.5)) == 1000 * served.model_server.delay_s
    assert replace(served, model_server=None).delay_ms(Serving(max_delay_ms=0.5)) == 0.5
    assert "capacity=9" in str(page(model_server="mosec", options={"capacity": 9}, bound_ms=1000.0)[1])


def test_processes_that_met_different_versions_are_no_row_to_compare(page):
    row, _ = page(model_server="mosec", bound_ms=1000.0, versions=("1.0", "1.1"))
    assert "other server version" in row.marks
    assert not row.comparable
    assert "other server version" not in page(model_server="mosec", bound_ms=1000.0)[0].marks
