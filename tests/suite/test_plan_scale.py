"""Scales: what they leave of a plan, and the slips in them."""

import json

import pytest

from stagebench.suite.analysis.comparability import group
from stagebench.suite.analysis.inputs import MODES, fed_alike, mode_of
from stagebench.suite.errors import RequestError
from stagebench.suite.plan import Plan, load, ready_made, resolve
from stagebench.suite.plugins import adapters, launchers, workloads
from stagebench.suite.results.records import About
from stagebench.suite.results.run_folder import RunFolder
from tests.support.errors import raising

PLAN = """\
name = "x"
[sampling]
quick = true
steps = 20
processes = 2
[training]
epochs = 7
[scale.small]
divide_batch = 16
[scale.small.keep]
workload = ["mnist_small", "alexnet"]
batch = [8, 12,
  256]
ranks = 1
knobs = { bucket = [3] }
[scale.small.sampling]
steps = 5
[scale.small.training]
epochs = 2
[scale.plain]
[[cases]]
adapter = "alpha"
strategy = "ddp"
workload = ["mnist_small", "mnist_large"]
batch = [8, 12, 64, 256]
ranks = [1, 2]
[[cases]]
adapter = "alpha"
strategy = "single"
workload = "alexnet"
batch = 12
knobs = { bucket = [3, 4] }
[[cases]]
adapter = "beta"
strategy = "single"
workload = "mnist_small"
batch = 64
"""


@pytest.fixture
def resolved(toys, plan_file):
    def made(text=PLAN, scale=None, hosts=(), launcher="auto"):
        plan = load(plan_file(text), scale)
        return resolve(plan, toys.adapters, toys.launchers, toys.workloads, hosts, launcher)

    return made


def test_a_scale_keeps_divides_multiplies_and_merges_before_an_override(resolved):
    cases = [each.case for each in resolved(scale="small")]
    told = [(case.adapter, case.workload, case.batch, case.placement.ranks, case.knobs["bucket"]) for case in cases]
    alpha = [("mnist_small", 1, 1, 25), ("mnist_small", 16, 1, 25), ("alexnet", 1, 1, 3)]
    assert told == [("alpha", *each) for each in alpha]
    assert {(case.sampling.steps, case.sampling.processes) for case in cases} == {(5, 2)}
    text = PLAN.replace("divide_batch = 16", 'multiply_batch = 3\ndevice = "cuda"')
    cases = [each.case for each in resolved(text, scale="small")]
    assert {(case.placement.device, case.batch) for case in cases} == {("cuda", batch) for batch in (24, 36, 768)}
    said = 'device = "cpu"\nbatch = 5\n'
    cases = [each.case for each in resolved(text + f"[overrides]\n{said}", scale="small")]
    assert {(case.placement.device, case.batch) for case in cases} == {("cpu", 5)}


def test_passes_and_training_are_scaled_and_the_whole_set_is_not_divided(toys, plan_file):
    text = PLAN.replace("ranks = 1\n", 'ranks = 1\npasses = ["native", "staged"]\n')
    plan = load(plan_file(text), "small")
    assert plan.training.epochs == 2
    found = resolve(plan, toys.adapters, toys.launchers, toys.workloads)
    assert {each.case.passes for each in found} == {("native", "staged")}
    text = PLAN.replace("batch = [8, 12, 64, 256]", 'batch = [64, "all"]')
    text = text.replace("batch = [8, 12,\n  256]", 'batch = [64, "all"]')
    plan = load(plan_file(text), "small")
    assert plan.scale
    block = plan.scale.scaled(plan.blocks[0].block)
    assert block
    assert block.batch == [4, "all"]


