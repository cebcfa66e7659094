"""What cannot be a record of its case gives no figure, and is named."""

import json
import re
import shutil
from pathlib import Path

import pytest

from stagebench.suite.analysis import summary
from stagebench.suite.analysis.measured import process_of
from stagebench.suite.analysis.summary import summarise, unused_records
from stagebench.suite.contracts.case import Placement
from stagebench.suite.errors import RequestError, StoreError
from stagebench.suite.results.invariants import broken
from stagebench.suite.results.rank_report import Rank
from stagebench.suite.results.records import CaseEntry, Record
from stagebench.suite.results.run_folder import RunFolder
from stagebench.suite.results.stored import sealed
from stagebench.suite.worker.case_parts import Sampling
from stagebench.suite.worker.messages import HostUse, Noise, Pass
from tests.reports.made_comm import collective
from tests.reports.made_run import case_of, declared, learner_of, record_of
from tests.support.errors import raising
from tests.support.memory import little_memory

COMMUNICATION = max((Path(__file__).parents[1] / "fixtures" / "runs").iterdir()) / "comm"  # of the newest format
FULL = Sampling(processes=3)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda record: record.update(format=99), "format 99"),
        (lambda record: record.pop("ranks"), "ranks: Field required; it is measured again when the run goes on"),
        (lambda record: record.update(case_id="elsewhere"), "it holds repeat 1 of the case elsewhere, and its name is"),
        (lambda record: record.update(repeat=0), "it holds repeat 0 of the case"),
        (lambda record: record["case"].update(batch=16), "its case has other values than cases.json gives it"),
        (lambda record: record["ranks"].clear(), r"it has the ranks|its outcome is ok, and 0 of 1 ranks reported"),
        (lambda record: native(record).update(samples=7), "pass 'native': 7 samples in 50 steps of 8"),
        (lambda record: native(record).update(wall_s=1e-3), "its steps take .* s together, in 0.001 s of wall time"),
        (lambda record: native(record).update(wall_s=float("inf")), "is not readable JSON"),
        (lambda record: native(record).update(step_s=[], samples=0), "0 steps in"),
        (lambda record: native(record).update(wall_s=0.0), "50 steps in 0 s; there is one at least"),
        (lambda record: native(record)["step_s"].__setitem__(7, -1e-6), "50 steps in .* none takes less than no time"),
        (lambda record: native(record)["io_s"].pop(), "49 times of io_s for 50 steps"),
        (lambda record: native(record)["io_s"].__setitem__(7, -0.01), r"a time of io_s is -0\.01 s"),
        (lambda record: native(record)["io_s"].__setitem__(7, 99.0), "its waits for input take .* s together, in"),
        (lambda record: staged(record)["stage_s"]["update"].pop(), "49 times of update for 50 steps"),
        (lambda record: staged(record)["stage_s"].update(update=[1.0] * 50), "its stages take .* s together, in"),
        (lambda record: record["ranks"][0]["passes"].pop("native"), "rank 0: its outcome is ok, and it has no pass"),
        (lambda record: native(record).update(warmup_s=[-0.1]), "a step of its warm-up, .* took less than no time"),
        (lambda record: native(record).update(set_aside_s=[0.1, -0.1]), "one that was set aside, took less than"),
        (lambda record: staged(record).update(spans_s=[[5.0, 1.0]]), "a block of it began at 5 s and ended at 1 s"),
        (lambda record: of(record, "resident")["pairs_s"][3].__setitem__(1, 0.0), ": a block of steps took no time; "),
        (lambda record: record.update(seconds=1.0), "its passes take .* s together, and the whole process 1 s"),
        (lambda record: native(record).update(name="staged"), "it calls itself 'staged'"),
        (lambda record: record["ranks"].append(record["ranks"][0]), r"it has the ranks \[0, 0\], and its case has 1"),
        (lambda record: record.update(seconds=-1.0), "neither can be below 0"),
        (lambda record: heard(record, native={"seconds": 0}), "counted for 0 s on 2 cores during native"),
        (lambda record: heard(record, train={"cores": 0}), "counted for 9 s on 0 cores during train"),
        (lambda record: heard(record, reference_after_s=[0.0]), "its reference computation took no time; it is"),
        (lambda record: peaks(record, flop_per_s=0), "rank 0: its peaks are 0 FLOP/s and 1 bytes/s; it is measured"),
        (lambda record: peaks(record, bytes_per_s=-1), "rank 0: its peaks are 1 FLOP/s and -1 bytes/s"),
        (
            lambda record: record["ranks"][0].update(kernels={"stages": {"update": -1}, "rows": [], "profiler": "a"}),
            "rank 0: a kernel took less than no time",
        ),
    ],
)
def test_a_record_that_cannot_be_is_invalid_named_and_gives_no_figure(run, change, words):
    case = run.proven(case_of(sampling=FULL))
    run.changed(case, change, [1])
    row = run.only()
    assert [process.repeat for process in row.processes] == [0, 2]
    assert (row.outcome, row.marks) == ("invalid", ["incomplete"])
    assert re.search(words, row.reason), row.reason
    assert f"1 record skipped, invalid: {row.reason}" == unused_records(run.folder)


