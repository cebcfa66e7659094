"""`stagebench predict` from the command line: numbers, a run, a measured link, a trace; and what it refuses."""

import json
from types import SimpleNamespace

import pytest

from stagebench.suite.contracts.case import Case, Placement
from stagebench.suite.predict.prediction import ASSUMED
from stagebench.suite.predict.scenario import MODEL_ERROR, SCHEDULES
from stagebench.suite.results.records import COMM, About, CaseEntry
from stagebench.suite.results.run_folder import RunFolder
from stagebench.workloads.networks.resnet import resnet50
from tests.reports.made_comm import collective, exchanged
from tests.reports.made_run import MadeRun, case_of

DIGEST = resnet50().digest
OF_RESNET = ("predict", "--workload", "resnet50", "--batch", "64", "--rate", "253.1")
NUMBERS = (*OF_RESNET, "--alpha", "2e-4", "--beta", "8e-10")
SIZES = (1, 1_000_000, 10_000_000)  # of an exchange, in numbers of four bytes

FUSED = ("--ranks", "4", "--schedule", "fused", "--json")


def sets(*values: str) -> tuple[str, ...]:
    return tuple(word for value in values for word in ("--set", value))


def printed(done: SimpleNamespace) -> list[dict]:
    assert done.code == 0, done.error
    return json.loads(done.stdout)


def test_numbers_alone_are_enough_for_every_schedule_and_merging_is_never_worse(stagebench):
    (found,) = printed(stagebench(*NUMBERS, "--ranks", "1,4,8", "--json"))
    one, four, eight = found["predictions"]
    assert one["rate"] == pytest.approx(253.1)
    assert 1 > four["efficiency"] > eight["efficiency"] > 0
    assert four["messages"] == 107
    assert found["gains"][0]["gain"] > 0
    assert found["measured"] == {}
    (found,) = printed(stagebench(*NUMBERS, "--ranks", "8,64", "--schedule", "all", "--json"))
    rates = {(row["ranks"], row["schedule"]): row["rate"] for row in found["predictions"]}
    assert {schedule for _, schedule in rates} == set(SCHEDULES)
    for ranks in (8, 64):
        others = (rates[ranks, name] for name in SCHEDULES if name not in ("merged", "priority"))
        assert rates[ranks, "merged"] >= max(others)


def test_a_person_reads_a_table_and_what_would_help_on_the_most_ranks_by_the_best_schedule(stagebench, tmp_path):
    out = stagebench(*NUMBERS, "--ranks", "8", *sets("jitter=0.05", "spread=0.03", "read_rate=200")).out
    assert "resnet50 batch 64" in out
    assert "critical path on 8 ranks, wfbp: " in out
    assert "%  schedule " in out
    assert "ranks that all take the same time" in out
    assert " to " in out.splitlines()[2]
    trace = tmp_path / "trace.json"
    done = stagebench(*NUMBERS, "--ranks", "32,4", "--schedule", "all", "--trace", str(trace))
    assert "critical path on 32 ranks, merged: " in done.out
    assert "what would help most on 32 ranks, merged:" in done.out
    assert "resnet50 batch 64 on 32 ranks, merged" in done.out
    assert "%  schedule " not in done.out  # none is better


def test_measured_layers_stand_in_for_a_workload_and_waiting_for_input_exposes_no_exchange(stagebench, tmp_path):
    rows = [{"layer": name, "kind": "dense", "forward_s": 0.01, "backward_s": 0.03, "bytes": 4000} for name in "ab"]
    (tmp_path / "layers.json").write_text(json.dumps(rows))
    options = (*sets(f"layers={tmp_path}/layers.json"), "--batch", "8", "--alpha", "0", "--beta", "0")
    (found,) = printed(stagebench("predict", *options, "--ranks", "2", "--json"))
    assert found["predictions"][0]["iteration"] == pytest.approx(0.08)
    (found,) = printed(stagebench(*NUMBERS, "--ranks", "1,8", *sets("read_rate=100"), "--json"))
    for one in found["predictions"]:
        parts = ("stages", "bubble", "stragglers", "exposed", "input_wait")
        assert one["exposed"] == 0
        assert one["input_wait"] > 0
        assert sum(one[part] for part in parts) == pytest.approx(one["iteration"])


