"""Sessions run the reference adapter for real: rounds, resume, retry, interruption, a full disk."""

import contextlib
import errno
import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from cluster.local import Local
from suite.analysis.measured import round_of
from suite.analysis.stats import ratio
from suite.analysis.summary import summarise
from suite.contracts.case import Case, Placement, Sampling
from suite.contracts.launcher import Process, Request
from suite.errors import Interrupted, RequestError, StoreError, Unavailable
from suite.plan import Resolved
from suite.results.records import About
from suite.results.run_folder import RunFolder
from suite.session.observer import Observer
from suite.session.resumable import Runnable
from suite.session.training import Settings, TrainingSession
from suite.worker.messages import Hello, Phase, Progress, decode, of_type
from workloads.networks import by_name

BRIEF = Sampling(warmup_steps=5, warmup_limit=0.2, steps=2, seconds=0.05, processes=2, quick=True)
SETTINGS = Settings(proofs=False)
CHECKOUT = Path(__file__).parents[2]


def case(**changes) -> Case:
    graph = by_name()["mnist_small"].graph()
    return Case("reference", "single", "mnist_small", batch=2, precision="float64", sampling=BRIEF,
                graph_digest=graph.digest, knobs={"shards": 1}).on(**changes)  # fmt: skip


class Listener(Observer):
    def __init__(self, stop_after: int | None = None):
        self.order, self.outcomes, self.stop_after, self.ended = [], [], stop_after, 0
        self.refusals = []

    def refused(self, case, outcome, reason):
        assert not self.order, "told before anything starts"
        self.refusals.append((case.id, outcome, reason))

    def started(self, case, repeat):
        self.order.append((case.batch, repeat))

    def finished(self, case, record):
        self.outcomes.append(record.outcome)
        if len(self.outcomes) == self.stop_after:
            raise KeyboardInterrupt

    def end(self):
        self.ended += 1


@pytest.fixture
def folder(tmp_path):
    return RunFolder(tmp_path / "run").begin(About(plan="test"), "plan")


def run(folder: RunFolder, cases, listener=None, settings=SETTINGS, settings_of_python=None):
    resolved = [Resolved(each, None, "") for each in cases]
    return TrainingSession(folder, resolved, settings_of_python or {}, listener or Listener(), settings).run()


def test_cases_take_turns_and_each_process_has_a_record(folder):
    listener, open_files = Listener(), len(os.listdir("/proc/self/fd"))
    outcomes = run(folder, [case(), case(batch=3)], listener)
    assert listener.order == [(2, 0), (3, 0), (2, 1), (3, 1)]
    assert outcomes == {"ok": 4}
    assert len(os.listdir("/proc/self/fd")) == open_files
    record = folder.record(case().id, 1)
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
    monkeypatch.setattr("suite.launching.launch.launchers", lambda: {"local": Own()})
    run(folder, [case()])
    record = folder.record(case().id, 0)
    assert record.outcome == "crash"
    assert "was to see MKL_NUM_THREADS=1 and saw 7: the launcher 'local' did not hand it over" in record.reason


@pytest.mark.slow
def test_a_straggler_slower_than_the_time_limit_is_named_and_leaves_no_load_behind(folder):
    endless = replace(BRIEF, seconds=600.0, processes=1)
    slowed = case(sampling=endless, straggler=0.9, placement=Placement(binding="cores"), time_limit=6.0)
    began = time.monotonic()
    run(folder, [slowed])
    assert time.monotonic() - began < 60.0
    record = folder.record(slowed.id, 0)
    assert record.outcome == "timeout"
    assert record.reason.startswith("rank 0 not done within the time limit of 6 s in native")
    assert "rank 0 is a straggler that lost 90% of its time, as the plan asks: raise time_limit = 6" in record.reason
    bundles = str(folder.path / "bundles")
    assert not [each for each in psutil.process_iter(["cmdline"]) if bundles in " ".join(each.info["cmdline"] or [])]


def test_an_interrupted_session_goes_on_where_it_stopped(folder):
    with pytest.raises(Interrupted, match="3 of 4 records"):
        run(folder, [case(), case(batch=3)], Listener(stop_after=3))
    again = Listener()
    assert run(folder, [case(), case(batch=3)], again) == {"ok": 4}
    assert again.order == [(3, 1)]