@pytest.mark.parametrize(
    ("old", "new", "line", "told"),
    [
        ("divide_batch = 16", "divide_bacth = 16", 9, "unknown key 'divide_bacth'; did you mean 'divide_batch'?"),
        ("ranks = 1\n", "rank = 1\n", 14, "unknown key 'rank'; did you mean 'ranks'?"),
        ("ranks = 1\n", "ranks = [1, 3]\n", 14, "no block has ranks = 3; known: 1, 2"),
        ("ranks = 1\n", 'hosts = ["a"]\n', 14, "hosts are not swept"),
        ("  256]", "  257]", 13, "no block has batch = 257; did you mean '256'?"),
        ('"alexnet"]', '"alxnet"]', 11, "no block has workload = 'alxnet'; did you mean 'alexnet'?"),
        ("bucket = [3]", "bucket = [5]", 15, "no block has knob bucket = 5; known: 3, 4"),
        ("bucket = [3]", "buckt = [3]", 15, "no block has knob buckt = 3; known: none"),
        ("[scale.small.sampling]\nsteps", "[scale.small.sampling]\nstepz", 17, "unknown key 'stepz'"),
        ("[scale.plain]", "[scale]\nplain = 3", 21, "scale.plain is a table: write [scale.plain], not plain = 3"),
        ("[scale.plain]", '[scale.plain.keep]\nadapter = "beta"\nranks = 2', 20, "the scale 'plain' keeps no block"),
    ],
)
def test_a_slip_is_told_whether_the_scale_is_used_or_not(resolved, old, new, line, told):
    assert old in PLAN
    for scale in (None, "small"):
        with pytest.raises(RequestError) as error:
            resolved(PLAN.replace(old, new, 1), scale)
        assert error.value.exit_code == 2
        assert any(f"plan.toml:{line}: {told}" in each for each in str(error.value).splitlines()), error.value


def test_a_scale_below_the_design_says_so_and_without_one_nothing_changes(resolved):
    full = PLAN.replace("quick = true\nsteps = 20\nprocesses = 2\n", "steps = 60\n")
    with pytest.raises(RequestError, match=r"\[scale\.small\.sampling\] asks for less .* steps = 5 \(full: 50\)"):
        resolved(full)
    assert resolved(full.replace("steps = 5\n", "steps = 5\nquick = true\n"), "small")[0].case.sampling.quick
    with pytest.raises(RequestError, match="unknown adapter 'betta'"):  # in a block that the scale drops
        resolved(PLAN.replace('"beta"', '"betta"'), "small")
    with pytest.raises(RequestError, match=r"'x'.*'smal'.*'small'.*small, pl"):
        resolved(scale="smal")
    with_them, plain = resolved(), resolved(scale="plain")
    cut = PLAN[: PLAN.index("[scale.small]")] + PLAN[PLAN.index("[[cases]]") :]
    assert [each.case.id for each in with_them] == [each.case.id for each in plain]
    assert [each.case.id for each in with_them] == [each.case.id for each in resolved(cut)]
    assert with_them[0].case.sampling.steps == 20


NODES = """\
name = "x"
[[cases]]
adapter = "alpha"
strategy = "ddp"
workload = "mnist_small"
nodes = [1, 2]
"""


def test_a_launcher_and_hosts_fill_what_is_left_open(resolved):
    assert {each.case.placement.launcher for each in resolved(NODES, launcher="many")} == {"many"}
    own = NODES.replace("nodes = [1, 2]", 'nodes = 1\nlauncher = "local"')
    assert resolved(own, launcher="many")[0].case.placement.launcher == "local"
    with pytest.raises(RequestError, match=r"'meny'.*'many'"):
        resolved(NODES, launcher="meny")
    one, two = resolved(NODES, hosts=("localhost", "far", "further"))
    assert (one.case.placement.hosts, one.case.placement.launcher) == ((), "local")
    assert (two.case.placement.hosts, two.case.placement.launcher) == (("localhost", "far"), "many")
    assert one.case.id == resolved(NODES)[0].case.id
    own = resolved(NODES.replace("[1, 2]", '2\nhosts = ["a", "b"]'), hosts=("far", "further"))
    assert own[0].case.placement.hosts == ("a", "b")
    one, _ = resolved(NODES, hosts=("far", "further"))
    assert (one.case.placement.hosts, one.case.placement.launcher) == (("far",), "many")
    many = NODES.replace("[1, 2]", "1\nranks = 1024") + 'binding = "cores"\n'
    with pytest.raises(RequestError, match="this machine offers"):
        resolved(many)
    assert resolved(many, hosts=("far",))[0].outcome is None
    assert resolved(many.replace('"cores"', '"none"'))[0].outcome is None, "more ranks than cores are allowed"


