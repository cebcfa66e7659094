"""Two runs side by side, and many in a row: what is paired, what bars a comparison, what the commands say."""

import json
import subprocess
from pathlib import Path

import pytest

from stagebench.suite.analysis.compare_runs import compare
from stagebench.suite.analysis.runs import MeasuredRun, history
from stagebench.suite.errors import RequestError
from stagebench.suite.processes.query import commit_of
from stagebench.suite.worker.case_parts import Sampling, Serving
from tests.reports.made_run import MadeRun, case_of, proof_of

CASES = case_of("pytorch"), case_of("caffempi")
SAME = "no detectable difference"


def made(path: Path, *slower: float, cases=CASES, repeats=5, commit="", day=20) -> MadeRun:
    """A run of these cases, each slowed down by its factor."""
    run = MadeRun(path)
    for case, factor in zip(cases, slower or [1.0] * len(cases), strict=True):
        run.proven(case, repeats=repeats, slower=factor)
    about = run.folder.about.but(created=f"2026-11-{day}T10:00:00+00:00", commit=commit)
    run.folder.write_about(about)
    return run


@pytest.fixture
def command(stagebench):
    return lambda *words: stagebench(*map(str, words))


@pytest.fixture
def before(tmp_path):
    return made(tmp_path / "before").folder.path


@pytest.mark.parametrize(
    ("slower", "verdicts", "word", "code"),
    [
        ((1.0, 1.0), [SAME, SAME], SAME, 0),
        ((1.2, 1.0), ["slower", SAME], "slower", 1),
        ((0.8, 1.0), ["faster", SAME], "faster", 0),
        ((0.8, 1.2), ["faster", "slower"], "slower", 1),
    ],
)
def test_each_case_has_a_verdict_and_the_whole_ends_in_one(command, before, tmp_path, slower, verdicts, word, code):
    after = made(tmp_path / "after", *slower).folder.path
    done = command("compare", before, after, "--json")
    found = json.loads(done.stdout)
    assert ([one["verdict"] for one in found["cases"]], found["verdict"], done.code) == (verdicts, word, code)
    assert found["cases"][0]["ratio"]["value"] == pytest.approx(1 / slower[0], rel=0.01)
    assert command("compare", before, after).out.splitlines()[-1] == word
    assert command("compare", before, after, "--markdown").out.startswith(f"**{word}**: `")


def another_machine(run):
    bench = run.folder.hosts()["bench"]
    run.folder.write_host(bench.but(machine=bench.machine._replace(cpu="Intel Xeon")))


def another_framework(run):
    for case in CASES:
        run.changed(case, lambda record: record["interpreter"].update(version="3.12.1"), range(5))


def another_host(run):
    for case in CASES:
        run.changed(case, lambda record: record["ranks"][0]["hello"].update(host="other"), range(5))


def a_failed_proof(run):
    for case in CASES:
        run.write(f"proofs/{case.id}aaaa.json", proof_of(case, passed=False))


def a_crash(run):
    for case in CASES:
        run.changed(case, lambda record: record.update(outcome="crash", reason="signal 9", ranks=[]), range(5))
    run.proven(case_of("pytorch", batch=16))


@pytest.mark.parametrize(
    ("change", "options", "code", "words"),
    [
        (another_machine, (), 2, "not comparable: machine: CPU AMD EPYC 7B13 → Intel Xeon"),
        (another_machine, ("--across", "machine"), 0, "not the same: machine: CPU AMD EPYC 7B13 → Intel Xeon"),
        (another_framework, (), 0, "not the same: versions: Python 3.11.7 → 3.12.1"),
        (another_host, (), 0, "not the same: system: hosts bench → other"),
        (a_failed_proof, (), 2, "proof failed: it does not train the same network"),
        (a_crash, (), 2, "crash: signal 9"),
        (a_crash, (), 2, "has no such case"),
    ],
)
def test_what_differs_is_told_or_bars_the_comparison(command, before, tmp_path, change, options, code, words):
    after = made(tmp_path / "after")
    change(after)
    done = command("compare", before, after.folder.path, *options)
    assert done.code == code
    assert words in done.out


