"""A plan from the command line's options alone."""

import pytest

from stagebench.suite.errors import RequestError
from stagebench.suite.plan import parse, resolve
from stagebench.suite.plan.options import plan_of
from stagebench.suite.plugins import adapters, launchers, workloads

ALPHA = {"adapter": "alpha", "workload": "mnist_small"}
ALONE = (("alpha", "single"), ("beta", "single"))


@pytest.fixture
def described(toys):
    """What the options come to."""

    def make(knobs=None, overrides=None, **asked):
        plan = plan_of(asked, knobs or {}, toys.adapters, overrides)
        return resolve(plan, toys.adapters, toys.launchers, toys.workloads)

    return make


def test_options_are_swept_as_a_block_s_lists(described):
    found = described(**ALPHA, batch="8,16", threads="1, 2", tuning="tuned")
    swept = [(each.case.batch, each.case.placement.threads, each.case.tuning) for each in found]
    assert swept == [(batch, threads, "tuned") for batch in (8, 16) for threads in (1, 2)]
    assert {(each.case.strategy, each.case.data, each.outcome) for each in found} == {("single", "synthetic", None)}
    found = described(**ALPHA, strategy="ddp,free", ranks="2")
    assert [each.case.strategy for each in found] == ["ddp", "free"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, {("pytorch", "float32"), ("reference", "float64")}),
        ({"strategy": "single"}, {("pytorch", "float32"), ("reference", "float64")}),
        ({"precision": "bfloat16"}, {("pytorch", "bfloat16"), ("reference", "bfloat16")}),
    ],
)
def test_an_adapter_without_float32_takes_its_own_precision(options, expected):
    plan = plan_of({"adapter": "pytorch,reference", "workload": "mnist_small", **options}, {}, adapters())
    cases = resolve(plan, adapters(), launchers(), workloads())
    assert {(each.case.adapter, each.case.precision) for each in cases} == expected
    refused = [each.case.adapter for each in cases if "precision" in each.reason]
    assert refused == (["reference"] if options.get("precision") else [])
    swept = plan_of({"adapter": "reference", "workload": "mnist_small"}, {}, adapters(), {"precision": ["float32"]})
    assert [each.case.precision for each in resolve(swept, adapters(), launchers(), workloads())] == ["float32"]


@pytest.mark.parametrize(
    ("placement", "expected"),
    [
        ({}, {("alpha", "single", 1, 1), ("beta", "single", 1, 1)}),
        ({"ranks": "2"}, {("alpha", "ddp", 2, 1), ("beta", "ring", 2, 1)}),
        ({"devices": "2"}, {("alpha", "mirror", 1, 2), ("beta", "single", 1, 2)}),
        ({"ranks": "1,4"}, {(*single, 1, 1) for single in ALONE} | {("alpha", "ddp", 4, 1), ("beta", "ring", 4, 1)}),
    ],
)
def test_each_adapter_takes_its_first_strategy_that_fits(described, placement, expected):
    found = [each.case for each in described(adapter="alpha,beta", workload="mnist_small", **placement)]
    assert len(found) == len(expected)
    assert {(case.adapter, case.strategy, case.placement.ranks, case.placement.devices) for case in found} == expected


def test_a_knob_goes_to_those_that_have_it(described):
    found = described({"overlap": "none"}, adapter="alpha,beta", workload="mnist_small", ranks="2")
    assert [each.case.knobs.get("overlap") for each in found] == [None, "none"]
    found = described({"bucket": [1, 2]}, **ALPHA)
    assert [each.case.knobs["bucket"] for each in found] == [1, 2]


def test_a_knob_of_some_strategies_goes_to_their_blocks():
    asked = {"adapter": "mxnet", "workload": "mnist_small", "ranks": "1,2"}
    plan = plan_of(asked, {"servers": [2]}, adapters())
    found = [(each.block.strategy, dict(each.block.knobs)) for each in plan.blocks]
    assert found == [(["single"], {}), (["dist_sync"], {"servers": [2]})]


def test_sampling_below_the_full_one_is_marked(described):
    (case,) = (each.case for each in described(**ALPHA, steps="5", seconds="0.5", processes="2"))
    assert (case.sampling.steps, case.sampling.seconds, case.sampling.processes) == (5, 0.5, 2)
    assert case.sampling.quick
    (case,) = (each.case for each in described(**ALPHA, processes="9"))
    assert (case.sampling.processes, case.sampling.quick) == (9, False)