def test_a_trace_has_the_timeline_for_perfetto(stagebench, tmp_path):
    (found,) = printed(stagebench(*NUMBERS, "--ranks", "2,8", "--trace", str(tmp_path / "trace.json"), "--json"))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert {event["args"]["name"] for event in events if event["ph"] == "M"} == {"device", "link"}
    messages = [event for event in events if event.get("cat") == "message"]
    assert len(messages) == 3 * 107
    assert messages[-1]["name"] == "message conv1"
    ends = [0.0, 0.0, 0.0]  # of its iterations, in microseconds
    for event in (event for event in events if event["ph"] == "X"):
        number = event["args"]["iteration"]
        ends[number] = max(ends[number], event["ts"] + event["dur"])
    assert ends == pytest.approx([1e6 * number * found["predictions"][-1]["iteration"] for number in (1, 2, 3)])


@pytest.fixture
def link_folder(tmp_path):
    """All-reduces of two backends on 2 ranks: 1 ms and 1 or 2 ns a byte."""
    folder = RunFolder(tmp_path / "comm")
    folder.create(About(kind=COMM, created="2026-11-20T12:00:00+00:00"))
    folder.write_cases([])
    for number, backend in enumerate(("copper", "glass"), 1):
        add_link(folder, collective(backend, "all-reduce", Placement(ranks_per_node=2), 0.1, SIZES), number * 1e-9)
    return folder


def add_link(folder: RunFolder, case: Case, per_byte: float) -> None:
    """Two ranks' exchange, of a millisecond and so many seconds a byte."""
    rows = [
        {"kind": "single", "operation": "all-reduce", "bytes": size, "messages": 1}
        | {"sample_s": [1e-3 + per_byte * size] * 5}
        for size in (4, 4_000_000, 40_000_000)
    ]
    folder.write_record(exchanged(case, [{"rank": rank, "exchanges": rows} for rank in range(2)]))
    folder.write_cases([*folder.cases, CaseEntry(id=case.id, case=case)])


@pytest.fixture
def run_folder(tmp_path):
    run = MadeRun(tmp_path / "run")
    for ranks in (1, 2, 4):
        run.proven(case_of("pytorch", "resnet50", ranks, graph_digest=resnet50().digest))
    return run.folder.path


def test_a_run_is_predicted_beside_what_it_measured_and_has_measured_what_numbers_say(stagebench, refusal, run_folder):
    (found,) = printed(stagebench("predict", str(run_folder), "--ranks", "2,4,64", "--json"))
    assert found["fitted_to"] == 2
    assert set(found["measured"]) == {"1", "2", "4"}
    assert [row["error"] is None for row in found["predictions"]] == [False, False, True]
    assert all(row["rate_low"] < row["rate"] < row["rate_high"] for row in found["predictions"])
    shown = stagebench("predict", str(run_folder), "--ranks", "2,4").out
    assert "measured" in shown.splitlines()[1]
    assert "fitted" in shown

    def spread(*link):
        (found,) = printed(stagebench("predict", str(run_folder), "--ranks", "4", *link, "--json"))
        (one,) = found["predictions"]
        return (one["rate_high"] - one["rate_low"]) / one["rate"]

    # A device's own seconds are nothing next to the given link, and the model's error is left.
    only_the_model = spread("--alpha", "10", "--beta", "0")
    assert only_the_model == pytest.approx(2 * MODEL_ERROR, rel=0.02)
    assert spread() > 1.1 * only_the_model
    for key in ("rate", "jitter", "read_rate"):
        assert refusal("predict", run_folder, *sets(f"{key}=1")).startswith(f"{key} is known from ")


def test_a_link_measured_by_itself_takes_the_run_s_place(stagebench, run_folder, link_folder):
    options = ("predict", str(run_folder), "--ranks", "8", "--comm", str(link_folder.path), "--json")
    rates = {}
    for backend in ("copper", "glass"):
        (found,) = printed(stagebench(*options, *sets(f"backend={backend}"), "--schedule", "fused"))
        assert any(backend in source for source in found["sources"])
        rates[backend] = found["predictions"][0]["exposed"]
    # A ring over 8: 14 start-ups of half a millisecond, and 7/4 of the bytes, of which 2 ranks send one each. What the
    # run took beyond its exchange is fitted before the link is changed, and grows with the exchange.
    size = 4 * 25_557_032
    assert rates["glass"] / rates["copper"] == pytest.approx((7e-3 + 3.5e-9 * size) / (7e-3 + 1.75e-9 * size), rel=1e-6)
    assert "choose one with --set backend=NAME" in str(stagebench(*options).error)
    assert "it has those of copper, glass" in str(stagebench(*options, *sets("backend=gold")).error)


