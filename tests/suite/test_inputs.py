"""What reading costs: waiting, readers alone, and which of the two holds a case up."""

from types import SimpleNamespace

import numpy as np
import pytest

from stagebench.reports.pages.inputs import words
from stagebench.suite.analysis.budget import input_wait
from stagebench.suite.analysis.inputs import groups, unhindered
from stagebench.suite.analysis.rows import Row
from stagebench.suite.analysis.summary import summarise
from stagebench.suite.results.rank_report import Rank
from stagebench.suite.worker.case_parts import Input
from tests.reports.made_experiments import inputs
from tests.reports.made_run import case_of


def rank(steps, waits, alone=None):
    """A rank whose native steps take that much longer than resident ones, block by block."""
    turns = [(step, step - wait) for step, wait in zip(steps, waits, strict=False)]
    passes = {"native": timed("native", steps), "resident": {**timed("resident", steps), "pairs_s": turns}}
    if alone:
        passes["io_only"] = timed("io_only", alone)
    return Rank(rank=0, passes=passes)


def timed(name, steps):
    return {"name": name, "samples": 8, "steady": True, "warmup_s": steps, "step_s": steps, "wall_s": sum(steps)}


def test_native_less_resident_tells_the_wait_and_the_reader_what_it_gives_alone():
    found = input_wait([rank([1.0] * 4, [0.1] * 4, [0.2] * 3), rank([1.5] * 4, [0.6, 1.0, 0.6, 1.0], [0.5] * 3)])
    assert found.waited == pytest.approx(0.6)  # of each pair the slowest rank: 1.5 less 0.9, which is rank 0's
    assert found.share.value == pytest.approx(0.4)
    assert found.alone == pytest.approx([0.5] * 3)
    found = input_wait([rank([1.0] * 4, [], [0.2] * 3)])
    assert (found.waited, found.share, len(found.alone)) == (None, None, 3)
    found = input_wait([rank([1.0] * 2, [0.0] * 2, [0.0, 0.0, 0.3])])
    assert np.all(found.alone > 0)
    assert found.alone.sum() == pytest.approx(0.3)


@pytest.mark.parametrize("ranks", [[], [Rank(rank=0)], [rank([1.0], [])], [rank([1.0] * 2, [0.1] * 2), Rank(rank=0)]])
def test_without_every_ranks_waiting_nothing_is_told(ranks):
    assert input_wait(ranks) is None


def test_a_row_s_wait_is_the_mean_around_which_its_interval_lies():
    waits = [input_wait([rank([1.0] * 4, [wait, wait, 1.5 * wait, wait])]) for wait in (0.1, 0.2, 0.6)]
    measured = SimpleNamespace(measured=[SimpleNamespace(input_wait=wait) for wait in (*waits, None)])
    share = Row.waited_share.fget(measured)
    assert (share.value, Row.waited.fget(measured)) == pytest.approx((0.3 * 1.125, 0.3 * 1.125))
    assert share.low < share.value < share.high


def only(run):
    (group,) = groups(summarise(run.folder))
    return group


def slowed(run, case, waits, alone, repeats=3):
    """Let a case wait `waits` of its iteration for a reader that takes `alone` iterations a batch by itself."""

    def slower(record):
        passes = record["ranks"][0]["passes"]
        step = passes["native"]["wall_s"] / len(passes["native"]["step_s"])
        if "resident" in passes:
            passes["resident"]["pairs_s"] = [(step, step * (1.0 - waits))] * 4
        if alone:
            count, seconds = len(passes["io_only"]["step_s"]), step * alone * (1.01, 1.0, 0.99)[record["repeat"]]
            passes["io_only"] |= {"step_s": [seconds] * count, "wall_s": seconds * count}

    run.changed(case, slower, range(repeats))


@pytest.mark.parametrize(
    ("waits", "alone", "bottleneck"),
    [
        (0.00, 0.1, "network"),
        (0.04, 0.1, "network"),  # what no one would notice
        (0.20, 0.1, "cores"),  # quick alone, slow beside the network
        (0.50, 3.0, "reader"),
        (0.00, 1.0, "neither"),
    ],
)
def test_what_holds_a_case_up(run, waits, alone, bottleneck):
    run.proven(case_of(data="synthetic", passes=("native",)))
    slowed(run, run.proven(case_of()), waits, alone)
    synthetic, disk = only(run).cases
    assert (synthetic.mode, synthetic.bottleneck, synthetic.gap) == ("synthetic", None, None)
    assert (disk.mode, disk.bottleneck) == ("disk", bottleneck)
    assert disk.takes == pytest.approx(synthetic.row.rates.value)
    assert disk.delivers == pytest.approx(disk.takes / alone, rel=0.1)


