"""`--set KEY=VALUE`: another value than the plan's, kept with the plan."""

import tomllib

import pytest

from stagebench.suite.errors import RequestError
from stagebench.suite.plan import load, resolve
from stagebench.suite.plan.overrides import is_path, overrides_from, without_table
from stagebench.suite.plan.read import differences

PLAN = """\
# What it asks.
name = "mine"

[defaults]
workload = "mnist_small"
batch = 4

[sampling]
steps = 50

[[cases]]
adapter = "alpha"
strategy = "single"
batch = [16, 32]
knobs.bucket = 5

[[cases]]
adapter = "beta"
strategy = "single"

[scale.tiny]
divide_batch = 16

[scale.tiny.keep]
adapter = "alpha"
batch = 16

[scale.tiny.sampling]
quick = true
steps = 3
"""


@pytest.fixture
def plan(tmp_path):
    """The plan above with `--set` options."""

    def make(*options, scale=None, text=PLAN):
        file = tmp_path / "plan.toml"
        file.write_text(text)
        return load(file, scale, overrides_from(options))

    return make


@pytest.fixture
def cases(toys):
    """Its cases, none refused."""

    def make(plan):
        return [found.case for found in resolve(plan, toys.adapters, toys.launchers, toys.workloads)]

    return make


@pytest.mark.parametrize(
    ("option", "key", "value"),
    [
        ("batch=[8, 16]", "batch", [8, 16]),
        ("batch=8,16", "batch", [8, 16]),
        ("sampling.seconds=0.5", "sampling.seconds", 0.5),
        ("workload=alexnet", "workload", "alexnet"),
        ("adapter=alpha,beta", "adapter", ["alpha", "beta"]),
        ("page_cache=as is", "page_cache", "as is"),
        ("knobs.format=last", "knobs.format", "last"),
        ("data=/a=b", "data", "/a=b"),
        ("seed=1979-05-27", "seed", "1979-05-27"),
        ("seed={a = 1}", "seed", {"a": 1}),
    ],
)
def test_an_option_is_a_key_and_a_value_of_toml_or_a_word(option, key, value):
    assert overrides_from([option]) == {key: value}


@pytest.mark.parametrize("value", ["{ a = 1 }", "1979-05-27"])
def test_a_value_of_another_kind_is_refused_at_its_option(toys, plan, value):
    with pytest.raises(RequestError, match=f'--set seed="?{value}"?: seed = .*: .*valid integer'):
        resolve(plan(f"seed={value}"), toys.adapters, toys.launchers, toys.workloads)