@pytest.mark.parametrize(
    ("changes", "verdicts"),
    [
        ({"sampling": Sampling(quick=True, steps=20, seconds=2.0, processes=4)}, [SAME]),
        ({"knobs": {"memory_format": "contiguous"}}, ["not comparable"]),
        ({"batch": 16}, ["not comparable", "not comparable"]),
    ],
)
def test_cases_are_paired_by_what_they_train_not_by_how_long(tmp_path, changes, verdicts):
    runs = [
        MeasuredRun.read(made(tmp_path / name, cases=[case_of("pytorch", **values)]).folder.path)
        for name, values in (("before", {}), ("after", changes))
    ]
    assert [one.verdict for one in compare(*runs, 0.03).cases] == verdicts


def test_other_knobs_are_compared_where_a_person_allows_it_and_another_network_never(command, before, tmp_path):
    other = (case_of("pytorch", knobs={"memory_format": "contiguous"}), CASES[1])
    after = made(tmp_path / "after", cases=other).folder.path
    words = "knobs: memory_format channels_last → contiguous"
    barred, allowed = (command("compare", before, after, *options) for options in ((), ("--across", "knobs")))
    assert (barred.code, allowed.code) == (2, 0)
    assert f"not comparable: {words}" in barred.out
    assert f"not the same: {words}" in allowed.out
    networks = [case.on(graph_digest="e" * 64) for case in CASES]
    done = command("compare", before, made(tmp_path / "networks", cases=networks).folder.path)
    assert (done.code, "has no such case" in done.out) == (2, False)
    assert "has another network by the name alexnet (2 cases)" in done.out


def test_only_cases_of_the_first_run_need_a_counterpart(command, before, tmp_path):
    after = made(tmp_path / "after", cases=(*CASES, case_of("pytorch", batch=16))).folder.path
    done = command("compare", before, after)
    assert (done.code, done.out.splitlines()[-1]) == (0, SAME)
    assert f"not comparable: {before} has no such case" in done.out.replace("\n", "")
    assert command("compare", after, before).code == 2


def test_runs_that_differ_among_themselves_hide_a_change(command, before, tmp_path):
    after = made(tmp_path / "after", 1.1, 1.0).folder.path
    levels = (1.0, 1.12, 0.95, 1.08, 0.9, 1.1)
    runs = [made(tmp_path / f"run{at}", level, 1.0).folder.path for at, level in enumerate(levels)]
    assert command("compare", before, after).code == 1
    assert command("compare", before, after, "--threshold", "20%").code == 0, "a change below the threshold is none"
    noisy = command("compare", before, after, *(word for run in runs for word in ("--history", run)))
    assert noisy.code == 0
    assert "equal runs differ too much for any number of processes" in noisy.out


def test_runs_of_the_history_that_tell_nothing_are_named(command, before, tmp_path):
    after = made(tmp_path / "after").folder.path
    bare = MadeRun(tmp_path / "bare")
    bare.add(CASES[0])  # without a proof
    elsewhere = made(tmp_path / "elsewhere", cases=[case_of("pytorch", batch=16), CASES[1]]).folder.path
    fit = made(tmp_path / "fit").folder.path
    runs = (bare.folder.path, elsewhere, fit, after)
    words = [word for run in runs for word in ("--history", run)]
    lines = json.loads(command("compare", before, after, *words, "--json").stdout)["history_unused"]
    assert f"--history {bare.folder.path} says nothing of 1 case: it has no speed of it" in lines
    assert any(line.startswith(f"--history {bare.folder.path} says nothing of 1 case: no proof") for line in lines)
    assert f"--history {elsewhere} says nothing of 1 case: it has no speed of it" in lines
    assert f"--history {after} is the second run itself" in lines
    assert len(lines) == 4
    assert str(elsewhere) in command("compare", before, after, *words).out.replace("\n", "")


def test_too_few_processes_are_told_with_how_many_it_takes(command, tmp_path):
    runs = [made(tmp_path / name, repeats=2).folder.path for name in ("before", "after")]
    out = command("compare", *runs).out
    assert "a slow-down of 3.0% might not have shown: measure as many processes" in out
    assert all(int(line.split()[-1]) > 2 for line in out.splitlines()[1:3])