@pytest.mark.parametrize(("waits", "bottleneck"), [(0.01, "network"), (0.3, "reader")])
def test_without_io_only_waiting_alone_tells(run, waits, bottleneck):
    case = run.proven(case_of(passes=("native", "resident"), input=Input(mode="memory")))
    run.proven(case_of())
    slowed(run, case, waits, None)
    memory, disk = only(run).cases
    assert (memory.ahead, memory.bottleneck) == (None, bottleneck)
    assert disk.gap.value == pytest.approx(disk.row.rates.value / memory.row.rates.value, rel=0.02)


def uneven(run, case, waits):
    """Let blocks of each process wait a share of the step each, as often as there are shares."""

    def change(record):
        passes = record["ranks"][0]["passes"]
        step = passes["native"]["wall_s"] / len(passes["native"]["step_s"])
        passes["resident"]["pairs_s"] = [(step, step * (1.0 - share)) for share in waits]

    run.changed(case, change, repeats=range(1))


@pytest.mark.parametrize(
    ("waits", "alone", "bottleneck", "says"),
    [
        ((0.0, 0.2, 0.0, 0.2), None, "open", "waiting is not determined: whether reading holds the network up is not"),
        ((0.09, 0.11, 0.09, 0.11), None, "reader", "10.0 % of an iteration is waiting: reading holds the network up"),
        ((0.03, 0.09, 0.03, 0.09), None, "open", "6.0 % of an iteration is waiting: whether reading holds"),
        ((0.0, 0.2, 0.0, 0.2), 0.1, "open", "what holds it up is not determined"),
    ],
)
def test_what_the_intervals_leave_open_is_no_verdict(run, waits, alone, bottleneck, says):
    """The shares are 10 and 6 % in the middle, more than what is noticed; where blocks disagree, that may be noise."""
    case = run.proven(case_of(passes=("native", "resident", *(("io_only",) if alone else ()))), repeats=1)
    run.proven(case_of(passes=("native",), input=Input(mode="memory")), repeats=1)
    slowed(run, case, 0.0, alone, repeats=1)
    uneven(run, case, waits)
    disk = only(run).cases[-1]
    assert disk.bottleneck == bottleneck
    assert says in words(disk)


def test_what_is_not_known_of_the_waiting_is_not_known_of_the_network(run):
    """By its middle value the network waits a tenth, and takes a tenth less than its reader delivers."""
    case = run.proven(case_of(), repeats=1)
    run.proven(case_of(passes=("native",), input=Input(mode="memory")), repeats=1)
    for waits, bottleneck in (((0.1,) * 4, "cores"), ((0.02, 0.18) * 2, "neither")):
        slowed(run, case, 0.1, 0.8, repeats=1)
        uneven(run, case, waits)
        assert only(run).cases[-1].bottleneck == bottleneck


def test_a_rank_with_a_pace_of_its_own_counts_by_its_samples(run):
    def slow_rank(record):
        native = record["ranks"][1]["passes"]["native"]
        for rank in record["ranks"]:
            rank["passes"]["native"]["own_pace"] = True
        native.update(step_s=[4 * step for step in native["step_s"][::4]], samples=native["samples"] // 4)
        native["io_s"] = native["io_s"][::4]

    case = run.proven(case_of(ranks=2))
    (before,) = summarise(run.folder)
    run.changed(case, slow_rank)
    (row,) = summarise(run.folder)
    assert row.outcome == "ok", row.reason
    assert row.rates.value == pytest.approx(before.rates.value * (1 + 0.25) / 2, rel=1e-2)
    for process in row.measured:
        assert case.global_batch / np.mean(process.step_seconds) == pytest.approx(process.rate)


def test_a_network_that_need_not_wait_is_that_much_faster_by_the_processes_with_a_breakdown(run):
    def without(record):
        if record["repeat"]:
            for name in ("resident", "io_only"):
                record["ranks"][0]["passes"].pop(name)

    case = run.proven(case_of())
    slowed(run, case, 0.5, 0.5)
    (row,) = summarise(run.folder)
    assert unhindered(row).value == pytest.approx(2 * row.rates.value, rel=1e-3)
    assert row.reader.value == pytest.approx(2 * row.rates.value, rel=1e-2)
    run.changed(case, without)
    (row,) = summarise(run.folder)
    told = row.measured[0]
    assert unhindered(row).value == pytest.approx(case.global_batch / (0.5 * np.mean(told.step_seconds)), rel=1e-2)


def test_cases_that_differ_in_nothing_else_stand_side_by_side_with_modes_in_their_order(run, tmp_path):
    for case in (case_of(), case_of(batch=16), case_of("caffempi"), case_of(data="synthetic", seed=2)):
        run.proven(case)
    assert groups(summarise(run.folder)) == []
    found = groups(summarise(inputs(tmp_path / "run")))
    assert [[fed.mode for fed in group.cases] for group in found] == [
        ["synthetic", "memory", "disk", "disk"],
        ["synthetic", "memory", "disk", "disk"],
        ["synthetic", "disk"],
    ]
