import json
import re
import shutil

import pytest

from reports.site import render
from suite.analysis.comparison import DISQUALIFYING, NOTED
from suite.analysis.summary import left_out, summarise
from suite.cli.show import print_results
from suite.contracts.case import Placement, Sampling
from suite.results.records import METHOD
from suite.results.stored import sealed
from tests.reports.made_run import MadeRun, case_of, learner_of, proof_of, record_of

FULL = Sampling(processes=3)


@pytest.fixture
def run(tmp_path):
    return MadeRun(tmp_path / "run")


def only(run):
    (row,) = summarise(run.folder)
    return row


def changed(run, case, change, repeat=1):
    """Rewrite one record of a case."""
    run.changed(case, change, [repeat])


def test_the_rate_is_all_samples_over_the_slowest_ranks_wall(run):
    case = run.proven(case_of(ranks=2, sampling=Sampling(processes=1)), repeats=1)

    def known(record):
        for rank, wall in zip(record["ranks"], (2.0, 4.0), strict=True):
            rank["passes"]["native"] |= {"step_s": [wall / 10] * 10, "io_s": [0.0] * 10, "wall_s": wall, "samples": 80}

    changed(run, case, known, repeat=0)
    row = only(run)
    assert row.rate.value == pytest.approx(160 / 4.0)
    assert row.rate_per_device.value == pytest.approx(20.0)
    assert row.processes[0].rate == pytest.approx(40.0)


def test_a_good_row_has_no_marks(run):
    run.proven(case_of(sampling=FULL))
    row = only(run)
    assert (row.outcome, row.marks, row.comparable) == ("ok", [], True)
    assert row.rate.low < row.rate.value < row.rate.high
    assert row.budget.native > 0
    assert row.proof.passed


def nothing(record):
    pass


def unsteady(record):
    record["ranks"][0]["passes"]["native"]["steady"] = False


def subnormal(record):
    record["ranks"][0]["notes"]["subnormal"] = "0.5 % of the parameters"


def unsteady_elsewhere(record):
    record["ranks"][0]["passes"]["io_only"]["steady"] = False


def lost_rank(record):
    record["ranks"] = []


def wrong_world(record):
    record["ranks"][0]["joined"]["world"] = 7


def nan_loss(record):
    record["ranks"][0]["passes"]["staged"]["loss"] = None


def nan_loss_without_exchange(record):
    passes = record["ranks"][0]["passes"]
    passes["compute_only"] = {**passes["native"], "name": "compute_only", "loss": None}


def slow_stages(record):
    stages = record["ranks"][0]["passes"]["staged"]["stage_s"]
    stages["forward"] = [3 * seconds for seconds in stages["forward"]]


def older_method(record):
    record["method"] = METHOD - 1


def other_proof(record):
    record["proof"] = "somebody-elses"


def other_processor(record):
    for rank in record["ranks"]:
        rank["hello"]["machine"] = {**(rank["hello"].get("machine") or {}), "cpu": "another"}


def crowded(record):
    use = {
        "seconds": 2.0,
        "cores": 2,
        "busy_cpu_s": 3.0,
        "own_cpu_s": 2.0,
        "steal_cpu_s": 0.0,
        "involuntary_switches": 9,
    }
    record["ranks"][0]["noise"] = {"reference_before_s": [0.01], "reference_after_s": [0.01], "native": use}


@pytest.mark.parametrize(
    ("change", "sampling", "repeats", "marks"),
    [
        (nothing, Sampling(quick=True, processes=3), 3, ["quick"]),
        (nothing, FULL, 2, ["incomplete"]),
        (nothing, FULL, 1, ["incomplete", "one process"]),
        (unsteady_elsewhere, FULL, 3, ["unsteady breakdown"]),
        (subnormal, FULL, 3, ["subnormal"]),
        (wrong_world, FULL, 3, ["missing rank"]),
        (nan_loss, FULL, 3, ["non-finite loss"]),
        (nan_loss_without_exchange, FULL, 3, []),
        (other_proof, FULL, 3, ["no proof"]),
        (other_processor, FULL, 3, ["proof of another machine"]),
        (crowded, FULL, 3, ["disturbed"]),
        (older_method, FULL, 3, ["other method"]),
        (slow_stages, Sampling(processes=1), 1, ["large residual", "one process"]),
    ],
)
def test_marks(run, change, sampling, repeats, marks):
    case = run.proven(case_of(sampling=sampling), repeats=repeats)
    changed(run, case, change, repeat=0)
    row = only(run)
    assert row.marks == marks
    assert row.comparable == (not set(marks) & set(DISQUALIFYING))
    assert set(marks) <= {*DISQUALIFYING, *NOTED}


