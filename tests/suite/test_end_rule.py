"""When a run has measured enough: what a process of a case runs, further rounds, and a time that is up."""

from collections import Counter
from types import SimpleNamespace

import pytest

from stagebench.suite.analysis.leaders import open_cases
from stagebench.suite.contracts.case import Case
from stagebench.suite.errors import RequestError
from stagebench.suite.plan import Resolved
from stagebench.suite.plugins import adapters
from stagebench.suite.results.records import About
from stagebench.suite.results.run_folder import RunFolder
from stagebench.suite.session.cases import Runnable
from stagebench.suite.session.end_rule import CLEAR, MOST_PROCESSES, TIME_IS_UP, EndRule, end_rule, still_open
from stagebench.suite.session.observer import Observer
from stagebench.suite.session.resumable import Session, Settings
from stagebench.suite.worker.case_parts import Sampling
from stagebench.suite.worker.pass_kinds import USUAL
from tests.reports.made_run import MadeRun, case_of, proof_of


def case(processes: int = 5, breakdowns: int = 2, **changes) -> Case:
    return Case("a", "single", "mnist_small", sampling=Sampling(processes=processes, breakdowns=breakdowns), **changes)


@pytest.mark.parametrize(
    ("processes", "breakdowns", "whole"),
    [*((5, 2, {1, 4}), (5, 3, {1, 3, 4}), (3, 2, {1, 2}), (3, 1, {1})), *((2, 2, {0, 1}), (1, 2, {0}), (3, 0, set()))],
)
def test_a_few_processes_break_the_iteration_down_and_all_measure_the_speed(processes, breakdowns, whole):
    of = case(processes, breakdowns)
    assert {repeat for repeat in range(processes) if of.passes_of(repeat) == USUAL} == whole
    assert all(of.passes_of(repeat) == ("native",) for repeat in range(processes + 5) if repeat not in whole)


@pytest.mark.parametrize("passes", [("train",), ("io_only",)])
def test_without_a_speed_every_process_is_whole(passes):
    assert {case(passes=passes).passes_of(repeat) for repeat in range(5)} == {passes}


@pytest.mark.parametrize(
    ("until", "time_limit", "precision", "seconds"),
    [(None, None, None, None), ("3%", None, 0.03, None), ("0.5 %", "90s", 0.005, 90), (None, "1.5h", None, 5400)],
)
def test_the_options_are_a_share_and_a_time(until, time_limit, precision, seconds):
    rule = end_rule(until, time_limit)
    assert (rule.precision, rule.seconds) == (precision, seconds)
    assert rule.goes_on == (precision is not None or seconds is not None)
    assert rule.clear == (precision or CLEAR)


@pytest.mark.parametrize(
    ("until", "time_limit", "words"),
    [
        ("3", None, "--until '3' should read N%, between 0.1% and 50%, such as 3%"),
        ("-1%", None, "--until '-1%'"),
        ("nan%", None, "--until 'nan%'"),
        (None, "20", "--for '20' should read a time with its unit"),
        (None, "soon", "--for 'soon'"),
    ],
)
def test_what_reads_otherwise_is_refused_by_its_name(until, time_limit, words):
    with pytest.raises(RequestError, match=words.replace("(", r"\(")):
        end_rule(until, time_limit)


class Rounds(Session):
    """Measures nothing: its processes are noted, and a script says who wants more."""

    def __init__(self, tmp_path, cases, observer, end, wanting):
        folder = RunFolder(tmp_path / "run").begin(About(plan="test"), "plan")
        resolved = [Resolved(each, None, "") for each in cases]
        super().__init__(folder, resolved, {}, observer, Settings(proofs=False, end=end))
        self.there, self._wanting = [], wanting

    def _runnable(self):
        launch = SimpleNamespace(adapter=adapters()["reference"], here=False)
        return [Runnable(resolved.case, launch) for resolved in self._planned], []

    def _undecided(self, items, processes):
        return self._wanting(items, self.there)

    def _measuring(self, item, repeat, fields, together):
        self.there.append((item.case.batch, repeat))
        yield False

    def _have(self, case, repeat):
        return (case.batch, repeat) in self.there

    def _outcomes(self, items):
        return Counter(ok=len(self.there))


class Listener(Observer):
    def __init__(self):
        self.rounds, self.up, self.open = [], 0, []

    def note(self, text, further=0):
        self.rounds += [further] if further else []
        self.up += text == TIME_IS_UP
        self.open += [text] if "still open" in text else []


CASES = [case(2, 1, batch=1), case(2, 1, batch=2)]
PLANNED = [(1, 0), (2, 0), (1, 1), (2, 1)]


def only(batch: int, times: int):
    return lambda items, there: [
        item for item in items if item.case.batch == batch and sum(each[0] == batch for each in there) < 2 + times
    ]


@pytest.mark.parametrize(("rule", "more"), [(EndRule(), 0), (EndRule(precision=0.03), 3)])
def test_who_wants_more_gets_rounds_until_it_is_clear_where_there_is_a_rule(tmp_path, rule, more):
    listener = Listener()
    session = Rounds(tmp_path, CASES, listener, rule, only(2, 3))
    session.run()
    assert session.there == [*PLANNED, *((2, 2 + number) for number in range(more))]
    assert (listener.rounds, listener.up, listener.open) == ([1] * more, 0, [])


@pytest.mark.parametrize(
    ("wanting", "left_open"), [(lambda items, there: items, 1), (only(1, MOST_PROCESSES - 2), 0)], ids=["never", "last"]
)
def test_what_never_becomes_clear_ends_and_is_told_unless_the_last_process_makes_it_clear(tmp_path, wanting, left_open):
    listener = Listener()
    session = Rounds(tmp_path, CASES[:1], listener, EndRule(precision=0.001), wanting)
    session.run()
    assert len(session.there) == MOST_PROCESSES
    assert listener.open == [still_open(1, MOST_PROCESSES, 0.001)] * left_open


def test_no_process_begins_when_the_time_is_up(tmp_path, monkeypatch):
    now = iter(range(100))
    monkeypatch.setattr(EndRule.clock, "__defaults__", (lambda: next(now),))
    listener = Listener()
    session = Rounds(tmp_path, CASES, listener, EndRule(seconds=3), lambda items, there: items)
    session.run()
    assert (session.there, listener.up, listener.open) == (PLANNED[:2], 1, [])


def test_open_cases_are_those_that_cannot_be_told_apart(tmp_path):
    run = MadeRun(tmp_path / "run")
    alike = [run.proven(case_of(adapter, data="synthetic"), repeats=5) for adapter in ("pytorch", "caffempi")]
    failed = case_of("mxnet", data="synthetic")
    run.add(failed, repeats=5, proof=proof_of(failed, passed=False))
    cases = [(each, True) for each in (*alike, failed)]
    assert open_cases(run.folder, cases, 5, 0.2) == set(), "6 % apart, and they scatter by 1 %"
    assert open_cases(run.folder, cases, 1, 0.2) == {each.id for each in alike}, "one round tells nothing"
