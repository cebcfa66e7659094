"""Sessions run the reference adapter for real: rounds, resume, retry, interruption, what cannot run."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace

import psutil
import pytest

from stagebench.cluster.local import Local
from stagebench.suite.analysis.measured import round_of
from stagebench.suite.analysis.summary import summarise
from stagebench.suite.cli import main
from stagebench.suite.cli.results import print_results
from stagebench.suite.contracts.case import Placement
from stagebench.suite.contracts.launcher import Process, Request
from stagebench.suite.errors import Interrupted, RequestError, Unavailable
from stagebench.suite.plan import Resolved
from stagebench.suite.results.records import About
from stagebench.suite.results.run_folder import RunFolder
from stagebench.suite.session.resumable import Session, Settings
from stagebench.suite.worker.messages import Hello, Phase
from tests.suite.measuring import BRIEF, PLAN, SETTINGS, TWICE, Listener, case, run
from tests.support.errors import raising


def test_cases_take_turns_and_each_process_has_a_record(folder):
    listener, open_files = Listener(), len(os.listdir("/proc/self/fd"))
    first = case(sampling=TWICE)
    outcomes = run(folder, [first, first.on(batch=3)], listener)
    assert listener.order == [(2, 0), (3, 0), (2, 1), (3, 1)]
    assert outcomes == {"ok": 4}
    assert len(os.listdir("/proc/self/fd")) == open_files
    record = folder.record(first.id, 1)
    native = record.ranks[0].passes["native"]
    assert len(native.step_s) >= BRIEF.steps
    assert native.samples == 2 * len(native.step_s)
    assert record.proof is None
    assert record.proof_reason == "proofs were switched off for this run"
    assert set(record.ranks[0].passes) == {"native", "staged"}
    assert listener.ended == 1


class Own(Local):
    """Lets the ranks see a number of threads of its own."""

    def processes(self, request: Request) -> list[Process]:
        found = super().processes(request)
        return [replace(each, environ={**each.environ, "MKL_NUM_THREADS": "7"}) for each in found]


def test_threads_that_did_not_reach_the_ranks_are_a_crash_and_no_number(folder, monkeypatch):
    monkeypatch.setattr("stagebench.suite.processes.launch.launchers", lambda: {"local": Own()})
    run(folder, [case()])
    record = folder.record(case().id, 0)
    assert record.outcome == "crash"
    assert "was to see MKL_NUM_THREADS=1 and saw 7: the launcher 'local' did not hand it over" in record.reason


@pytest.mark.slow
def test_a_straggler_slower_than_the_time_limit_is_named_and_leaves_no_load_behind(folder):
    endless = BRIEF._replace(seconds=600.0)
    slowed = case(sampling=endless, straggler=0.9, placement=Placement(binding="cores"), time_limit=20.0)
    began = time.monotonic()
    run(folder, [slowed])
    assert time.monotonic() - began < 240.0
    record = folder.record(slowed.id, 0)
    assert record.outcome == "timeout"
    assert record.reason.startswith("rank 0 not done within the time limit of 20 s in native")
    assert "rank 0 is a straggler that lost 90% of its time, as the plan asks: raise time_limit = 20" in record.reason
    bundles = str(folder.path / "bundles")
    assert not [each for each in psutil.process_iter(["cmdline"]) if bundles in " ".join(each.info["cmdline"] or [])]


class Murderer(Listener):
    """Kills a rank with SIGKILL as soon as it begins a pass."""

    def __init__(self, pass_name: str):
        super().__init__()
        self._pass_name, self._pid = pass_name, 0

    def message(self, case, rank, message):
        if isinstance(message, Hello):
            self._pid = message.pid
        if isinstance(message, Phase) and message.name == self._pass_name:
            os.kill(self._pid, signal.SIGKILL)


def test_a_crash_in_a_later_pass_leaves_the_speed_and_one_in_the_native_pass_none(folder, capsys):
    longer = case(sampling=BRIEF._replace(seconds=1.0))
    assert run(folder, [longer], Murderer("staged")) == {"crash": 1}
    record = folder.record(longer.id, 0)
    assert (record.outcome, record.result) == ("crash", "ok")
    assert record.passes == {"native": "ok", "staged": "crash"}
    assert record.reason.startswith("rank 0 was ended by SIGKILL")
    assert "it happened in the pass staged: the speed, measured before, is kept" in record.reason
    (row,) = summarise(folder)
    assert record.ranks[0].noise.native.seconds > 0, "what others did meanwhile is kept with the speed"
    native = record.ranks[0].passes["native"]
    assert row.speed == pytest.approx(native.samples / native.wall_s)
    assert (row.outcome, row.budget) == ("ok", None)
    assert "failed later" in row.marks
    print_results(folder)
    printed = " ".join(capsys.readouterr().out.split())
    assert "failed later: reference" in printed
    assert "it happened in the pass staged" in printed
    other = longer.on(seed=2)
    run(folder, [longer, other], Murderer("native"))
    record = folder.record(other.id, 0)
    assert (record.result, record.passes) == ("crash", {"native": "crash"})
    assert summarise(folder)[1].rates is None


def test_an_interrupted_session_goes_on_where_it_stopped(folder):
    cases = [case(sampling=TWICE), case(sampling=TWICE, batch=3)]
    with pytest.raises(Interrupted, match="3 of 4 records"):
        run(folder, cases, Listener(stop_after=3))
    again = Listener()
    assert run(folder, cases, again) == {"ok": 4}
    assert again.order == [(3, 1)]


def test_what_another_command_measured_is_of_another_round(folder):
    """A framework that was installed later has the same repeats as those that were there before."""
    first, later = (case(seed=seed, sampling=TWICE) for seed in (1, 2))
    run(folder, [first])
    run(folder, [first, later])
    rounds = [[round_of(folder.record(each.id, repeat)) for repeat in (0, 1)] for each in (first, later)]
    assert len({session for session, _ in rounds[0]}) == len({session for session, _ in rounds[1]}) == 1
    assert set(rounds[0]).isdisjoint(rounds[1])


class Impatient(Listener):
    """Stops while the second process of all is measuring."""

    def message(self, case, rank, message):
        if isinstance(message, Phase) and len(self.order) == 2:
            raise KeyboardInterrupt


def test_what_a_person_stops_is_written_down_and_measured_when_the_run_goes_on(folder):
    cases = [case(sampling=TWICE), case(sampling=TWICE, batch=3)]
    with pytest.raises(Interrupted, match="1 of 4 records"):
        run(folder, cases, Impatient())
    stopped = folder.record(cases[1].id, 0)
    assert stopped.outcome == "cancelled"
    assert "by Ctrl-C or SIGTERM" in stopped.reason
    rows = {row.id: row for row in summarise(folder)}
    assert rows[cases[1].id].outcome == "cancelled"
    assert rows[cases[0].id].outcome == "ok"
    again = Listener()
    assert run(folder, cases, again) == {"ok": 4}
    assert again.order == [(3, 0), (2, 1), (3, 1)]


@pytest.mark.parametrize(
    ("changes", "outcome", "words"),
    [
        ({"lr": 1e30}, "diverged", "loss is"),
        ({"placement": Placement(threads=4096, binding="cores")}, "unavailable", "ask for fewer threads"),
    ],
)
def test_what_failed_is_measured_again_only_when_asked(folder, changes, outcome, words):
    bad, first, again = case(**changes), Listener(), Listener()
    assert run(folder, [bad], first) == {outcome: 1}
    assert words in folder.record(bad.id, 0).reason
    run(folder, [bad], again)
    assert again.order == []
    run(folder, [bad], again, Settings(proofs=False, retry=True))
    assert len(again.order) == 1


def test_a_case_that_eats_more_than_its_memory_ends_and_the_rest_goes_on(folder):
    greedy = case(batch=2_000_000, placement=Placement(memory_limit=600 << 20))
    assert run(folder, [greedy, case()]) == {"oom": 1, "ok": 1}
    assert "MemoryError: Unable to allocate" in folder.record(greedy.id, 0).reason


def test_a_case_that_cannot_run_is_a_row_and_the_rest_goes_on_if_there_is_one(folder, tmp_path):
    other = case(batch=3)
    resolved = [Resolved(case(), "unsupported", "not today"), Resolved(other, None, "")]
    listener = Listener()
    outcomes = Session(folder, resolved, {}, listener, SETTINGS).run()
    assert listener.refusals == [(case().id, "unsupported", "not today")]
    assert outcomes == {"ok": 1, "unsupported": 1}
    assert [entry.outcome for entry in folder.cases] == ["unsupported", None]
    many = case(placement=Placement(ranks_per_node=2, launcher="mpiexec"))
    resolved = [Resolved(case(), "unsupported", "not today"), Resolved(many, "unavailable", "no mpiexec")]
    listener = Listener()
    with pytest.raises(Unavailable, match=r"no mpiexec\n  not today"):
        Session(RunFolder(tmp_path / "none").begin(About(), "plan"), resolved, {}, listener, SETTINGS).run()
    assert listener.refusals == [], "the message tells all of them"


def test_a_python_that_was_asked_for_and_does_not_work_ends_the_session(folder):
    listener = Listener()
    with raising(RequestError, "/no-such-python"):
        run(folder, [case()], listener, settings_of_python={"reference": "/no-such-python"})
    assert listener.order == []


@pytest.fixture
def stagebench(monkeypatch, capsys):
    """Run a command line: (exit code, output, message)."""

    def run(*words):
        monkeypatch.setattr("sys.argv", ["stagebench", *map(str, words)])
        return (main(), *capsys.readouterr())

    return run


def test_the_command_runs_a_plan_and_resumes_it(stagebench, tmp_path):
    plan = tmp_path / "short.toml"
    plan.write_text(PLAN)
    words = ("run", plan, "-o", tmp_path / "out", "--no-proofs", "--json")
    code, told, message = stagebench(*words)
    assert code == 0, message
    assert json.loads(told) == {"folder": str(tmp_path / "out"), "outcomes": {"ok": 1}}
    stamp = next((tmp_path / "out" / "records").iterdir()).stat().st_mtime_ns
    (host,) = (tmp_path / "out" / "hosts").iterdir()
    here = json.loads(host.read_text())
    host.write_text(json.dumps({**here, "machine": {**here["machine"], "cpu": "another"}}))
    code, _, message = stagebench(*words)
    assert (code, "was begun on another, " in message) == (0, True)
    assert next((tmp_path / "out" / "records").iterdir()).stat().st_mtime_ns == stamp
    assert (tmp_path / "out" / "plan.toml").read_text() == PLAN


def test_a_failing_case_is_exit_code_1_and_a_wrong_request_2(stagebench, tmp_path):
    plan = tmp_path / "short.toml"
    plan.write_text(PLAN + "lr = 1e30\n")
    assert stagebench("run", plan, "-o", tmp_path / "out", "--no-proofs")[0] == 1
    plan.write_text(PLAN.replace('"reference"', '"refrence"'))
    code, _, message = stagebench("run", plan, "-o", tmp_path / "out2")
    assert (code, "did you mean 'reference'" in message) == (2, True)
    assert not (tmp_path / "out2").exists()
    plan.write_text(PLAN)
    code, _, message = stagebench("run", plan, "-o", plan)
    assert (code, len(message.splitlines())) == (2, 1)


CASE = ("--adapter", "reference", "--strategy", "single", "--workload", "mnist_small", "--batch", "2",
        "--precision", "float64", "--passes", "native", "--steps", "2", "--seconds", "0.05",
        "--set", "sampling.warmup_steps=2", "--set", "sampling.warmup_limit=0.2")  # fmt: skip
RENAMED = ("unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"')
PROCESSES = 3


@pytest.mark.slow
@pytest.mark.skipif(
    shutil.which("unshare") is None or subprocess.run([*RENAMED, "other", "true"], capture_output=True).returncode != 0,
    reason="no host of another name can be made here: it takes unshare --uts, so root",
)
def test_a_run_goes_on_on_another_host(tmp_path):
    folder = tmp_path / "run"
    command = [sys.executable, "-m", "stagebench.suite.cli", "run", *CASE, "--processes", str(PROCESSES), "--no-proofs"]

    def on(host):
        return subprocess.Popen([*RENAMED, host, *command, "-o", str(folder)], stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True)  # fmt: skip

    first, deadline = on("first"), time.monotonic() + 240
    while not list(folder.glob("records/*.json")):
        assert first.poll() is None, first.stdout.read()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.kill(first.pid, signal.SIGKILL)
    first.communicate()
    before = {path.name: path.read_bytes() for path in folder.glob("records/*.json")}
    assert len(before) < PROCESSES
    second = on("second")
    told, _ = second.communicate(timeout=300)
    assert second.returncode == 0, told
    assert "was begun on" not in told, "it is a machine of the same kind"
    records = list(RunFolder(folder).records())
    assert [record.outcome for record in records] == PROCESSES * ["ok"]
    assert {name: (folder / "records" / name).read_bytes() for name in before} == before
    assert {rank.hello.host for record in records for rank in record.ranks} == {"first", "second"}