@pytest.mark.parametrize(("core_of", "marks"), [([0, 1], []), ([0, 0], ["more threads than cores"]), ([], [])])
def test_two_threads_of_one_core_are_more_threads_than_cores(run, core_of, marks):
    case = run.proven(case_of(ranks=2, sampling=FULL))

    def on_cores(record):
        for rank in record["ranks"]:
            rank["hello"] |= {"cores": [0, 4], "core_of": core_of}

    changed(run, case, on_cores)
    row = only(run)
    assert (row.marks, row.comparable) == (marks, True)


def of_method(run, method, *cases):
    """Let a run be measured by another method."""
    run.folder.write_about(run.folder.about.but(method=method))
    for case in cases:
        run.changed(case, lambda record: record.update(method=method))


def drifting(record):
    """Every step is measured later than the one before, and is 0.4 % quicker."""
    native = record["ranks"][0]["passes"]["native"]
    native["step_s"] = [seconds * 0.996**step for step, seconds in enumerate(native["step_s"])]


@pytest.mark.parametrize(
    ("method", "repeats", "marks"),
    [(2, (0, 1, 2), ["trend"]), (2, (0, 1), []), (1, (0, 1, 2), [])],
)
def test_a_row_whose_processes_all_drift_is_marked(run, method, repeats, marks):
    case = run.proven(case_of(sampling=FULL))
    of_method(run, method, case)
    run.changed(case, drifting, repeats)
    assert only(run).marks == marks


@pytest.mark.parametrize(("method", "marks"), [(1, ["unsteady"]), (2, [])])
def test_unsteady_is_what_method_1_called_noise(run, method, marks):
    case = run.proven(case_of(sampling=FULL))
    of_method(run, method, case)
    changed(run, case, unsteady)
    assert only(run).marks == marks


def test_a_run_of_an_older_method_is_compared_within_itself(run):
    of_method(run, 1, run.proven(case_of()), run.proven(case_of("caffempi"), slower=2.0))
    assert [row.against.verdict for row in summarise(run.folder)] == ["leads", "slower"]


def test_a_failed_proof_disqualifies(run):
    case = case_of(sampling=FULL)
    run.add(case, proof=proof_of(case, passed=False))
    row = only(run)
    assert row.marks == ["proof failed"]
    assert not row.comparable


def test_no_proof_says_why(run):
    run.add(case_of())
    assert only(run).proof_reason == "proofs were switched off for this run"


def test_one_failed_process_decides_the_outcome_but_not_the_speed(run):
    case = run.proven(case_of())
    run.write(
        f"records/{case.id}-r1.json", record_of(case, 1, proof_of(case), outcome="oom", reason="no memory", ranks=[])
    )
    row = only(run)
    assert (row.outcome, row.reason) == ("oom", "no memory")
    assert len(row.measured) == 2
    assert "incomplete" in row.marks


def test_cases_without_records(run):
    run.refuse(case_of(), "unsupported", "not here")
    run.refuse(case_of(ranks=2), None, "")
    first, second = summarise(run.folder)
    assert (first.outcome, first.reason) == ("unsupported", "not here")
    assert second.outcome == "not measured"
    assert first.rate is None
    assert second.budget is None


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


def test_more_than_ideal_is_flagged(run):
    run.proven(case_of(), slower=3.0)
    run.proven(case_of(ranks=2))
    assert summarise(run.folder)[1].scaling.super_linear


def test_no_baseline_no_efficiency(run):
    run.proven(case_of(batch=16))
    run.proven(case_of(ranks=2))
    assert summarise(run.folder)[1].scaling is None


def test_only_comparable_rows_of_one_group_are_compared(run):
    run.proven(case_of())
    run.proven(case_of("caffempi"), slower=2.0)
    run.add(case_of("reference"), slower=0.01)  # no proof: does not win
    run.proven(case_of("caffempi", batch=16))
    leader, slower, unproven, alone = summarise(run.folder)
    assert leader.against.verdict == "leads"
    assert slower.against.verdict == "slower"
    assert slower.against.ratio.value == pytest.approx(0.47, abs=0.02)
    assert slower.against.fastest == leader.id
    assert unproven.against is None
    assert alone.against is None


def declared_as(synchronous):
    return {
        "synchronous": synchronous,
        "knob_defaults": {},
        "separable": [],
        "model_parallel_size": 1,
        "microbatches": 1,
    }