def test_paths_start_where_the_person_stands(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pictures").mkdir()
    assert overrides_from(["workload=./mine.py,alexnet", "data=pictures"]) == {
        "workload": [str(tmp_path / "mine.py"), "alexnet"],
        "data": str(tmp_path / "pictures"),
    }
    assert overrides_from(["data=digits"]) == {"data": "digits"}
    assert [is_path(each) for each in ("net.json", "net.py", "nets/a", "net")] == [True, True, True, False]


@pytest.mark.parametrize(
    ("option", "place", "remedy"),
    [
        ("batch", "--set 'batch'", "should read KEY=VALUE"),
        ("batch=", "--set 'batch='", "should read KEY=VALUE"),
        ("bacth=8", "--set bacth=8: a plan has no key 'bacth'", "did you mean 'batch'?"),
        ("sampling.step=8", "no key 'sampling.step'", "did you mean 'sampling.steps'?"),
        ("knobs=8", "no key 'knobs'", "knobs.NAME"),
        ("scale.tiny=8", "no key 'scale.tiny'", "known: "),
    ],
)
def test_a_wrong_option_is_refused_with_the_remedy(option, place, remedy):
    with pytest.raises(RequestError) as caught:
        overrides_from([option])
    assert place in str(caught.value)
    assert remedy in str(caught.value)


def test_a_key_a_knob_and_sampling_are_replaced_and_less_than_the_full_one_is_marked(plan, cases):
    assert [case.batch for case in cases(plan())] == [16, 32, 4]
    assert [case.batch for case in cases(plan("batch=8"))] == [8, 8]
    found = cases(plan("batch=[1,2]", "adapter=alpha"))
    assert [(case.adapter, case.batch) for case in found] == [("alpha", 1), ("alpha", 2)] * 2
    assert [case.knobs.get("bucket") for case in cases(plan("knobs.bucket=7"))] == [7, 7, None]
    assert [case.knobs["format"] for case in cases(plan("knobs.format=last", "adapter=alpha"))] == ["last"] * 3
    (first, *_) = cases(plan("sampling.steps=5"))
    assert (first.sampling.steps, first.sampling.quick) == (5, True)
    (first, *_) = cases(plan("sampling.steps=60"))
    assert (first.sampling.steps, first.sampling.quick) == (60, False)
    (first, *_) = cases(plan("sampling.steps=5", text=PLAN.replace("[sampling]\nsteps = 50\n", "")))
    assert first.sampling.steps == 5


def test_an_override_has_the_last_word_over_a_scale(plan, cases):
    (case,) = cases(plan(scale="tiny"))
    assert (case.adapter, case.batch, case.sampling.steps) == ("alpha", 1, 3)
    found = cases(plan("batch=64", "adapter=alpha", "strategy=ddp", "sampling.steps=7", scale="tiny"))
    assert {(case.strategy, case.batch, case.sampling.steps) for case in found} == {("ddp", 64, 7)}
    both = cases(plan("adapter=alpha,beta", "knobs.bucket=1", scale="tiny"))
    assert {case.adapter for case in both} == {"alpha", "beta"}
    text = PLAN.replace("[scale.tiny.keep]\n", "[scale.tiny.keep]\nknobs.bucket = 5\n")
    (case,) = cases(plan("knobs.bucket=9", scale="tiny", text=text))
    assert case.knobs["bucket"] == 9


def test_it_is_kept_with_the_plan_and_means_the_same_there(plan, cases, tmp_path):
    changed = plan("sampling.steps=5", "batch=[8]", "knobs.bucket=7")
    assert changed.text.startswith(PLAN)
    assert tomllib.loads(changed.text)["overrides"] == {"sampling.steps": 5, "batch": [8], "knobs.bucket": 7}
    again = plan(text=changed.text)
    assert [case.id for case in cases(again)] == [case.id for case in cases(changed)]
    assert plan("sampling.steps=5", "batch=[8]", "knobs.bucket=7").text == changed.text
    more = plan("batch=9", text=changed.text)
    assert tomllib.loads(more.text)["overrides"] == {"sampling.steps": 5, "batch": 9, "knobs.bucket": 7}
    assert more.text.count("[overrides]") == 1


def test_what_is_wrong_names_the_option_or_the_kept_one_s_line(plan, cases):
    with pytest.raises(RequestError) as caught:
        cases(plan("batch=[0]", "workload=alexnett", "sampling.steps=none"))
    lines = str(caught.value).splitlines()[1:]
    assert [line.partition(": ")[0] for line in lines] == [
        "--set batch=[0]",
        "--set sampling.steps=" + '"none"',
        '--set workload="alexnett"',
    ]
    assert "did you mean 'alexnet'?" in lines[2]
    text = PLAN + "\n[overrides]\nbatch = 0\nbacth = 8\n"
    last = len(text.splitlines())
    with pytest.raises(RequestError) as caught:
        cases(plan(text=text))
    lines = str(caught.value).splitlines()[1:]
    assert f"plan.toml:{last - 1}: batch = 0: " in lines[0]
    assert f"plan.toml:{last}: a plan has no key 'bacth'; did you mean 'batch'?" in lines[1]


def test_the_table_is_cut_out_wherever_it_stands_and_differences_are_said_in_words(plan):
    assert differences(PLAN, PLAN + "# a comment\n") == []
    assert differences(PLAN, "corrected") == []
    assert differences(plan("batch=8").text, PLAN) == ["--set batch=8 there, no --set batch here"]
    assert differences(plan("batch=8").text, plan("batch=9").text) == ["--set batch=8 there, --set batch=9 here"]
    (steps,) = differences(PLAN, PLAN.replace("steps = 50", "steps = 60"))
    assert steps == "sampling.steps = 50 there, sampling.steps = 60 here"
    assert differences(PLAN, PLAN.replace("knobs.bucket = 5", "lr = 0.5")) == [
        "no cases[0].lr there, cases[0].lr = 0.5 here",
        "cases[0].knobs.bucket = 5 there, no cases[0].knobs.bucket here",
    ]
    before, after = 'name = "x"\n\n', '[[cases]]\nadapter = "a"\n'
    table = "# --set on the command line\n[overrides]\nbatch = [8]\n\n"
    assert without_table(before + table + after) == before + after
    assert without_table(before + after + table) == before + after