def test_one_node_s_measured_exchange_is_the_link_within_nodes_and_several_nodes_the_one_between(
    stagebench, link_folder
):
    """A hierarchical exchange rings within each node of two, at 1 ns a byte, and then between them, at 3."""
    add_link(link_folder, collective("copper", "all-reduce", Placement(nodes=2), 0.1, SIZES), 3e-9)
    options = ("--comm", str(link_folder.path), *sets("backend=copper"), *FUSED)
    (glass,) = printed(stagebench(*OF_RESNET, *options[:2], *sets("backend=glass"), "--ranks", "2", *FUSED[2:]))
    assert glass["predictions"][0]["exposed"] == pytest.approx(1e-3 + 2e-9 * 4 * 25_557_032)
    (flat,) = printed(stagebench(*OF_RESNET, *options))
    (tiers,) = printed(stagebench(*OF_RESNET, *options, *sets("ranks_per_node=2", "algorithm=hierarchical")))
    size = 4 * 25_557_032
    assert flat["predictions"][0]["exchanging"] == pytest.approx(3e-3 + 1.5 * 3e-9 * size)
    assert tiers["predictions"][0]["exchanging"] == pytest.approx(2e-3 + (1e-9 + 3e-9) * size)
    assert any("within a node: " in source for source in tiers["sources"])


def test_more_ranks_than_samples_are_refused_and_the_others_predicted(stagebench, run):
    for ranks in (2, 4):
        run.proven(case_of("pytorch", "resnet50", ranks, batch=8 // ranks, scaling="strong", graph_digest=DIGEST))
    done = stagebench("predict", str(run.folder.path), "--ranks", "4,16", "--json")
    (found,) = printed(done)
    assert [row["ranks"] for row in found["predictions"]] == [4]
    assert "on 16 ranks: there are only 8 samples; ask for 8 at most." in done.out
    alone = str(stagebench("predict", str(run.folder.path), "--ranks", "16").error)
    assert alone.startswith("nothing can be predicted: ")
    assert "on 16 ranks: there are only 8 samples; ask for 8 at most." in alone


def test_what_nobody_measured_has_no_error(stagebench, run_folder):
    def asked(*options):
        (found,) = printed(stagebench("predict", str(run_folder), "--ranks", "4", *options, "--json"))
        return found

    fitted = asked()
    own = fitted["predictions"][0]["schedule"]
    assert {row["schedule"]: row["error"] is None for row in asked("--schedule", "all")["predictions"]} == {
        name: name != own for name in SCHEDULES
    }
    for options, what in (
        (("--alpha", "1e-6", "--beta", "1e-11"), "changed: link: as given"),
        (sets("algorithm=tree"), "changed: exchange: tree"),
        (sets("compression=4"), "changed: gradients: 4 times smaller"),
        (sets("stages=2", "microbatches=4"), "changed: a pipeline of 2 stages"),
    ):
        changed = asked(*options)
        assert changed["measured"] == {}
        assert changed["predictions"][0]["error"] is None
        assert changed["predictions"][0]["rate"] != pytest.approx(fitted["predictions"][0]["rate"])
        *sources, said = changed["sources"]
        assert sources == fitted["sources"]
        assert said.startswith(what)


def test_devices_that_share_a_batch_lose_by_what_does_not_shrink_with_it(stagebench):
    def asked(*options):
        (found,) = printed(stagebench(*NUMBERS, "--ranks", "1,16", *sets("global_batch=64", *options), "--json"))
        return found

    assumed, fixed = asked(), asked("fixed_share=0.5")
    assert ASSUMED in assumed["sources"]
    assert ASSUMED not in fixed["sources"]
    assert "batch: 50% of forward and backward do not change with it, as given" in fixed["sources"]
    assert assumed["predictions"][0]["rate"] == fixed["predictions"][0]["rate"]  # the batch that was given
    for found, share in ((assumed, 1 / 16), (fixed, 0.5 + 0.5 / 16)):
        assert found["predictions"][1]["stages"] == pytest.approx(share * 64 / 253.1)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--rate", "0"), "rate is 0"),
        (sets("compression=0"), "compression is 0"),
        (sets("global_batch=0"), "the global batch is 0"),
        (("--ranks", "0"), "ranks = '0': Input should be greater than or equal to 1"),
        (("--ranks", "9999999"), "9999999 ranks"),
        (("--alpha", "-1"), "alpha of a link is -1.0"),
        (("--schedule", "wfpb"), "did you mean 'wfbp'"),
        (sets("algorithm=rings"), "did you mean 'ring'"),
        (("--workload", "nowhere.json"), "there is no file nowhere.json"),
        (("--batch", "-4"), "batch is -4"),
        (sets("read_rate=9", "readers=0"), "readers is 0"),
        (sets("readers=2"), "readers has no meaning without read_rate"),
        (sets("servers=4"), "servers has no meaning without algorithm = server"),
        (sets("backend=gloo"), "backend has no meaning without comm"),
        (sets("algorithm=hierarchical"), "algorithm = hierarchical has no meaning without ranks_per_node"),
        ((*sets("algorithm=hierarchical", "ranks_per_node=8"), "--ranks", "12"), "12 ranks fill no whole number"),
        ((*sets("stages=2", "microbatches=129"), "--ranks", "2"), "128 samples of 2 stages cannot be cut into 129"),
        (sets("jitter=100"), "jitter is 100.0; give the standard deviation over the mean, at most 1"),
        (("--trace", "nowhere/trace.json"), "there is no folder nowhere"),
        (("--chakra", "trace", "--ranks", "5000"), "5,000 are too many"),
        (sets("layers=layers.json"), "layers replaces workload and rate"),
        (sets("spread=2"), "spread = 2.0 should be a share"),
        (sets("node_alpha=1", "ranks_per_node=2"), "node_alpha is given without node_beta"),
        (("--comm", "nowhere"), "--comm and --alpha"),
        (("--set", "rate"), "should read KEY=VALUE"),
        (sets("fixed_share=1.5"), "fixed_share = 1.5 should be a share, from 0 to 1"),
        (sets("jiter=1"), "a scenario has no key 'jiter'; did you mean 'jitter'?"),
        (("--read-rate", "9"), "--read-rate is a setting of the scenario: write --set read_rate=VALUE"),
    ],
)
def test_nonsense_is_refused_by_name(refusal, arguments, named):
    assert named in refusal(*NUMBERS, *arguments)