def of(record, name):
    return record["ranks"][0]["passes"][name]


def native(record):
    return of(record, "native")


def staged(record):
    return of(record, "staged")


USED = {"seconds": 9.0, "cores": 2, "busy_cpu_s": 1.0, "steal_cpu_s": 0.0}


def heard(record, **changes):
    """What a rank reports of its host, with some values changed."""
    use = {name: {**USED, **changes.pop(name)} for name in ("native", "train") if name in changes}
    record["ranks"][0]["noise"] = {"reference_before_s": [0.1], "reference_after_s": [0.1], **use, **changes}


def peaks(record, **changes):
    record["ranks"][0]["peaks"] = {"flop_per_s": 1, "bytes_per_s": 1, "library": "numpy", **changes}


STEP = {"samples": 8, "steady": True, "warmup_s": [], "step_s": [1.0], "wall_s": 1.0}


def possible(case=None, seconds=9.0, noise=None, **passes):
    """Whether a record may hold one rank with these passes; what is not given of a pass is of one step of a second."""
    made = {name: Pass(**{**STEP, "name": name, **change}) for name, change in passes.items()}
    rank = Rank(rank=0, passes=made, noise=noise)
    return broken(Record.model_validate(record_of(case or case_of(), 0, seconds=seconds, ranks=[rank]))) is None


@pytest.mark.parametrize(
    ("change", "holds"),
    [
        ({}, True),
        ({"step_s": [0.0]}, True),  # a clock may not tell two marks apart
        ({"step_s": [1.051]}, True),  # a device's clock may be 5 % and 1 ms off
        ({"step_s": [1.0511]}, False),
        ({"io_s": [1.051]}, True),
        ({"io_s": [1.0511]}, False),
        ({"io_s": [-0.001]}, True),
        ({"io_s": [-0.0011]}, False),
        ({"stage_s": {"forward": [0.5], "backward": [0.5509]}}, True),
        ({"stage_s": {"forward": [0.5], "backward": [0.5511]}}, False),
        ({"pairs_s": [[1e-9, 1.0]]}, True),
        ({"warmup_s": [0.5, 0.501]}, False),  # 2.001 s of a process that took 1.9
        ({"warmup_s": [0.5, 0.495]}, True),
        ({"pairs_s": [[0.9, 1.0]]}, True),
        ({"pairs_s": [[1.1, 1.0]]}, False),  # 2.1 s with the native steps, of 1.9
        ({"step_s": [0.5], "wall_s": 1.5}, True),  # it waits for its device, a second or as often as its warm-up says
        ({"step_s": [0.4], "wall_s": 1.5}, False),
        ({"step_s": [0.4], "wall_s": 1.5, "warmup_s": [0.1]}, True),
        ({"step_s": [0.1], "wall_s": 1.5, "warmup_s": [0.2, 0.01, 0.01]}, False),
        ({"spans_s": [[5.0, 6.05]]}, True),
        ({"spans_s": [[5.0, 6.06]]}, False),
        ({"spans_s": [[5.0, 5.5], [8.0, 8.5]]}, True),
        ({"spans_s": [[5.0, 5.5], [8.0, 8.4]]}, False),
        ({"step_s": [0.5, 0.5], "samples": 16}, True),
        ({"step_s": [0.5, 0.5], "samples": 15}, False),
    ],
)
def test_where_the_bounds_of_a_pass_are(change, holds):
    assert possible(seconds=1.9, native=change) == holds


HUNDRED = {"samples": 800, "warmup_s": [0.01] * 8, "step_s": [0.01] * 100}  # a second; 2 parts of 50 steps at most
LONG = {"samples": 32, "warmup_s": [0.6] * 8, "step_s": [0.6] * 4}  # each step is a part
PAIRS = {"pairs_s": [[0.01, 0.01]] * 4}


