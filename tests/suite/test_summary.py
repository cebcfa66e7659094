"""From records to rows: speeds, outcomes, scaling, groups, utilisation, energy."""

import json

import pytest

from stagebench.reports.site.build import render
from stagebench.suite.analysis.summary import summarise
from stagebench.suite.cli.results import print_results
from stagebench.suite.contracts.case import Placement
from stagebench.suite.plugins import workloads
from stagebench.suite.worker.case_parts import Sampling, Training
from tests.reports.made_experiments import paper
from tests.reports.made_run import case_of, declared, learner_of, proof_of, record_of

FULL = Sampling(processes=3)
TRAINING = Training(epochs=2, target=0.9)
ASYNCHRONOUS = {**declared(), "synchronous": False}


def test_the_rate_is_all_samples_over_the_slowest_ranks_wall(run):
    case = run.proven(case_of(ranks=2, sampling=Sampling(processes=1)), repeats=1)

    def known(record):
        for rank, wall in zip(record["ranks"], (2.0, 4.0), strict=True):
            rank["passes"]["native"] |= {"step_s": [wall / 10] * 10, "io_s": [0.0] * 10, "wall_s": wall, "samples": 80}

    run.changed(case, known, [0])
    row = run.only()
    assert row.rate.value == pytest.approx(160 / 4.0)
    assert row.rate_per_device.value == pytest.approx(20.0)
    assert row.processes[0].rate == pytest.approx(40.0)


@pytest.mark.parametrize(("until", "repeats", "first_look"), [(None, 3, None), (0.03, 3, 3), (None, 4, 3)])
def test_a_good_row_has_no_marks_and_knows_whether_its_verdict_decided_how_long_it_was_measured(
    run, until, repeats, first_look
):
    """By what the run's command said, or by more processes than planned: a later command may have gone on."""
    run.folder.write_about(run.folder.about.but(until=until))
    run.proven(case_of(sampling=FULL), repeats=repeats)
    row = run.only()
    assert row.rates.first_look == first_look
    assert (row.outcome, row.marks, row.comparable, row.proof.passed) == ("ok", [], True, True)
    assert row.rate.low < row.rate.value < row.rate.high
    assert row.budget.native > 0


def test_a_failed_proof_disqualifies_and_a_missing_one_says_why_as_does_a_missing_case(run):
    failed = case_of(sampling=FULL)
    run.add(failed, proof=proof_of(failed, passed=False))
    run.add(case_of(batch=16))
    run.refuse(case_of(batch=32), "unsupported", "not here")
    run.refuse(case_of(ranks=2), None, "")
    failed, unproven, refused, missing = summarise(run.folder)
    assert (failed.marks, failed.comparable) == (["proof failed"], False)
    assert unproven.proof_reason == "proofs were switched off for this run"
    assert (refused.outcome, refused.reason, refused.rate) == ("unsupported", "not here", None)
    assert (missing.outcome, missing.budget) == ("not measured", None)


def test_one_failed_process_decides_the_outcome_but_not_the_speed(run):
    case = run.proven(case_of())
    failed = record_of(case, 1, proof_of(case), outcome="oom", reason="no memory", ranks=[])
    run.write(f"records/{case.id}-r1.json", failed)
    row = run.only()
    assert (row.outcome, row.reason) == ("oom", "no memory")
    assert len(row.measured) == 2
    assert "incomplete" in row.marks


def test_scaling_takes_the_fastest_one_rank_case_with_the_same_batch_and_knobs(run):
    run.proven(case_of())
    best = run.proven(case_of(strategy="ddp"), slower=0.9)
    run.proven(case_of(batch=16), slower=0.2)
    run.proven(case_of(knobs={"memory_format": "contiguous"}), slower=0.2)
    run.proven(case_of(ranks=2))
    rows = summarise(run.folder)
    scaling = rows[-1].scaling
    assert scaling.baseline_id == best.id
    assert scaling.efficiency.value == pytest.approx(rows[-1].rate.value / (2 * rows[1].rate.value), rel=0.02)
    assert not scaling.super_linear
    assert all(row.scaling is None for row in rows[:-1])