@pytest.mark.parametrize("missing", ["--workload", "--batch", "--rate", "--alpha", "--beta"])
def test_what_is_missing_is_named(refusal, missing):
    index = NUMBERS.index(missing)
    assert missing in refusal(*NUMBERS[:index], *NUMBERS[index + 2 :])


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("{", "layers.json, top: Invalid JSON"),
        ("[]", "has no layer"),
        ('[{"layer": "a", "forward_s": 1, "backward_s": 1}]', "0.bytes"),
        ('[{"layer": "a", "forward_s": 1, "backward_s": -1, "bytes": 4}]', "backward of layer 'a' is -1"),
    ],
)
def test_a_file_of_layers_is_refused_by_its_place(refusal, tmp_path, content, named):
    (tmp_path / "layers.json").write_text(content)
    options = ("--batch", "8", "--alpha", "0", "--beta", "0", *sets(f"layers={tmp_path}/layers.json"))
    assert named in refusal("predict", *options)


def test_a_file_has_the_keys_of_a_scenario_and_options_replace_its_values(stagebench, tmp_path):
    file = tmp_path / "cluster.toml"
    file.write_text('workload = "resnet50"\nbatch = 64\nrate = 253.1\nalpha = 2e-4\nbeta = 1.0\nranks = [4, 8]\n')
    (given,) = printed(stagebench("predict", str(file), "--beta", "8e-10", "--json"))
    (options,) = printed(stagebench(*NUMBERS, "--ranks", "4,8", "--json"))
    assert given == options
    file.write_text("workload = resnet50\n")
    assert "is no TOML of a scenario" in str(stagebench("predict", str(file)).error)
    file.write_text('workload = "networks/none.json"\nbatch = 1\nrate = 1\nalpha = 0\nbeta = 0\n')
    assert f"there is no file {tmp_path}/networks/none.json" in str(stagebench("predict", str(file)).error)
    assert "cluster.toml" in str(stagebench("predict", str(tmp_path / "no" / "cluster.toml")).error)