@pytest.mark.parametrize(
    ("device", "change", "wall_s", "holds"),
    [
        ("cpu", HUNDRED, 2.08, True),  # 5 % and a second more, and two steps in each part
        ("cpu", HUNDRED, 2.10, False),
        ("cpu", {**HUNDRED, **PAIRS}, 2.12, True),  # a block in each round
        ("cpu", {**HUNDRED, **PAIRS}, 2.14, False),
        ("cpu", {**HUNDRED, "warmup_s": [0.0]}, 2.04, True),
        ("cpu", {**HUNDRED, "warmup_s": [0.0]}, 2.06, False),
        ("cpu", LONG, 8.2, True),
        ("cpu", LONG, 8.4, False),
        ("cuda", HUNDRED, 7.0, True),
        ("cuda", HUNDRED, 7.1, False),
    ],
)
def test_a_pass_on_a_cpu_takes_no_longer_than_its_steps(device, change, wall_s, holds):
    case = case_of(placement=Placement(device=device))
    assert possible(case, 99.0, native={**change, "wall_s": wall_s}) == holds


TURN, TAKING_TURNS = {"pairs_s": [[1.0, 1.0]]}, case_of(passes=("compute_only", "comm_only"))
USE = HostUse(seconds=1.0, cores=2, busy_cpu_s=1.0, steal_cpu_s=0.0)
SEEN = Noise(reference_before_s=(), reference_after_s=(), native=USE)


@pytest.mark.parametrize(
    ("good", "bad"),
    [
        # A second of native steps, of steps without exchange, and of exchanges: all three took turns.
        ({"case": TAKING_TURNS, "seconds": 3.1, "compute_only": TURN, "comm_only": TURN}, {"seconds": 2.8}),
        # A rank consumes a batch for each of its devices.
        ({"case": case_of(placement=Placement(devices=2)), "native": {"samples": 16}}, {"native": {}}),
        # The system saw all of the native steps.
        ({"noise": SEEN, "native": {"wall_s": 1.05}}, {"native": {"wall_s": 1.06}}),
    ],
)
def test_what_else_bounds_a_record(good, bad):
    assert possible(**good)
    assert not possible(**{**good, **bad})


def test_a_proof_stands_in_its_own_place_and_as_it_was_written(run):
    run.proven(case_of(), repeats=1)
    (path,) = (run.folder.path / "proofs").glob("*.json")
    proof = run.folder.proofs()[path.stem]
    run.folder.write_proof(proof)
    assert run.folder.proofs()[path.stem].passed
    whole = path.read_text()
    emptied = {**json.loads(whole), "passed": False, "digest": ""}
    for changed in (whole.replace('"passed": true', '"passed": false', 1), json.dumps(emptied)):
        path.write_text(changed)
        with pytest.raises(StoreError, match=r"was changed .*rows that"):
            summarise(run.folder)
    path.write_text(whole)
    shutil.copy(path, path.with_name("other.json"))
    with pytest.raises(StoreError, match=f"other.json: .*{proof.key}"):
        summarise(run.folder)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, r"it belongs to another run \([0-9a-f]{32}\); it is measured again"),
        ({"reason": "corrected"}, "it was changed after it was written: its digest is another one"),
        ({"digest": "", "run": "", "plan": ""}, "it was changed after it was written: its digest is another one"),
        ({"digest": "", "run": "", "plan": "", "format": 2}, "has format 2, and this stagebench reads format"),
        ({"digest": "", "run": "", "plan": "", "method": 1}, "it was changed after it was written: its digest is"),
    ],
)
def test_a_run_of_another_id_and_method_does_not_vouch_for_these_records(run, changes, words):
    case = run.proven(case_of(sampling=FULL), repeats=1)
    for name, change in ((f"records/{case.id}-r0.json", changes), ("run.json", {"method": 1, "id": "another"})):
        path = run.folder.path / name
        path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    row = summarise(RunFolder.open(run.folder.path))[0]
    assert row.outcome == "invalid"
    assert re.search(words, row.reason), row.reason


def test_a_run_without_its_id_or_its_plan_cannot_vouch_for_its_records(run):
    run.proven(case_of(), repeats=1)
    (run.folder.path / "plan.toml").unlink()
    (row,) = summarise(RunFolder.open(run.folder.path))
    assert "it belongs to a plan, and there is no plan.toml; it is measured again when the run goes on" in row.reason
    run.proven(case_of(), repeats=1)
    path = run.folder.path / "run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "id": ""}))
    with pytest.raises(StoreError, match="held against"):
        summarise(RunFolder.open(run.folder.path))