def test_what_another_command_measured_is_of_another_round(folder):
    """A framework that was installed later has the same repeats as those that were there before."""
    first, later = case(seed=1), case(seed=2)
    run(folder, [first])
    run(folder, [first, later])
    rounds = [[round_of(folder.record(each.id, repeat)) for repeat in (0, 1)] for each in (first, later)]
    assert len({session for session, _ in rounds[0]}) == len({session for session, _ in rounds[1]}) == 1
    assert set(rounds[0]).isdisjoint(rounds[1])


LONG = replace(BRIEF, seconds=1.2)  # two parts and more


class Hearing(Listener):
    """Which cases were heard of while they measured, in that order, each once in a row; may stop the session there."""

    def __init__(self, stop_after=sys.maxsize):
        super().__init__()
        self.heard, self.most = [], stop_after

    def message(self, case, rank, message):
        if isinstance(message, Progress) and message.phase == "measure" and message.name == "native":
            self.heard += [case.id] if self.heard[-1:] != [case.id] else []
            if len(self.heard) > self.most:
                raise KeyboardInterrupt


def test_cases_that_will_be_compared_take_turns(folder):
    cases = [case(sampling=LONG, seed=1), case(sampling=LONG, seed=2), case(sampling=LONG, batch=3)]
    one, other, alone = [each.id for each in cases]
    listener = Hearing()
    assert run(folder, cases, listener) == {"ok": 6}
    assert listener.heard[:3] == [other, one, other], "each was started before any had its turn; then forth and back"
    assert {name: folder.record(name, 0).turns_with for name in (one, other, alone)} == {
        one: (other,), other: (one,), alone: ()
    }  # fmt: skip
    for name in (one, other, alone):
        native = folder.record(name, 0).ranks[0].passes["native"]
        assert native.wall_s == pytest.approx(sum(native.step_s), rel=0.1)
    assert list(folder.path.glob("attempts/**/turns-*")) == []


def test_default_and_tuned_of_a_network_take_turns(folder):
    """What an ordinary user's script loses is a ratio of the two."""
    one, other = case(sampling=LONG, tuning="default"), case(sampling=LONG, tuning="tuned")
    run(folder, [one, other])
    assert [folder.record(each.id, 0).turns_with for each in (one, other)] == [(other.id,), (one.id,)]
    default, tuned = (row.rates for row in summarise(folder))
    assert ratio(tuned, default).processes == 2, "a ratio over the rounds of both, with its interval"


@pytest.mark.parametrize("frameworks", [4, 5])
def test_default_and_tuned_stand_together_if_all_of_them_may(folder, frameworks):
    cases = [case(seed=seed, tuning=tuning) for seed in range(frameworks) for tuning in ("tuned", "default")]
    session = TrainingSession(folder, [], {}, Listener(), SETTINGS)
    groups = session.side_by_side([Runnable(each, None) for each in cases])
    assert [len(group) for group in groups] == ([8] if frameworks == 4 else [5, 5])
    tunings = [item.case.tuning for group in groups for item in group]
    assert tunings == ["tuned"] * frameworks + ["default"] * frameworks


def test_cases_that_took_turns_are_all_written_down_when_they_are_stopped(folder):
    cases = [case(sampling=LONG, seed=1), case(sampling=LONG, seed=2)]
    with pytest.raises(Interrupted, match="0 of 4 records"):
        run(folder, cases, Hearing(stop_after=1))
    assert [folder.record(each.id, 0).outcome for each in cases] == ["cancelled", "cancelled"]
    assert run(folder, cases) == {"ok": 4}


def test_a_case_that_fails_leaves_those_alone_that_it_took_turns_with(folder):
    cases = [case(sampling=LONG, seed=1), case(sampling=LONG, seed=2, lr=1e30)]
    outcomes = run(folder, cases)
    assert outcomes == {"ok": 2, "diverged": 2}


class Impatient(Listener):
    """Stops while the second process of all is measuring."""

    def message(self, case, rank, message):
        if isinstance(message, Phase) and len(self.order) == 2:
            raise KeyboardInterrupt


@pytest.mark.parametrize("moment", ["message", "finished"])
def test_a_run_folder_that_vanishes_in_mid_run_is_one_message(folder, moment):
    def vanish(*_):
        shutil.rmtree(folder.path, ignore_errors=True)

    listener = Listener()
    setattr(listener, moment, vanish)
    with pytest.raises(StoreError, match=rf"{folder.path}.*(put the run folder|put it) back|cannot make {folder.path}"):
        run(folder, [case()], listener)
    assert listener.ended == 1