def test_strong_scaling_is_from_one_device_with_the_whole_batch(run):
    whole = run.proven(case_of(batch=16))
    run.proven(case_of(batch=8), slower=0.2)
    shared = run.proven(case_of(ranks=2, scaling="strong"))
    run.proven(case_of(ranks=2))
    whole_row, _, strong, weak = summarise(run.folder)
    assert (strong.id, strong.scaling.baseline_id) == (shared.id, whole.id)
    assert strong.scaling.efficiency.value == pytest.approx(strong.rate.value / (2 * whole_row.rate.value), rel=0.02)
    assert weak.scaling.baseline_id != whole.id


@pytest.mark.parametrize(("slower", "flagged"), [(1.5, True), (1.0, False)])
def test_more_than_ideal_is_flagged_and_without_a_baseline_there_is_no_efficiency(run, slower, flagged):
    run.proven(case_of(), slower=slower)
    run.proven(case_of(ranks=2))
    run.proven(case_of(ranks=2, batch=16))
    _, scaled, alone = summarise(run.folder)
    assert scaled.scaling.super_linear == flagged
    assert alone.scaling is None


def test_only_comparable_rows_of_one_group_are_compared_and_all_are_json(run):
    run.proven(case_of())
    run.proven(case_of("caffempi"), slower=2.0)
    run.add(case_of("reference"), slower=0.01)  # no proof: does not win
    run.proven(case_of("caffempi", batch=16))
    run.refuse(case_of(ranks=4), None, "")
    leader, slower, unproven, alone, missing = summarise(run.folder)
    assert leader.against.verdict == "leads"
    assert slower.against.verdict == "slower"
    assert slower.against.ratio.value == pytest.approx(0.47, abs=0.02)
    assert slower.against.fastest == leader.id
    assert unproven.against is None
    assert alone.against is None
    found, other, *_, last = json.loads(
        json.dumps([row.to_dict() for row in (leader, slower, unproven, alone, missing)], allow_nan=False)
    )
    assert found["samples_per_second"]["value"] > 0
    assert other["layers"][0]["layer"] == "conv1"
    assert last["samples_per_second"] is None


def test_what_is_no_synchronous_training_never_leads_those_that_are(run):
    run.proven(case_of(ranks=2), declared=declared())
    run.proven(case_of("caffempi", ranks=2), declared=declared(), slower=2.0)
    one_bit = {"ranks": 2, "strategy": "one_bit_sgd", "knobs": {}}
    run.proven(case_of("cntk", **one_bit), declared=ASYNCHRONOUS, slower=0.1)
    run.proven(case_of("other", **one_bit), declared=ASYNCHRONOUS, slower=0.2)
    run.proven(case_of("cntk", **{**one_bit, "strategy": "block_momentum"}), declared=ASYNCHRONOUS, slower=0.1)
    rows = summarise(run.folder)
    assert [row.against and row.against.verdict for row in rows] == ["leads", "slower", "leads", "slower", None]
    assert rows[1].against.fastest == rows[0].id


@pytest.mark.parametrize("other", [{"readers": 2}, {"placement": Placement(binding="cores")}])
def test_readers_and_binding_are_part_of_the_question(run, other):
    run.proven(case_of(placement=Placement()))
    run.proven(case_of("caffempi", **{"placement": Placement(), **other}))
    assert [row.against for row in summarise(run.folder)] == [None, None]


def drifting(record):
    """The machine's speed in a round, which cases of other times know nothing of."""
    native = record["ranks"][0]["passes"]["native"]
    factor = (1.0, 1.25, 0.8)[record["repeat"]]
    native["step_s"] = [factor * seconds for seconds in native["step_s"]]
    native["wall_s"] *= factor


ONE_DAY, ANOTHER = {"session": "one"}, {"session": "another"}