EPOCH = {"train_s": 1.0, "test_s": 0.0, "samples": 16, "steps": 2, "accuracy": 0.5, "loss": 1.0}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"losses": [1.0]}, "its losses, their steps and their times are not as many"),
        ({"loss_steps": [2, 1]}, "go backwards"),
        ({"loss_s": [0.2, 0.1]}, "go backwards"),
        ({"loss_s": [-0.2, 0.1]}, "go backwards"),
        ({"epochs": [{**EPOCH, "train_s": -1.0}]}, "its epochs take from -1 s"),
        ({"epochs": [{**EPOCH, "train_s": 99.0}]}, "99 s together, and the whole"),
        ({"open_s": -1.0}, "its input was opened in -1 s, and the whole process took 9 s"),
        ({"open_s": 99.0}, "its input was opened in 99 s, and the whole process took 9 s"),
        ({"epochs": [{**EPOCH, "train_s": 0.0}]}, "some samples took no time"),
        ({"epochs": [{**EPOCH, "samples": -8}]}, "no samples"),
        ({"epochs": [{**EPOCH, "samples": 24}]}, "24 samples in an epoch of 2 steps of 8"),
    ],
)
def test_a_training_that_cannot_be(change, words):
    learnt = {"epochs": [], "loss_steps": [1, 2], "losses": [1.0, 0.5], "loss_s": [0.1, 0.2]}

    def problem(**changes):
        ranks = [{"rank": 0, "training": {**learnt, **changes}}]
        return broken(Record.model_validate(record_of(case_of(), 0, seconds=9.0, ranks=ranks)))

    # Asynchronous workers may be at the same step.
    assert [problem(), problem(epochs=[EPOCH]), problem(loss_steps=[1, 1])] == [None] * 3
    assert words in problem(**change)


@pytest.mark.parametrize(("outcome", "shown"), [("ok", "invalid"), ("crash", "crash")])
def test_a_training_without_an_epoch_is_no_success(run, outcome, shown):
    learner = learner_of(0.0)
    learner["training"]["epochs"] = []
    run.proven(case_of(passes=("train",), sampling=FULL), outcome=outcome, ranks=[learner])
    row = run.only()
    assert row.outcome == shown
    assert outcome == "crash" or "rank 0: its outcome is ok, and it trained for no epoch; it is measured" in row.reason
    assert json.dumps(row.to_dict())


WHOLE = {"mean": 1, "max": 1, "steps": 1}


@pytest.mark.parametrize(
    "note", [{"steps": 1}, {**WHOLE, "mean": "x"}, {**WHOLE, "mean": 10**400}, {**WHOLE, "max": True}, 7]
)
def test_what_an_adapter_notes_ends_no_report(run, note):
    case = run.proven(case_of(sampling=FULL))
    run.changed(case, lambda record: record["ranks"][0]["notes"].update(staleness=note), [0])
    row = run.only()
    assert (row.outcome, row.staleness) == ("ok", None)


def test_a_record_of_which_no_figures_come_is_named(run, monkeypatch):
    """Whatever the invariants miss."""
    case = run.proven(case_of(sampling=FULL))

    def fails(record, method):
        return {}["figure"] if record.repeat == 1 else process_of(record, method)

    monkeypatch.setattr(summary, "process_of", fails)
    row = run.only()
    assert (row.outcome, [process.repeat for process in row.processes]) == ("invalid", [0, 2])
    assert row.reason == (
        f"records/{case.id}-r1.json: no figures come of its values (KeyError: 'figure'); it is measured again when the "
        "run goes on"
    )
    assert f"1 record skipped, invalid: {row.reason}" == unused_records(run.folder)


def test_a_case_of_too_many_ranks_is_refused_at_once(run):
    for counts in ({"nodes": 10**9, "ranks_per_node": 10**9}, {"ranks_per_node": 10**5, "devices": 10**5}):
        with little_memory(1 << 28), pytest.raises(ValueError, match="of devices"):
            CaseEntry.model_validate({"id": "a", "case": case_of(placement=Placement(**counts))})
    many = case_of(placement=Placement(nodes=10**9))
    record = Record.model_validate(record_of(case_of(), 0, outcome="crash")).but(case=many, case_id=many.id)
    with little_memory(1 << 28):
        assert broken(record) is None
    with pytest.raises(ValueError, match="1,000,000,000,000"):
        collective("gloo", counts=(10**30,))