@pytest.mark.parametrize(("until", "told"), [(None, "3%"), (0.005, "0.5%"), (-1.0, "3%")])
def test_show_says_what_it_takes_to_see_a_small_change(command, tmp_path, until, told):
    """As small as the run was to show, where it was measured until then."""
    folder = made(tmp_path / "run", repeats=2).folder
    folder.write_about(folder.about.but(until=until))
    out = command("show", folder.path).out
    assert f"2 cases: too few processes to see a change of {told} in another run; " in out
    assert "too few" not in command("show", made(tmp_path / "long", repeats=40).folder.path).out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("compare", "{before}", "{before}"), "are the same run; name two runs"),
        (("compare", "{before}", "{empty}"), "has measured no speed; `stagebench show"),
        (("compare", "{before}", "{after}", "--threshold", "3"), "--threshold '3' should read N%"),
        (("compare", "{before}", "{after}", "--across", "method"), "'method': what may differ is machine or knobs"),
        (("compare", "{before}", "{after}", "--json", "--markdown"), "leave one of them out"),
        (("compare", "{before}", "{torn}"), "torn/cases.json"),
        (("history", "{before}", "{before}"), "a history takes two runs or more"),
    ],
)
def test_nonsense_is_refused(command, before, tmp_path, words, told):
    names = {"before": before, "after": made(tmp_path / "after").folder.path}
    empty = MadeRun(tmp_path / "empty")
    empty.refuse(CASES[0], None, "")
    torn = made(tmp_path / "torn").folder.path
    (torn / "cases.json").write_text("{")
    done = command(*(word.format(**names, empty=empty.folder.path, torn=torn) for word in words))
    assert isinstance(done.error, RequestError)
    assert told in str(done.error)


def days(folder, change, since, commits=False):
    """Twelve runs, slower from the sixteenth of the month on, with a change since some day."""
    runs = []
    for day in range(10, 22):
        slower = (1.2 if day >= 16 else 1.0) * (1 + 0.01 * (day % 3))
        commit = ("b" if day >= 16 else "a") * 40 if commits else ""
        run = made(folder / f"day{day}", slower, 1.0, day=day, commit=commit)
        if day >= since:
            change(run)
        runs.append(run.folder.path)
    return runs


@pytest.mark.parametrize(
    ("change", "since", "differs"),
    [
        (another_host, 16, ["system: hosts bench → other"]),
        (another_framework, 15, ["a run earlier: versions: Python 3.11.7 → 3.12.1"]),
        (another_framework, 17, ["a run later: versions: Python 3.11.7 → 3.12.1"]),
        (another_framework, 14, []),
    ],
)
def test_a_history_names_what_changed_at_the_place_or_a_run_beside_it(tmp_path, change, since, differs):
    runs = days(tmp_path, change, since)
    (found,) = history(list(map(MeasuredRun.read, runs)), 0.03)[0].changes
    assert (found.at, list(found.differs)) == (6, differs)


def test_a_history_names_the_first_run_of_a_change_and_what_changed_with_it(command, tmp_path):
    runs = days(tmp_path, another_framework, 16, commits=True)
    found = json.loads(command("history", *runs[::-1], "--json").stdout)
    (change,) = found[0]["changes"]
    assert found[0]["points"][change["at"]]["run"] == str(runs[6])
    assert change["ratio"] == pytest.approx(1 / 1.2, rel=0.02)
    assert change["differs"] == ["versions: Python 3.11.7 → 3.12.1", f"code: commit {'a' * 40} → {'b' * 40}"]
    assert found[1]["changes"] == []
    out = command("history", *runs).out
    assert f"from {runs[6]} on; what changed there: versions: Python 3.11.7 → 3.12.1" in out
    assert "no change" in out
    assert "too few runs to tell a change: it takes 5" in command("history", *runs[:2]).out


def halved(tried):
    tried.update(rate=tried["rate"] / 2, wall_s=2 * tried["wall_s"])


def doubled(tried):
    tried["latency_s"] = [2 * seconds for seconds in tried["latency_s"]]
    tried["stage_s"] = {name: 2 * seconds for name, seconds in tried["stage_s"].items()}