def test_a_run_is_resumed_at_its_own_scale(tmp_path):
    folder = RunFolder(tmp_path / "run").begin(About(), "plan", "small")
    folder.write_cases([], "small")
    RunFolder(tmp_path / "run").begin(About(), "plan")  # nothing is measured: it may still become another run
    (folder.path / "records" / "abc-r0.json").write_text("{}")
    assert RunFolder.open(tmp_path / "run").scale == "small"
    RunFolder(tmp_path / "run").begin(About(), "plan", "small")
    with raising(RequestError, "--scale small"):
        RunFolder(tmp_path / "run").begin(About(), "plan")


def test_the_command_line(stagebench, refusal, plan_file):
    plan = plan_file(PLAN)
    assert "no scale 'tiny'; known: small, plain" in refusal("run", plan, "--scale", "tiny")
    assert "should read A,B,...: every host once, none empty" in refusal("run", plan, "--hosts", "a,,b")
    assert "every host once" in refusal("run", plan, "--hosts", "a,a")
    rows = json.loads(stagebench("list", "plans", "--json").out)
    assert {row["name"]: row["scales"] for row in rows}["quick"] == ["small", "tiny", "quickstart", "gpu"]


def shipped() -> list[tuple[str, str | None]]:
    return [(name, scale) for name in ready_made() for scale in (None, *load(name).scales)]


@pytest.mark.parametrize(("name", "scale"), shipped())
def test_every_shipped_plan_resolves_at_every_scale(name, scale):
    plan: Plan = load(name, scale)
    assert {"small", "tiny"} <= set(plan.scales)
    found = resolve(plan, adapters(), launchers(), workloads())
    assert found
    assert not any(each.reason.startswith("also spelt") for each in found), "a case that is written twice"
    # What is refused is refused by an adapter that says why, or asks for data that this test's empty home lacks.
    assert all(each.reason for each in found if each.outcome)
    if scale == "small":  # ten minutes on two cores, at fifteen seconds a process
        assert sum(each.case.sampling.processes for each in found if not each.outcome) <= 36


def test_shipped_plans_ask_what_their_sources_ask():
    cases = [each.case for each in resolve(load("quick"), adapters(), launchers(), workloads())]
    assert all(case.sampling.processes >= 5 > case.sampling.breakdowns for case in cases)
    assert len({group(case) for case in cases[:6]}) == 1 < len({case.adapter for case in cases[:6]})
    alone = [case for case in cases if (case.strategy, case.workload) == ("single", "mnist_small")]
    asked = {(case.adapter, case.tuning) for case in alone}
    assert asked == {(adapter, tuning) for adapter, _ in asked for tuning in ("default", "tuned")}
    sizes, times = load("batch-size"), load("time-to-train")
    assert sizes.blocks[0].block.batch == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, "all"]
    assert (sizes.training.epochs, times.training.epochs, times.training.patience) == (200, 20, 5)
    every = [written.block for written in times.blocks]
    several = {adapter for block in every if block.nodes == [2, 4] for adapter in block.adapter}
    assert several == {"pytorch", "mxnet", "caffempi", "horovod-pytorch", "horovod-mxnet"}


# They ask what an exchange costs, what a slow rank does, when a training is done, and what a transformer computes.
READING_NOTHING = ("inference", "prediction", "serving", "stragglers", "time-to-train", "transformers")


@pytest.mark.parametrize(
    ("name", "scale"),
    [(name, scale) for name, scale in shipped() if scale not in ("tiny", "text") and name not in READING_NOTHING],
)
def test_every_shipped_plan_tells_what_reading_costs(name, scale):
    """For every framework in it: beside resident batches; or without data, from memory and from disk, else alike."""
    found = resolve(load(name, scale), adapters(), launchers(), workloads())
    alike: dict[tuple[str, str], set[str]] = {}
    for each in found:
        alike.setdefault((each.case.adapter, fed_alike(each.case).id), set()).add(mode_of(each.case))
    told = {adapter for (adapter, _), modes in alike.items() if modes == set(MODES)}
    told |= {each.case.adapter for each in found if each.case.data != "synthetic" and "resident" in each.case.passes}
    assert told == {each.case.adapter for each in found}