@pytest.mark.parametrize(
    ("first", "later", "apart"),
    [
        (ONE_DAY, ONE_DAY, False),
        (ONE_DAY, ANOTHER, True),
        # Before sessions were kept:
        ({"started": "2026-11-20T23:59:00+00:00"}, {"started": "2026-11-20T09:00:00+00:00"}, False),
        ({"started": "2026-11-20T10:00:00+00:00"}, {"started": "2026-11-21T10:00:00+00:00"}, True),
    ],
)
def test_rounds_of_different_days_are_not_paired_and_the_row_says_so(run, capsys, first, later, apart):
    """A person runs, installs another framework, and runs again: its repeats have the same numbers."""
    cases = [run.proven(case_of(adapter), **about) for adapter, about in (("pytorch", first), ("caffempi", later))]
    for case in cases:
        run.changed(case, drifting)
    rows = summarise(run.folder)
    verdict = "shares the lead" if apart else "slower"  # 6 %, beside a machine whose speed changes by 20 %
    assert rows[1].against.verdict == verdict
    assert [("another time" in row.marks) for row in rows] == [False, apart]
    print_results(run.folder)
    assert ("1 row was measured at another time than the others" in capsys.readouterr().out) is apart
    assert ("most of its processes were measured at another time" in render(run.folder, rows)) is apart


def test_a_large_difference_shows_though_all_rows_of_one_framework_were_measured_later(run):
    run.proven(case_of(), **ONE_DAY)
    run.proven(case_of("caffempi"), slower=1.5, **ANOTHER)
    fast, slow = summarise(run.folder)
    assert (fast.against.verdict, slow.against.verdict, slow.comparable) == ("leads", "slower", True)


def test_a_round_that_a_resumed_run_measured_in_two_parts_is_the_only_one_lost(run):
    run.proven(case_of(), **ONE_DAY)
    resumed = run.proven(case_of("caffempi"), **ONE_DAY)
    run.changed(resumed, lambda record: record.update(ANOTHER), [2])
    first, second = summarise(run.folder)
    assert second.against.ratio.processes == 2
    assert "another time" not in first.marks + second.marks


def peaked(flop_per_s, bytes_per_s=1e10):
    def change(record):
        for rank in record["ranks"]:
            rank["peaks"] = {"flop_per_s": flop_per_s, "bytes_per_s": bytes_per_s, "library": "NumPy"}

    return change


def test_utilisation_is_beside_the_highest_peak_of_as_many_of_the_same_devices(run, capsys):
    digest = workloads()["alexnet"].graph().digest  # without the first layer's input gradient: nobody needs it
    cases = [case_of(adapter, ranks=2, data="synthetic", graph_digest=digest) for adapter in ("pytorch", "caffempi")]
    ours, theirs = map(run.proven, cases)
    lone = run.proven(case_of(data="synthetic"))
    run.changed(ours, peaked(4e10, 2e10), [0])
    run.changed(theirs, peaked(5e10), [0])
    found, other, single = summarise(run.folder)
    assert (found.peak.flop_per_s, found.peak.bytes_per_s) == (1e11, 4e10)
    assert other.peak == found.peak
    assert found.utilisation == pytest.approx(2 * (3 * 724_406_816 - 105_415_200) * found.rate.value / 1e11)
    assert found.to_dict()["model_flop_utilisation"] == found.utilisation
    shown = f"{100 * found.utilisation:.0f}"
    assert f">{shown}\u00a0%</td>" in render(run.folder, [found, other, single])
    print_results(run.folder, full=True)
    assert f"  {shown} %" in capsys.readouterr().out
    assert (single.id, single.peak, single.utilisation) == (lone.id, None, None)


def test_the_first_step_is_loaded_built_and_compiled_and_each_part_is_the_slowest_rank_s(run, capsys):
    case = run.proven(case_of(ranks=2))

    def started(record):
        for rank, load, build, first in zip(record["ranks"], (2.0, 3.0), (1.0, 0.5), (0.75, 4.25), strict=True):
            rank["joined"]["load_s"], rank["built"] = load + record["repeat"], {"seconds": build}
            timed = rank["passes"]["native"]
            steps = len(timed["step_s"])
            timed |= {"warmup_s": [first, 0.5, 0.25], "step_s": [0.25] * steps, "wall_s": 0.25 * steps}

    run.changed(case, started)
    row = run.only()
    assert row.startup == (4.0, 1.0, 4.0, 0.25)  # the middle one of three processes
    assert row.to_dict()["startup_seconds"] == {"loading": 4.0, "building": 1.0, "compiling": 4.0, "step": 0.25}
    assert "The first step ends after 9.25 s at most" in render(run.folder, [row])
    print_results(run.folder, full=True)
    shown = capsys.readouterr().out
    assert "loads 4.00 s, builds 1.00 s, compiles 4.00 s, a step 0.250 s" in shown
    print_results(run.folder)
    assert "compiles" not in capsys.readouterr().out
    run.changed(case, lambda record: record["ranks"][1].pop("built"))
    assert run.only().startup is None, "a rank keeps no time"