@pytest.mark.parametrize(
    "asked",
    [
        {"ranks": "1,2", "batch": "4", "passes": "native", "data": "synthetic"},
        {"adapter": "alpha,beta", "workload": "mnist_small,alexnet", "batch": "4,8", "ranks": "1,2", "devices": "1,2"},
        {"strategy": "ddp,free", "ranks": "2", "seed": "7"},
    ],
)
def test_its_text_is_a_plan_of_the_same_cases(toys, tmp_path, asked):
    plan = plan_of({**ALPHA, **asked, "steps": "5"}, {"bucket": 3}, toys.adapters, {"sampling.warmup_limit": 0.5})
    again = parse(plan.text, tmp_path / "plan.toml")
    ids = [
        [each.case.id for each in resolve(one, toys.adapters, toys.launchers, toys.workloads)] for one in (plan, again)
    ]
    assert ids[0] == ids[1]
    assert (again.name, again.title) == (plan.name, plan.title)


def test_several_nodes_are_several_ranks_and_a_plan_is_called_as_its_values(toys):
    plan = plan_of({**ALPHA, "ranks": "1,2", "batch": "4"}, {}, toys.adapters)
    assert (plan.name, plan.title) == ("alpha-mnist_small", "alpha; mnist_small; batch 4; ranks 1, 2")
    assert plan_of({}, {}, toys.adapters).name == "options"
    assert plan_of({"adapter": "-a b!" + "c" * 70}, {}, toys.adapters).name == "ab" + "c" * 57
    plan = plan_of({**ALPHA, "batch": ",".join(map(str, range(1, 301)))}, {}, toys.adapters, {})
    assert plan.title.endswith("…")
    assert len(plan.title) == 500
    plan = plan_of({**ALPHA, "nodes": "1,2", "ranks": "1,2"}, {}, toys.adapters)
    blocks = [(each.block.strategy, each.block.nodes, each.block.ranks) for each in plan.blocks]
    assert blocks == [(["single"], [1], [1]), (["ddp"], [1], [2]), (["ddp"], [2], [1, 2])]


def test_paths_are_written_whole(toys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pictures").mkdir()
    asked = {"adapter": "alpha", "workload": "nets/mine.py,alexnet", "data": "pictures,digits"}
    plan = plan_of(asked, {}, toys.adapters)
    block = plan.blocks[0].block
    assert block.workload == [str(tmp_path / "nets" / "mine.py"), "alexnet"]
    assert block.data == [str(tmp_path / "pictures"), "digits"]
    assert plan.name == "alpha-mine-alexnet"


@pytest.mark.parametrize(
    ("asked", "problem"),
    [
        ({"batch": "0"}, "--batch: batch = 0: "),
        ({"batch": "8,x"}, "--batch: batch = 'x': "),
        ({"adapter": "alhpa"}, "--adapter: unknown adapter 'alhpa'; did you mean 'alpha'?"),
        ({"workload": "alexnt"}, "--workload: unknown workload 'alexnt'; did you mean 'alexnet'?"),
        ({"data": "digts"}, "--data: data = 'digts': there is no such file or folder"),
        ({"steps": "5,6"}, "--steps: steps = [5, 6]: "),
        ({"processes": "many"}, "--processes: processes = 'many': "),
        ({"nodes": "2", "ranks": "1"}, "--nodes: nodes = 2, but the launcher 'local' knows only this machine"),
    ],
)
def test_what_is_wrong_names_the_option(described, asked, problem):
    options = {**ALPHA, **asked}
    if "nodes" in asked:
        options["strategy"] = "mirror"  # it has no launcher for several nodes
    with pytest.raises(RequestError) as caught:
        described(**options)
    assert problem in str(caught.value)


def test_a_knob_that_no_adapter_has_and_what_must_be_named_are_asked_for(described):
    with pytest.raises(RequestError, match=r"--knob buckt: unknown knob 'buckt' for alpha; did you mean 'bucket'\?"):
        described({"buckt": 1}, **ALPHA)
    for missing in ("adapter", "workload"):
        with pytest.raises(RequestError, match=f"the options: this block names no {missing}; known: "):
            described(**{key: value for key, value in ALPHA.items() if key != missing})