def test_what_is_no_synchronous_training_never_leads_those_that_are(run):
    run.proven(case_of(ranks=2), declared=declared_as(True))
    run.proven(case_of("caffempi", ranks=2), declared=declared_as(True), slower=2.0)
    one_bit = {"ranks": 2, "strategy": "one_bit_sgd", "knobs": {}}
    run.proven(case_of("cntk", **one_bit), declared=declared_as(False), slower=0.1)
    run.proven(case_of("other", **one_bit), declared=declared_as(False), slower=0.2)
    run.proven(case_of("cntk", **{**one_bit, "strategy": "block_momentum"}), declared=declared_as(False), slower=0.1)
    rows = summarise(run.folder)
    assert [row.against and row.against.verdict for row in rows] == ["leads", "slower", "leads", "slower", None]
    assert rows[1].against.fastest == rows[0].id


@pytest.mark.parametrize("other", [{"readers": 2}, {"placement": Placement(binding="cores")}])
def test_readers_and_binding_are_part_of_the_question(run, other):
    run.proven(case_of(placement=Placement()))
    run.proven(case_of("caffempi", **{"placement": Placement(), **other}))
    assert [row.against for row in summarise(run.folder)] == [None, None]


def test_rows_are_json(run):
    run.proven(case_of())
    run.proven(case_of("caffempi", ranks=2))
    run.refuse(case_of(ranks=4), None, "")
    rows = json.loads(json.dumps([row.to_dict() for row in summarise(run.folder)], allow_nan=False))
    assert rows[0]["samples_per_second"]["value"] > 0
    assert rows[1]["layers"][0]["layer"] == "conv1"
    assert rows[2]["samples_per_second"] is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda record: record.update(format=99), "format 99"),
        (lambda record: record.pop("ranks"), "ranks: Field required; it is measured again when the run goes on"),
        (lambda record: record["ranks"][0].update(passes=[]), r"ranks\.0\.passes: .*; it is measured again"),
        (lambda record: record.update(case_id="elsewhere"), "it holds repeat 1 of the case elsewhere, and its name is"),
        (lambda record: record.update(repeat=0), "it holds repeat 0 of the case"),
        (lambda record: record.update(outcome="fine"), "outcome: Input should be 'ok', "),
        (lambda record: record["case"].update(batch=16), "its case has other values than cases.json gives it"),
        (lost_rank, r"it has the ranks|its outcome is ok, and 0 of 1 ranks reported"),
        (lambda record: native(record).update(samples=7), "pass 'native': 7 samples in 50 steps of 8"),
        (lambda record: native(record).update(wall_s=1e-3), "its steps take .* s together, in 0.001 s of wall time"),
        (lambda record: native(record).update(wall_s=float("inf")), "is not readable JSON"),
        (lambda record: native(record).update(step_s=[], samples=0), "0 steps in"),
        (lambda record: native(record)["io_s"].pop(), "49 times of io_s for 50 steps"),
        (lambda record: native(record).update(name="staged"), "it calls itself 'staged'"),
        (lambda record: record["ranks"].append(record["ranks"][0]), r"it has the ranks \[0, 0\], and its case has 1"),
        (lambda record: record.update(seconds=-1.0), "neither can be below 0"),
    ],
)
def test_a_record_that_cannot_be_is_invalid_named_and_gives_no_figure(run, change, words):
    case = run.proven(case_of(sampling=FULL))
    changed(run, case, change)
    row = only(run)
    assert (row.outcome, [process.repeat for process in row.processes], row.marks) == (
        "invalid",
        [0, 2],
        ["incomplete"],
    )
    assert re.search(words, row.reason), row.reason
    assert f"1 record is invalid; left out: {row.reason}" == left_out(run.folder)


def native(record):
    return record["ranks"][0]["passes"]["native"]


def test_a_record_in_another_s_place_counts_nowhere_else(run):
    one, other = run.proven(case_of(sampling=FULL)), run.proven(case_of(batch=16, sampling=FULL))
    rates = [row.rate.value for row in summarise(run.folder)]
    records = run.folder.path / "records"
    shutil.copy(records / f"{one.id}-r0.json", records / f"{other.id}-r1.json")  # over another case's
    shutil.copy(records / f"{one.id}-r0.json", records / f"{one.id}-r3.json")  # a process more
    rows = summarise(run.folder)
    assert [row.outcome for row in rows] == ["invalid", "invalid"]
    assert [row.answers for row in rows] == [3, 2]
    assert rows[0].rate.value == rates[0]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"run": "f" * 32}, "it belongs to another run"),
        ({"plan": "f" * 32}, "it belongs to another plan"),
    ],
)
def test_a_record_of_another_run_or_plan_is_invalid(run, change, words):
    case = run.proven(case_of(sampling=FULL))
    path = run.folder.path / "records" / f"{case.id}-r1.json"
    record = {**json.loads(path.read_text()), **change, "digest": ""}
    path.write_text(sealed(json.dumps(record)))
    assert words in only(run).reason