def test_what_a_person_stops_is_written_down_and_measured_when_the_run_goes_on(folder):
    cases = [case(), case(batch=3)]
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


@pytest.mark.parametrize("content", [b"{", b"[]", b"\xff\x00", b'{"format": 99}', None])
def test_what_is_no_record_is_kept_aside_and_measured_again(folder, content):
    """None: another repeat's record, whole and unchanged."""
    run(folder, [case()])
    records = folder.path / "records"
    path, other = (records / f"{case().id}-r{repeat}.json" for repeat in (1, 0))
    path.write_bytes(content or other.read_bytes())
    assert [path.name in why for why in RunFolder.open(folder.path).unusable()] == [True]
    again = Listener()
    assert run(folder, [case()], again) == {"ok": 2}
    assert again.order == [(2, 1)]
    assert [kept.read_bytes() for kept in (folder.path / "invalid").iterdir()] == [content or other.read_bytes()]
    assert RunFolder.open(folder.path).unusable() == []


def test_a_disk_that_fails_where_no_one_looked_is_one_message(folder):
    def fails(*_):
        raise OSError(errno.EIO, "Input/output error", "launcher-0.log")

    listener = Listener()
    listener.message = fails
    with pytest.raises(
        StoreError, match=rf"cannot go on in {folder.path}: .*launcher-0.log.*; what was measured is kept"
    ):
        run(folder, [case()], listener)


class Remover(Listener):
    """Removes the run folder when a rank reports, or before it starts."""

    def __init__(self, folder, when):
        super().__init__()
        self.path, self.when = folder.path, when

    def started(self, case, repeat):
        super().started(case, repeat)
        if self.when == "before":
            shutil.rmtree(self.path)

    def message(self, case, rank, message):
        if self.when == "meanwhile" and self.path.exists():
            shutil.rmtree(self.path)

    def proving(self, case):
        if self.when == "proving":
            shutil.rmtree(self.path)


@pytest.mark.parametrize("when", ["before", "meanwhile", "proving"])
def test_a_run_folder_that_vanishes_ends_the_session_by_name(folder, when, tmp_path, monkeypatch):
    monkeypatch.setenv("STAGEBENCH_CACHE", str(tmp_path / "cache"))
    with pytest.raises(StoreError, match=f"{folder.path}") as error:
        run(folder, [case()], Remover(folder, when), Settings(proofs=when == "proving"))
    assert "\n" not in str(error.value)
    assert not folder.path.exists(), "nothing is made anew where it stood"


def test_a_second_session_in_the_same_folder_is_refused(folder):
    program = (
        "import sys; from pathlib import Path; from suite.results.lock import held\n"
        "with held(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
    )
    tokens = [sys.executable, "-c", program, str(folder.path)]
    with subprocess.Popen(tokens, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=CHECKOUT) as other:
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(RequestError, match="in use by another session"):
            run(folder, [case()])
        other.stdin.close()


def test_what_failed_is_measured_again_only_when_asked(folder):
    bad = case(lr=1e30)
    first = Listener()
    assert run(folder, [bad], first) == {"diverged": 2}
    assert "loss is" in folder.record(bad.id, 0).reason
    again = Listener()
    run(folder, [bad], again)
    assert again.order == []
    run(folder, [bad], again, Settings(proofs=False, retry=True))
    assert len(again.order) == 2


def test_what_the_machine_lacked_is_measured_again_when_asked(folder):
    greedy = case(placement=Placement(threads=4096, binding="cores"))
    first = Listener()
    assert run(folder, [greedy], first) == {"unavailable": 2}
    assert "ask for fewer threads" in folder.record(greedy.id, 0).reason
    again = Listener()
    run(folder, [greedy], again)
    assert again.order == []
    run(folder, [greedy], again, Settings(proofs=False, retry=True))
    assert len(again.order) == 2


def test_a_case_that_eats_more_than_its_memory_ends_and_the_rest_goes_on(folder):
    greedy = case(batch=2_000_000, placement=Placement(memory_limit=600 << 20))
    assert run(folder, [greedy, case()]) == {"oom": 2, "ok": 2}
    assert "MemoryError: Unable to allocate" in folder.record(greedy.id, 0).reason