def test_ranks_that_took_different_steps_are_invalid_but_readers_may(run):
    case = run.proven(case_of(ranks=2, sampling=FULL))

    def shorter(name):
        def change(record):
            found = record["ranks"][1]["passes"][name]
            found["samples"] -= 8
            for times in (found["step_s"], found.get("io_s") or [0.0]):
                times.pop()

        return change

    run.changed(case, shorter("io_only"), [0])
    assert run.only().outcome == "ok", run.only().reason
    run.changed(case, shorter("native"), [0])
    assert "its ranks took 49 and 50 steps in the pass 'native'" in run.only().reason


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


def test_a_record_of_another_plan_is_invalid(run):
    case = run.proven(case_of(sampling=FULL))
    path = run.folder.path / "records" / f"{case.id}-r1.json"
    path.write_text(sealed(json.dumps({**json.loads(path.read_text()), "plan": "f" * 32, "digest": ""})))
    assert "it belongs to another plan" in run.only().reason


def test_a_run_that_calls_itself_another_one_is_not_measured_again(run):
    """Whoever damaged run.json: every record would seem to be somebody else's."""
    run.proven(case_of(sampling=FULL))
    own = run.folder.about
    run.folder.create(own)
    run.folder.write_about(own.but(id="f" * 32))
    with raising(RequestError, "f" * 32, 3, own.id):
        run.folder.create(own)
    run.folder.write_about(own)
    run.folder.create(own)


def test_ranks_that_wait_for_each_other_take_as_many_steps(run):
    case = case_of(ranks=2, passes=("train",), sampling=FULL)
    first, second = learner_of(0.0), {**learner_of(0.0), "rank": 1}
    for key in ("loss_steps", "losses"):
        second["training"][key].pop()
    run.proven(case, repeats=1, ranks=[first, second])
    assert "json: its ranks trained for different numbers of epochs or steps; " in run.only().reason
    for synchronous, outcome in ((True, "invalid"), (False, "ok")):
        said = {**declared(), "synchronous": synchronous}
        run.changed(case, lambda record, said=said: record.update(declared=said), [0])
        assert run.only().outcome == outcome, run.only().reason
    assert run.only().lessons[0].seconds_then == (), "nobody kept when a loss came"


def test_repeats_beyond_the_plan_s_count_and_records_of_an_older_resolution_are_skipped_and_named(run):
    case = run.proven(case_of(), repeats=5)  # `run --until` makes more of them than the plan's three
    assert (run.only().outcome, run.only().answers) == ("ok", 5)
    assert unused_records(run.folder) is None
    record = run.folder.record(case.id, 0)
    for old in ("0" * 12, "1" * 12):
        run.folder.write_record(record.but(case_id=old))
    assert len(run.only().processes) == 5
    named = "000000000000-r0.json, 111111111111-r0.json"
    assert unused_records(run.folder) == f"2 records skipped, of no case of this plan: {named}"


def second(change):
    """A change to the first row of the second rank alone."""
    return lambda ranks: change(ranks[1]["exchanges"][0])


def every(change):
    """A change to the rows of each rank."""
    return lambda ranks: [change(rank["exchanges"]) for rank in ranks]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (second(lambda row: row.update(operation="gossip")), "row 0 is of 'gossip', its case of all-reduce"),
        (second(lambda row: row.update(bytes=3)), "row 0 is not of as many bytes on every rank"),
        (second(lambda row: row["sample_s"].pop()), "row 0 (has more of some times than|is not of the same samples)"),
        (second(lambda row: row.update(late_s=row["sample_s"][:1])), "row 0 has more of some times than of others"),
        (second(lambda row: row["sample_s"].__setitem__(0, 0.0)), "row 0 has no samples, or some that took no time"),
        (every(lambda rows: rows[0].update(bytes=12)), r"rank 0: messages of \[12, .* and its case has"),
        (every(lambda rows: rows.pop(0)), "rank 0: messages of .* and its case has"),
        (every(lambda rows: rows.append({"bytes": [4]})), r"rank 0: messages of \[4\] bytes were skipped"),
    ],
)
def test_a_record_of_communication_that_cannot_be_gives_no_figure(tmp_path, change, words):
    run = RunFolder(shutil.copytree(COMMUNICATION, tmp_path / "run"))
    before = list(run.records())
    record = next(each for each in before if not each.case.collective.tensors)
    path = run.path / "records" / f"{record.case_id}-r{record.repeat}.json"
    content = json.loads(path.read_text())
    change(content["ranks"])
    path.write_text(sealed(json.dumps({**content, "digest": ""})))
    assert len(list(run.records())) == len(before) - 1
    (reason,) = run.unusable()
    assert re.search(words, reason)
