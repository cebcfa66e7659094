"""What marks a row, and so keeps it out of comparisons."""

import pytest

from stagebench.suite.analysis.comparability import DISQUALIFYING, NOTED, group
from stagebench.suite.analysis.measured import wall_of
from stagebench.suite.analysis.summary import summarise
from stagebench.suite.contracts.case import Placement
from stagebench.suite.results.machines import moved
from stagebench.suite.results.records import METHOD
from stagebench.suite.worker.case_parts import Sampling
from stagebench.suite.worker.messages import Pass
from tests.reports.made_run import case_of

FULL = Sampling(processes=3)
CARD = "GPU {}: NVIDIA H100 (UUID: GPU-{})"


def put(value, *path):
    """A change to a record: this value in that place."""

    def change(record):
        for key in path[:-1]:
            record = record[key]
        record[path[-1]] = value

    return change


OF_RANK = ("ranks", 0)
PASSES = (*OF_RANK, "passes")


def nan_loss_without_exchange(record):
    passes = record["ranks"][0]["passes"]
    passes["compute_only"] = {**passes["native"], "name": "compute_only", "loss": None}


def slow_stages(record):
    staged = record["ranks"][0]["passes"]["staged"]
    staged["stage_s"]["forward"] = [3 * seconds for seconds in staged["stage_s"]["forward"]]
    staged["step_s"] = [3 * seconds for seconds in staged["step_s"]]
    staged["wall_s"] *= 3


def on(cpu="A", cores=2, gpus=(), **more):
    """Ranks that report this machine."""

    def change(record):
        for rank in record["ranks"]:
            rank["hello"] |= {"machine": {"cpu": cpu, "gpus": list(gpus), **more}, "host_cores": cores}

    return change


def used(seconds):
    """What a host was used for: a quarter of its cores by others."""
    return {"seconds": seconds, "cores": 2, "busy_cpu_s": 1.5 * seconds, "own_cpu_s": seconds, "steal_cpu_s": 0.0}


QUIET = {"reference_before_s": [0.01], "reference_after_s": [0.01]}


@pytest.mark.parametrize(
    ("change", "sampling", "repeats", "marks"),
    [
        (put(0, "repeat"), Sampling(quick=True, processes=3), 3, ["quick"]),
        (put(0, "repeat"), FULL, 2, ["incomplete"]),
        (put(0, "repeat"), FULL, 1, ["incomplete", "one process"]),
        (put(False, *PASSES, "io_only", "steady"), FULL, 3, ["unsteady breakdown"]),
        (put(used(10.0), *PASSES, "staged", "host_use"), FULL, 3, ["disturbed breakdown"]),
        (put("0.5 % of the parameters", *OF_RANK, "notes", "subnormal"), FULL, 3, ["subnormal"]),
        (put(7, *OF_RANK, "joined", "world"), FULL, 3, ["missing rank"]),
        (put(None, *PASSES, "staged", "loss"), FULL, 3, ["non-finite loss"]),
        (nan_loss_without_exchange, FULL, 3, []),
        (put("somebody-elses", "proof"), FULL, 3, ["no proof"]),
        (put({"cpu": "another"}, *OF_RANK, "hello", "machine"), FULL, 3, ["proof of another machine"]),
        (put({**QUIET, "native": used(100.0)}, *OF_RANK, "noise"), FULL, 3, ["disturbed"]),
        (put(METHOD - 1, "method"), FULL, 3, ["other method"]),
        (slow_stages, Sampling(processes=1), 1, ["large residual", "one process"]),
    ],
)
def test_marks(run, change, sampling, repeats, marks):
    case = run.proven(case_of(sampling=sampling), repeats=repeats)
    run.changed(case, change, [0])
    row = run.only()
    assert row.marks == marks
    assert row.comparable == (not set(marks) & set(DISQUALIFYING))
    assert set(marks) <= {*DISQUALIFYING, *NOTED}


def test_a_process_that_was_slow_from_beginning_to_end_is_disturbed(run):
    case = run.proven(case_of(sampling=FULL))
    run.changed(case, put(QUIET, *OF_RANK, "noise"))
    assert run.only().marks == []
    run.changed(case, put({name: [0.02] for name in QUIET}, *OF_RANK, "noise"), [1])
    row = run.only()
    assert row.marks == ["disturbed"]
    assert [one.noise.reference_slowdown for one in row.processes] == [1.0, 2.0, 1.0]