def test_a_case_that_cannot_run_is_a_row_and_the_rest_goes_on(folder):
    other = case(batch=3)
    resolved = [Resolved(case(), "unsupported", "not today"), Resolved(other, None, "")]
    listener = Listener()
    outcomes = TrainingSession(folder, resolved, {}, listener, SETTINGS).run()
    assert listener.refusals == [(case().id, "unsupported", "not today")]
    assert outcomes == {"ok": 2, "unsupported": 1}
    assert [entry.outcome for entry in folder.cases] == ["unsupported", None]


def test_when_nothing_can_run_the_reasons_are_told(folder):
    many = case(placement=Placement(ranks_per_node=2, launcher="mpiexec"))
    resolved = [Resolved(case(), "unsupported", "not today"), Resolved(many, "unavailable", "no mpiexec")]
    listener = Listener()
    with pytest.raises(Unavailable, match=r"nothing that was asked for can run here:\n  no mpiexec\n  not today"):
        TrainingSession(folder, resolved, {}, listener, SETTINGS).run()
    assert listener.refusals == [], "the message tells all of them"


def test_a_python_that_was_asked_for_and_does_not_work_ends_the_session(folder):
    listener = Listener()
    with pytest.raises(RequestError, match="reference: --python reference is /no-such-python, which is not"):
        run(folder, [case()], listener, settings_of_python={"reference": "/no-such-python"})
    assert listener.order == []


def test_a_run_folder_belongs_to_one_plan_once_it_has_records(folder, tmp_path):
    corrected = RunFolder(tmp_path / "run").begin(About(plan="corrected"), "corrected")
    assert (corrected.path / "plan.toml").read_text() == "corrected"
    assert corrected.about.plan == "corrected"
    run(folder, [case(sampling=replace(BRIEF, processes=1))])
    RunFolder(tmp_path / "run").begin(About(), "corrected")
    with pytest.raises(RequestError, match="begun with another plan"):
        RunFolder(tmp_path / "run").begin(About(), "another plan")


def test_a_folder_of_another_format_is_refused(tmp_path):
    (tmp_path / "run.json").write_text('{"format": 99}')
    with pytest.raises(RequestError, match=r"run\.json has format 99, this stagebench reads 1 to 4"):
        RunFolder.open(tmp_path)