@pytest.mark.parametrize("change", [{"reason": "corrected"}, {"digest": "", "run": "", "plan": ""}])
def test_a_record_that_was_changed_by_hand_is_invalid(run, change):
    case = run.proven(case_of(sampling=FULL))
    path = run.folder.path / "records" / f"{case.id}-r1.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    assert "it was changed after it was written: its digest is another one" in only(run).reason


def test_losses_without_their_steps_are_invalid(run):
    case = case_of(passes=("train",), sampling=FULL)
    learner = learner_of(0.0)
    learner["training"]["losses"].pop()
    run.proven(case, ranks=[learner])
    assert "its losses, their steps and their times are not as many" in only(run).reason


def test_a_repeat_beyond_the_plan_s_is_a_process_like_any_other(run):
    """`run --until` makes more of them."""
    run.proven(case_of(sampling=FULL), repeats=5)
    assert (only(run).outcome, only(run).answers) == ("ok", 5)


def test_records_of_an_older_resolution_are_left_out_and_named(run):
    case = run.proven(case_of())
    assert left_out(run.folder) is None
    record = run.folder.record(case.id, 0)
    for old in ("0" * 12, "1" * 12):
        run.folder.write_record(record.but(case_id=old))
    assert len(only(run).processes) == 3
    assert left_out(run.folder) == (
        "2 records belong to no case of this plan; left out: 000000000000-r0.json, 111111111111-r0.json"
    )


def test_unreadable_json_is_named(run):
    case = run.proven(case_of())
    path = run.folder.path / "records" / f"{case.id}-r1.json"
    path.write_text(path.read_text()[:100])
    row = only(run)
    assert row.outcome == "invalid"
    assert f"records/{case.id}-r1.json is not readable JSON" in row.reason


def peaked(flop_per_s, bytes_per_s=1e10):
    def change(record):
        for rank in record["ranks"]:
            rank["peaks"] = {"flop_per_s": flop_per_s, "bytes_per_s": bytes_per_s, "library": "NumPy"}

    return change


def test_utilisation_is_beside_the_highest_peak_of_as_many_of_the_same_devices(run, capsys):
    ours, theirs = (run.proven(case_of(adapter, ranks=2, data="synthetic")) for adapter in ("pytorch", "caffempi"))
    lone = run.proven(case_of(data="synthetic"))
    run.changed(ours, peaked(4e10, 2e10), [0])
    run.changed(theirs, peaked(5e10), [0])
    found, other, single = summarise(run.folder)
    assert (found.peak.flop_per_s, found.peak.bytes_per_s) == (1e11, 4e10)
    assert other.peak == found.peak
    assert found.utilisation == pytest.approx(6 * 714_188_480 * found.rate.value / 1e11)
    assert found.to_dict()["model_flop_utilisation"] == found.utilisation
    shown = f"{100 * found.utilisation:.0f}"
    assert f"{shown} % of peak" in render(run.folder, [found, other, single])
    print_results(run.folder)
    assert f"  {shown}%" in capsys.readouterr().out
    assert (single.id, single.peak, single.utilisation) == (lone.id, None, None)


def test_energy_is_counted_once_a_host_and_not_guessed(run):
    case = run.proven(case_of(ranks=2))

    def used(*joules):
        def change(record):
            use = {"seconds": 1.0, "involuntary_switches": 0, "busy_cpu_s": 1.0, "steal_cpu_s": 0.0, "cores": 2}
            for rank, (host, cpu) in zip(record["ranks"], joules, strict=True):
                rank["hello"]["host"] = host
                native = {**use, "cpu_joules": cpu, "gpu_joules": 60.0 if cpu else None}
                rank["noise"] = {"reference_before_s": [0.1], "reference_after_s": [0.1], "native": native}

        return change

    run.changed(case, used(("a", 100.0), ("a", 101.0)))
    row = only(run)
    assert row.joules_per_sample == pytest.approx(161.0 / row.processes[0].samples)
    assert "J a sample" in render(run.folder, [row])
    run.changed(case, used(("a", 100.0), ("b", 101.0)))
    assert only(run).joules_per_sample == pytest.approx(321.0 / row.processes[0].samples)
    run.changed(case, used(("a", 100.0), ("b", None)))
    assert only(run).joules_per_sample is None