@pytest.mark.parametrize(("device", "marked"), [("cpu", False), ("cuda", True)])
def test_a_proof_on_other_gpus_does_not_count_where_gpus_train(run, device, marked):
    case = run.proven(case_of(placement=Placement(device=device)))
    run.changed(case, on(cpu="AMD EPYC 7B13", gpus=[CARD.format(0, "a")]))
    assert ("proof of another machine" in run.only().marks) is marked


@pytest.mark.parametrize(
    ("machine", "marks"),
    [
        ({}, []),  # another host of the same kind
        ({"gpus": [CARD.format(1, "b")]}, []),
        ({"cpu": "B"}, ["other machine"]),
        ({"cores": 4}, ["other machine"]),
        ({"gpus": []}, ["other machine"]),
    ],
)
def test_a_row_that_was_measured_on_another_machine_than_the_others_is_marked(run, machine, marks):
    cases = [run.add(case_of(batch=batch, sampling=FULL)) for batch in (8, 16)]
    for case in cases:
        run.changed(case, on(gpus=[CARD.format(0, "a")]))
    run.changed(cases[1], on(**{"gpus": [CARD.format(0, "c")], **machine}), [2])
    found = [[mark for mark in row.marks if mark != "no proof"] for row in summarise(run.folder)]
    assert found == [[], marks]


def test_hosts_that_the_plan_names_may_differ_from_other_hosts(run):
    for cpu in "AB":
        run.changed(run.add(case_of(placement=Placement(hosts=(cpu,)), sampling=FULL)), on(cpu=cpu))
    assert [row.marks for row in summarise(run.folder)] == [["no proof"], ["no proof"]]


LIMITS = {"most_sm_clock_hz": 1.98e9, "power_limit_watts": 700.0, "persistence": True, "ecc": True}
NOW = {"governor": "performance", "gpu_driver": "580.95", "gpu_settings": [LIMITS]}


@pytest.mark.parametrize(
    ("device", "later", "marked"),
    [
        ("cpu", {}, False),
        ("cuda", {}, False),
        ("cpu", {"governor": "powersave"}, True),
        ("cuda", {"governor": "powersave"}, True),
        ("cuda", {"gpu_driver": "535.183"}, True),
        ("cpu", {"gpu_driver": "535.183"}, False),  # which computes nothing there
        ("cuda", {"gpu_settings": [LIMITS | {"power_limit_watts": 500.0}]}, True),
        ("cuda", {"gpu_settings": [LIMITS | {"most_sm_clock_hz": 1.2e9}]}, True),
        ("cuda", {"gpu_settings": [LIMITS | {"persistence": False}]}, False),  # which is about beginnings
        ("cuda", {"gpu_settings": []}, False),  # before it was kept
        ("cpu", {"gpu_settings": [LIMITS | {"power_limit_watts": 500.0}]}, False),
        ("cpu", {"governor": None, "gpu_driver": None}, False),  # a container hides them
    ],
)
def test_a_row_that_went_on_under_another_driver_or_governor_is_marked(run, device, later, marked):
    """By what its ranks reported: the run's host file knows the last only. The other device's row never changed."""
    place = Placement(device=device)
    cases = [run.proven(case_of(batch=batch, sampling=FULL, placement=place)) for batch in (8, 16)]
    other = run.proven(case_of(sampling=FULL, placement=Placement(device="cuda" if device == "cpu" else "cpu")))
    for case in (*cases, other):
        run.changed(case, on(cpu="AMD EPYC 7B13", **NOW))
    run.changed(cases[1], on(cpu="AMD EPYC 7B13", **{**NOW, **later}), [2])
    rows = summarise(run.folder)
    assert ["other driver or governor" in row.marks for row in rows] == [False, marked, False]
    assert [row.comparable for row in rows] == [True, not marked, True]