def test_the_time_that_devices_compute_is_what_input_leaves(run):
    read, resident = run.proven(case_of()), run.proven(case_of(data="synthetic"))

    def waiting(record):
        record["ranks"][0]["passes"]["resident"]["pairs_s"] = [[0.5, 0.375]] * 8

    run.changed(read, waiting)
    by_id = {row.id: row for row in summarise(run.folder)}
    assert by_id[read.id].computing_share == pytest.approx(0.75)
    assert by_id[read.id].to_dict()["input"]["computing_share"] == pytest.approx(0.75)
    assert by_id[resident.id].computing_share is None


def test_a_training_s_energy_is_that_of_its_epochs_on_all_hosts(run):
    case = case_of(passes=("train",), ranks=2, training=TRAINING)
    run.proven(case, ranks=[{**learner_of(0.0), "rank": rank} for rank in (0, 1)])

    def counted(record):
        for rank, host in zip(record["ranks"], ("a", "b"), strict=True):
            rank["hello"] |= {"host": host, "rank": rank["rank"], "world": 2}
            rank["joined"] |= {"rank": rank["rank"], "world": 2}
            for epoch, joules in zip(rank["training"]["epochs"], (200.0, 100.0), strict=True):
                epoch["host_use"] = {"seconds": 1.0, "busy_cpu_s": 1.0, "steal_cpu_s": 0.0, "cores": 2}
                epoch["host_use"]["cpu_joules"] = joules

    run.changed(case, counted)
    (lesson, *_) = run.only().lessons
    assert [epoch.joules for epoch in lesson.epochs] == [400.0, 200.0]
    assert lesson.target_epoch == 1
    assert lesson.target_joules == 400.0


def test_energy_is_counted_once_a_host_and_not_guessed(run):
    case = run.proven(case_of(ranks=2))

    def used(*joules):
        def change(record):
            use = {"seconds": 100.0, "busy_cpu_s": 1.0, "steal_cpu_s": 0.0, "cores": 2}
            for rank, (host, cpu) in zip(record["ranks"], joules, strict=True):
                rank["hello"]["host"] = host
                native = {**use, "cpu_joules": cpu}
                rank["noise"] = {"reference_before_s": [0.1], "reference_after_s": [0.1], "native": native}

        return change

    run.changed(case, used(("a", 100.0), ("a", 101.0)))
    row = run.only()
    assert row.joules_per_sample == pytest.approx(101.0 / row.processes[0].samples)
    assert "J a sample" in render(run.folder, [row])
    run.changed(case, used(("a", 100.0), ("b", 101.0)))
    assert run.only().joules_per_sample == pytest.approx(201.0 / row.processes[0].samples)
    run.changed(case, used(("a", 100.0), ("b", None)))
    assert run.only().joules_per_sample is None


def test_nodes_are_measured_against_one_node_with_as_many_devices(tmp_path):
    trained = [row for row in summarise(paper(tmp_path / "run")) if "staged" in row.case.passes]
    rows = [row for row in trained if (row.case.adapter, row.case.workload) == ("pytorch", "alexnet")]
    alexnet = {(row.case.placement.nodes, row.case.placement.ranks_per_node): row for row in rows}
    two, one = alexnet[2, 2], alexnet[1, 2]
    assert two.over_nodes.baseline_id == one.id
    assert two.over_nodes.efficiency.value == pytest.approx(two.rates.value / one.rates.value / 2, rel=0.02)
    assert two.scaling.efficiency.value == pytest.approx(two.rates.value / alexnet[1, 1].rates.value / 4, rel=0.02)
    assert one.over_nodes is None


def test_without_such_a_node_there_is_no_baseline(run):
    run.proven(case_of(ranks=4, placement=Placement(nodes=2, ranks_per_node=2)))
    run.proven(case_of())
    lonely, _ = summarise(run.folder)
    assert (lonely.scaling is not None, lonely.over_nodes) == (True, None)