def served(path, change=lambda tried: None, bound_ms=20.0, **changes):
    """A run of the load `server`, whose offline speed never changes."""
    rule = Serving(bound_ms=bound_ms, bound_share=0.9, model_server="mosec")
    case = case_of(strategy="inference", passes=("offline", "server"), serving=rule)
    run = made(path, cases=[case], **changes)
    run.changed(case, lambda record: list(map(change, record["ranks"][0]["tries"])), range(5))
    return run.folder.path


@pytest.mark.parametrize(
    ("change", "bound_ms", "verdict", "words"),
    [
        (lambda tried: None, 20.0, SAME, ""),
        (halved, 20.0, "slower", "p90 at 100 queries/s"),
        (doubled, 35.0, "slower", "p90 at 200 queries/s"),
        (doubled, 1000.0, SAME, "p90 at 200 queries/s"),
        (doubled, 20.0, "not comparable", "no rate of its queries is known to keep the bound"),
    ],
)
def test_a_model_server_is_judged_by_the_rate_that_keeps_the_bound(command, tmp_path, change, bound_ms, verdict, words):
    before, after = served(tmp_path / "before", bound_ms=bound_ms), served(tmp_path / "after", change, bound_ms)
    (found,) = json.loads(command("compare", before, after, "--json").stdout)["cases"]
    assert found["verdict"] == verdict
    if change is halved:
        assert found["ratio"]["value"] == pytest.approx(0.5, rel=1e-6)
    assert words in command("compare", before, after).out
    assert bool(found["bounded_latency"]) == (change in (halved, doubled))


def test_a_rate_that_is_known_to_a_step_is_no_verdict_and_two_steps_are_one(command, tmp_path):
    """Every process keeps the bound at its largest rate, so that their scatter says nothing."""
    before, *others = [
        served(tmp_path / f"by{step}", lambda tried, step=step: tried.update(rate=tried["rate"] * step), 1000.0)
        for step in (1.0, 10**0.1, 10**0.2)
    ]
    found = [json.loads(command("compare", before, each, "--json").stdout) for each in others]
    assert [each["verdict"] for each in found] == [SAME, "faster"]


def test_a_history_of_a_model_server_is_that_of_the_rate_that_keeps_the_bound(command, tmp_path):
    days = [served(tmp_path / f"day{day}", *[halved] * (day > 14), day=day) for day in range(10, 20)]
    found = json.loads(command("history", *days, "--json").stdout)
    (change,) = found[0]["changes"]
    assert (change["at"], change["ratio"]) == (5, pytest.approx(0.5))
    assert found[0]["points"][0]["queries_per_second"]["value"] > 100
    assert "queries/s" in command("history", *days).out
    none = [served(tmp_path / f"none{day}", doubled, day=day) for day in (10, 11)]
    done = command("history", *none)
    assert "2 rows left out, no rate of its queries is known to keep the bound" in str(done.error)


def test_a_history_says_what_it_leaves_out(command, tmp_path):
    runs = []
    for day in (10, 11):
        run = MadeRun(tmp_path / f"day{day}")
        run.proven(case_of("pytorch"))
        run.add(case_of("caffempi"))
        runs.append(run.folder.path)
    shown = command("history", *runs).out
    assert "pytorch" in shown
    assert "2 rows left out, no proof: nothing shows that it trains the same network" in shown
    bare = [MadeRun(tmp_path / f"bare{day}") for day in (10, 11)]
    for run in bare:
        run.add(case_of("caffempi"))
    done = command("history", *(run.folder.path for run in bare))
    assert "have no case for a history; 2 rows left out, no proof: " in str(done.error)


def test_a_commit_is_that_of_the_repository_one_works_in(tmp_path, monkeypatch):
    assert commit_of(tmp_path) == ("", "")

    def git(*words):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=tmp_path, check=True)

    git("init", "-q")
    (tmp_path / "file").write_text("1")
    git("add", "file")
    git("commit", "-q", "-m", "1")
    clean, _ = commit_of(tmp_path)
    assert len(clean) == 40
    (tmp_path / "file").write_text("2")
    assert commit_of(tmp_path) == (f"{clean}-dirty", "")
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")  # git's own: as if another user owned it
    assert "dubious ownership" in commit_of(tmp_path)[1]
