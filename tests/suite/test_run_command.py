"""`stagebench run` and `stagebench show`, as a person types them."""

import json
import tomllib

import pytest

from stagebench.suite.errors import RequestError
from stagebench.workloads.networks import by_name

ALPHA = ("--adapter", "alpha", "--workload", "mnist_small")
BRIEF = ("--steps", "3", "--seconds", "0", "--processes", "1", "--passes", "native", "--set", "sampling.warmup_steps=1")


@pytest.fixture
def measured(startable, stagebench, tmp_path):
    """Really run, briefly, without proofs, into `out`; the result and the folder."""

    def run(*arguments):
        return stagebench("run", *arguments, "--no-proofs", "-o", str(tmp_path / "out")), tmp_path / "out"

    return run


def test_print_plan_prints_it_and_starts_nothing(stagebench, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    told = stagebench("run", *ALPHA, "--batch", "8,16", "--ranks", "1,2", "--set", "sampling.steps=5", "--print-plan")
    assert told.code == 0
    assert tomllib.loads(told.out) == {
        "name": "alpha-mnist_small",
        "title": "alpha; mnist_small; batch 8, 16; ranks 1, 2",
        "defaults": {"workload": "mnist_small", "batch": [8, 16]},
        "cases": [{"adapter": "alpha", "strategy": "single"}, {"adapter": "alpha", "strategy": "ddp", "ranks": 2}],
        "overrides": {"sampling.steps": 5},
    }
    assert not list(tmp_path.glob("results*"))
    assert stagebench("run", *ALPHA, "--batch", "0", "--print-plan").code != 0


@pytest.mark.parametrize(
    ("arguments", "problem", "remedy"),
    [
        ((), "name a plan", "--adapter alpha,beta"),
        (("quick", "--batch", "8"), "--batch describes a case in place of a plan, and 'quick'", "--set batch="),
        (("quick", "--steps", "8"), "--steps describes a case", "--set sampling.steps=VALUE"),
        (("quick", "--knob", "a=1"), "--knob describes a case", "--set knobs.a=VALUE"),
        ((*ALPHA, "--scale", "small"), "--scale small is a profile of a plan", "leave it out"),
        ((*ALPHA, "--knob", "bucket"), "--knob 'bucket'", "should read NAME=VALUE"),
        ((*ALPHA, "--set", "batch=0"), "--set batch=0: batch = 0", "greater than or equal to 1"),
        (
            ("--adapter", "alpha", "--workload", "nets/a.py"),
            "--workload: there is no file",
            "stagebench.workloads.build",
        ),
        (("quick", "--set", "workload=nets/a.json"), "--set workload=", "there is no file"),
    ],
)
def test_a_wrong_request_is_one_message_with_its_place_and_remedy(refusal, arguments, problem, remedy):
    told = refusal("run", *arguments)
    assert problem in told
    assert remedy in told


def test_what_options_describe_is_measured_kept_and_shown_again(measured, stagebench):
    told, folder = measured(*ALPHA, *BRIEF, "--batch", "4,8")
    assert told.code == 0, told.out
    kept = tomllib.loads((folder / "plan.toml").read_text())
    assert (kept["defaults"]["batch"], kept["overrides"]) == ([4, 8], {"sampling.warmup_steps": 1})
    shown = stagebench("show", str(folder))
    assert shown.code == 0
    assert shown.out in told.out, "the same table"
    assert shown.out.splitlines()[0] == "Nothing may be compared"
    whole = stagebench("show", str(folder), "--full").out
    assert [f"mnist_small · 1 device · batch {size}" in whole for size in (4, 8)] == [True, True]
    assert shown.out.count("no proof") == 2
    found = json.loads(stagebench("show", str(folder), "--json").out)
    assert [row["case"]["batch"] for row in found] == [4, 8]
    assert all(row["samples_per_second"]["value"] > 0 for row in found)


def test_a_resume_without_the_override_says_what_differs(measured):
    first, folder = measured(*ALPHA, *BRIEF)
    assert first.code == 0
    again, _ = measured(*ALPHA, *BRIEF)
    assert "1 of them measured before" in again.out
    error = measured(*ALPHA, *BRIEF[:-2])[0].error
    assert isinstance(error, RequestError)
    assert "--set sampling.warmup_steps=1 there, no --set sampling.warmup_steps here" in str(error)
    assert f"{folder / 'plan.toml'}" in str(error)
    kept = measured(str(folder / "plan.toml"))[0]
    assert "1 of them measured before" in kept.out


def test_a_network_of_one_s_own_is_measured_and_kept(measured, tmp_path):
    graph = {**by_name()["mnist_small"].graph().to_dict(), "name": "mine"}
    (tmp_path / "mine.json").write_text(json.dumps(graph))
    told, folder = measured("--adapter", "alpha", "--workload", str(tmp_path / "mine.json"), *BRIEF)
    assert told.code == 0, told.out
    assert "alpha/single mine 1 rank batch 8" in told.out
    assert json.loads((folder / "networks" / "mine.json").read_text()) == graph


def test_a_reason_is_said_once_for_an_adapter(measured, stagebench):
    told, folder = measured(
        "--adapter", "beta", "--workload", "mnist_small", "--data", "synthetic", "--tuning", "default,tuned",
        "--batch", "4,8", *BRIEF,
    )  # fmt: skip
    reason = "unsupported: beta (2 cases): beta does not do tuning 'tuned'; it does default"
    assert told.out.count("does not do tuning") == 1
    assert reason in told.out.splitlines()
    assert reason in stagebench("show", str(folder)).out.splitlines()