def test_a_run_that_goes_on_elsewhere_or_under_another_governor_says_so(run):
    (bench,) = run.folder.hosts().values()
    assert moved(run.folder, within(bench, cpu="B")) is None, "nothing was measured yet"
    run.add(case_of())
    assert moved(run.folder, bench.but(host="twin")) is None
    told = moved(run.folder, within(bench, cpu="B"))
    assert told.startswith(f"{run.folder.path} was begun on AMD EPYC 7B13, 1 NVIDIA H1")
    assert ", and this is B, 1 NVIDIA H1" in told
    assert told.endswith("go on there, or name a new folder with -o")
    run.folder.write_host(within(bench, **NOW))
    assert moved(run.folder, within(bench, **NOW)) is None
    assert moved(run.folder, bench) is None, "it hides them"
    told = moved(run.folder, within(bench, **NOW | {"governor": "powersave"}))
    assert "was begun with governor performance, GPU driver 580.95, and this machine now has governor powersave" in told
    told = moved(run.folder, within(bench, **NOW | {"gpu_settings": [LIMITS | {"power_limit_watts": 500.0}]}))
    most = "GPU clock at most 1980 MHz, power limit {} W, ECC on"
    assert f"was begun with {most.format(700)}, and this machine now has {most.format(500)}; rows" in told


@pytest.mark.parametrize(("core_of", "marks"), [([0, 1], []), ([0, 0], ["more threads than cores"]), ([], [])])
def test_two_threads_of_one_core_are_more_threads_than_cores(run, core_of, marks):
    case = run.proven(case_of(ranks=2, sampling=FULL))

    def on_cores(record):
        for rank in record["ranks"]:
            rank["hello"] |= {"cores": [0, 4], "core_of": core_of}

    run.changed(case, on_cores, [1])
    row = run.only()
    assert (row.marks, row.comparable) == (marks, True)


@pytest.mark.parametrize(("devices", "marks"), [("ab", []), ("aa", ["shared GPUs"])])
def test_ranks_that_share_a_gpu_say_nothing_of_speed(run, devices, marks):
    alone = run.proven(case_of(sampling=FULL))
    case = run.proven(case_of(ranks=2, sampling=FULL))

    def driving(record):
        for rank, device in zip(record["ranks"], devices, strict=True):
            rank["joined"]["device_ids"] = [f"GPU-{device}"]

    run.changed(case, driving, [1])
    rows = {row.id: row for row in summarise(run.folder)}
    assert rows[alone.id].comparable
    row = rows[case.id]
    assert (row.marks, row.comparable, row.scaling is None) == (marks, not marks, bool(marks))


@pytest.mark.parametrize(("quota", "marked"), [(None, False), (2.0, False), (1.5, True)])
def test_a_limit_of_the_cores_time_is_a_mark(run, quota, marked):
    case = run.add(case_of(sampling=FULL))
    run.changed(case, lambda record: record["ranks"][0]["hello"].update(cores=[0, 4], machine={"cpu_quota": quota}))
    assert ("CPU quota" in run.only().marks) is marked


def within(host, **changes):
    return host.but(machine={**host.machine._asdict(), **changes})


def drifting(record):
    """Every step is measured later than the one before, and is 0.4 % quicker."""
    native = record["ranks"][0]["passes"]["native"]
    native["step_s"] = [seconds * 0.996**step for step, seconds in enumerate(native["step_s"])]


@pytest.mark.parametrize(("repeats", "marks"), [((0, 1, 2), ["trend"]), ((0, 1), [])])
def test_a_row_whose_processes_all_drift_is_marked(run, repeats, marks):
    case = run.proven(case_of(sampling=FULL))
    run.changed(case, drifting, repeats)
    assert run.only().marks == marks


def test_a_run_of_an_older_method_is_compared_within_itself(run):
    cases = run.proven(case_of()), run.proven(case_of("caffempi"), slower=2.0)
    run.folder.write_about(run.folder.about.but(method=1))
    for case in cases:
        run.changed(case, put(1, "method"))
    assert [row.against.verdict for row in summarise(run.folder)] == ["leads", "slower"]
    for change in ({"straggler": 0.5}, {"placement": Placement(share_devices=True)}):
        assert group(case_of().on(**change)) != group(case_of()), "what slows a row down on purpose has its own group"


def timed(samples, wall_s, **fields):
    return Pass("native", samples, True, [], [0.1], wall_s, **fields)


def test_workers_at_their_own_pace_have_the_sum_of_their_rates():
    """One of four is half as fast."""
    paced = [timed(samples, 2.0, own_pace=True) for samples in (800, 800, 800, 400)]
    assert 2800 / wall_of(paced) == pytest.approx(1400)
    assert wall_of([timed(800, 1.0), timed(800, 2.0)]) == 2.0