def test_a_proof_stands_beside_the_records(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("STAGEBENCH_CACHE", str(tmp_path / "cache"))
    run(folder, [case()], settings=Settings(proofs=True))
    record = folder.record(case().id, 0)
    proof = folder.proofs()[record.proof]
    assert proof.passed, proof.reason
    assert proof.parameter_count == 402_442
    assert [memory.host_bytes > 1 << 20 for memory in (*proof.memory, record.ranks[0].memory)] == [True, True]


@pytest.mark.parametrize("binding", ["none", "cores"])
def test_a_proof_has_the_threads_and_the_cores_of_its_case(folder, tmp_path, monkeypatch, binding):
    monkeypatch.setenv("STAGEBENCH_CACHE", str(tmp_path / "cache"))
    bound = case(placement=Placement(binding=binding))
    run(folder, [bound], settings=Settings(proofs=True))
    lines = (folder.attempt(bound.id, "proof") / "rank-0.jsonl").read_text().splitlines()
    (proving,), measuring = of_type(Hello, map(decode, lines)), folder.record(bound.id, 0).ranks[0].hello
    assert (tuple(proving.cores), proving.threads) == (measuring.cores, measuring.threads)
    assert proving.threads["OMP_NUM_THREADS"] == "1"


def test_a_proof_vouches_for_the_variables_that_its_ranks_saw(tmp_path, monkeypatch):
    """As on another host: a login's own variables, of which the controller knows nothing."""
    monkeypatch.setenv("STAGEBENCH_CACHE", str(tmp_path / "cache"))
    plainly = Local.processes

    def measured(padding, processes):
        there = {"MALLOC_TOP_PAD_": padding}

        def processes_there(self, request):
            return [replace(each, environ={**each.environ, **there}) for each in plainly(self, request)]

        monkeypatch.setattr(Local, "processes", processes_there)
        folder = RunFolder(tmp_path / f"{padding}-{processes}").begin(About(plan="test"), "plan")
        one = case(sampling=replace(BRIEF, processes=processes))
        assert run(folder, [one], settings=Settings(proofs=True)) == {"ok": processes}
        (row,) = summarise(folder)
        assert folder.proofs(), row.proof_reason
        (proof,) = folder.proofs().values()
        seen = folder.record(one.id, 0).ranks[0].hello.arithmetic.names
        assert "MALLOC_TOP_PAD_" in seen
        return row, [each.values["MALLOC_TOP_PAD_"] for each in proof.environments]

    row, proven = measured("65536", 1)
    assert ("proof under other variables" in row.marks, proven) == (False, ["65536"])
    row, proven = measured("131072", 1)
    assert ("proof under other variables" in row.marks, proven) == (True, ["65536"])
    assert row.proof_reason == "MALLOC_TOP_PAD_: proven with '65536', measured with '131072'"
    row, proven = measured("131072", 2)
    assert ("proof under other variables" in row.marks, proven) == (False, ["131072"]), "made again"


@pytest.fixture
def small_disk(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("mounting a small tmpfs needs root")
    mounted = tmp_path / "disk"
    mounted.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=700k", "tmpfs", mounted], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"this machine refuses to mount a tmpfs: {done.stderr.strip()}")
    yield mounted
    subprocess.run(["umount", mounted], check=True)


def fill(path) -> None:
    """Write until the disk is full."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT)
    with contextlib.suppress(OSError):
        while os.write(descriptor, b"x" * 4096):
            pass
    os.close(descriptor)


def test_a_full_disk_is_told_and_loses_nothing(small_disk):
    folder = RunFolder(small_disk / "run").begin(About(), "plan")
    run(folder, [case()])
    fill(small_disk / "filler")
    before = list(folder.records())
    with pytest.raises(StoreError, match="what was measured before is kept"):
        run(folder, [case(batch=3)])
    (small_disk / "filler").unlink()
    assert list(folder.records()) == before
    assert run(folder, [case(batch=3)]) == {"ok": 2}


PLAN = """
name = "short"
[sampling]
quick = true
warmup_steps = 5
warmup_limit = 0.2
steps = 2
seconds = 0.05
processes = 1
[[cases]]
adapter = "reference"
strategy = "single"
workload = "mnist_small"
precision = "float64"
batch = 2
"""


def stagebench(*words, **options):
    return subprocess.run(
        [sys.executable, "-m", "suite.cli", *words], capture_output=True, text=True, timeout=120, **options
    )


def test_the_command_runs_a_plan_and_resumes_it(tmp_path):
    plan = tmp_path / "short.toml"
    plan.write_text(PLAN)
    words = ("run", str(plan), "-o", str(tmp_path / "out"), "--no-proofs", "--json")
    first = stagebench(*words)
    assert first.returncode == 0, first.stderr
    assert json.loads(first.stdout) == {"folder": str(tmp_path / "out"), "outcomes": {"ok": 1}}
    stamp = next((tmp_path / "out" / "records").iterdir()).stat().st_mtime_ns
    (host,) = (tmp_path / "out" / "hosts").iterdir()
    host.write_text(json.dumps({**json.loads(host.read_text()), "cpu": "another"}))
    again = stagebench(*words)
    assert again.returncode == 0
    assert "was begun on another, " in again.stderr
    assert next((tmp_path / "out" / "records").iterdir()).stat().st_mtime_ns == stamp
    assert (tmp_path / "out" / "plan.toml").read_text() == PLAN


def test_a_failing_case_is_exit_code_1_and_a_wrong_request_2(tmp_path):
    plan = tmp_path / "short.toml"
    plan.write_text(PLAN + "lr = 1e30\n")
    assert stagebench("run", str(plan), "-o", str(tmp_path / "out"), "--no-proofs").returncode == 1
    plan.write_text(PLAN.replace('"reference"', '"refrence"'))
    wrong = stagebench("run", str(plan), "-o", str(tmp_path / "out2"))
    assert wrong.returncode == 2
    assert "did you mean 'reference'" in wrong.stderr
    assert not (tmp_path / "out2").exists()
    plan.write_text(PLAN)
    unusable = stagebench("run", str(plan), "-o", str(plan))
    assert (unusable.returncode, len(unusable.stderr.splitlines())) == (2, 1)
