"""The sections that answer the experiments' questions: there when a run can answer, gone when it cannot."""

import re

import pytest

from reports.site import render, write, write_single
from suite.analysis.summary import summarise
from tests.reports import made_experiments
from tests.reports.made_run import MadeRun, case_of
from tests.reports.parsed import Page

SECTIONS = {"speeds", "stages", "scaling", "input", "best", "learning", "epochs", "exchange", "steps"}
SECTIONS |= {"stragglers", "devices", "time_to_train", "parts", "study"}
SHOWN = {
    "inputs": {"speeds", "stages", "input", "best", "steps"},
    "paper": {"study", "speeds", "best", "stages", "scaling", "input", "steps"},
    "epochs": {"learning", "epochs", "exchange", "devices"},
    "time_to_train": {"learning", "epochs", "devices", "time_to_train"},
    "parts": {"speeds", "stages", "steps", "parts"},
    "exchanges": {"speeds", "learning", "epochs", "exchange", "steps"},
    "stragglers": {"learning", "epochs", "exchange", "stragglers"},
    "batches": {"learning", "epochs"},
    "autotune": {"speeds", "best", "steps"},
}


@pytest.fixture(scope="module")
def pages(rendered):
    return {name: Page(rendered(name)) for name in SHOWN}


@pytest.mark.parametrize("name", SHOWN)
def test_a_run_shows_what_it_can_answer_and_nothing_else(pages, name):
    page = pages[name]
    assert SECTIONS & set(page.ids) == SHOWN[name]
    inside = [address[1:] for address in page.addresses if address.startswith("#")]
    assert set(inside) <= set(page.ids)
    assert SHOWN[name] <= set(inside)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("inputs", "samples/s, the network takes 19.6: the network is the bottleneck"),
        ("inputs", "0.3 % of an iteration is waiting: the network is the bottleneck"),
        ("inputs", "2 readers, files, page cache as is, centre crop"),
        ("inputs", "not shown (no proof): reference/single"),
        ("inputs", "disk · lmdb"),
        ("paper", "Aggregating gradients"),
        ("paper", "2 nodes of 2"),
        ("paper", "All speeds at a glance"),
        ("epochs", "mnist_small on digits.npz, 4\u00d7 data, batch 128 per device"),
        ("epochs", "first ÷ second"),
        ("epochs", "Case epochs opening, s first, s second, s"),
        ("epochs", "2 0.375 1."),
        ("epochs", "keras_fit shards the data set over its devices."),
        ("epochs", "first, samples/s speed-up, first efficiency, first second, samples/s speed-up, second efficiency"),
        ("time_to_train", "minutes speed-up epochs epochs per worker ended early best accuracy hosts; connected by"),
        ("time_to_train", "1 1 single 0.129 1.00 5 5 1 of 1"),
        ("time_to_train", " 8 2 1 of 1 "),
        ("parts", "devices of one network samples/s bubble, ms bubble, of the iteration traffic, MiB memory of each"),
        ("parts", "faster than one in parts: mnist_small on imagenet-like on 2 devices (pytorch/pipeline)."),
        ("parts", "a rank holds 2.0 GiB at most, against 3.0 GiB; a device contributes 5.00 MiB a step, against 116."),
        ("parts", "1.0 GiB, 2.0 GiB"),
        ("exchanges", "pytorch/ddp has the lowest loss, 0.373 (no detectable difference from pytorch/dist_sync)."),
        ("exchanges", "After 2.80 s of training, pytorch/ddp has the lowest loss, 0.575."),
        ("exchanges", "pytorch/dist_async quick 1 698"),
        ("exchanges", "1.40 at most 3.00 2"),
        ("stragglers", "Strategy samples per update no straggler, s to the loss straggler 50 %, s to the loss"),
        ("stragglers", "taken straggler 75 %, s to the loss times as long taken pytorch/ddp"),
        ("stragglers", "46.0 %"),
        ("stragglers", "; it updates after 8 samples, others after up to 16."),
        ("stragglers", "pytorch/dist_async is sooner than pytorch/ddp once a straggler loses"),
        ("batches", "0.97 soonest with batch 128, after 2.91 s, in epoch 5 (no detectable difference from batch 32)"),
        ("batches", "time to 0.97, s "),
        ("batches", " never "),
        ("autotune", "batches of 8 and 16 per device are compared by samples/s"),
        ("autotune", "1 not compared: no proof"),
        ("autotune", "threads 2, 2.09 times the default (2.09 to 2.09): faster"),
        ("autotune", "none is detectably faster than the default"),
    ],
)  # fmt: skip
def test_a_reader_finds(pages, name, words):
    assert words in pages[name].text


def test_a_search_begins_with_what_an_expert_gains_over_the_defaults_on_each_network(pages):
    first, second, *others = pages["autotune"].findings
    assert re.fullmatch(
        r"alexnet on imagenet-like from disk, 1 device \(cpu\): what an expert gains over the defaults: "
        r"pytorch/single 40\.\d samples/s with batch 16, .*, 2\.09 times the default \(2\.09 to 2\.09\): faster; "
        r"caffempi/single \S+ samples/s with batch 8: none is detectably faster than the default\.",
        first,
    )
    assert re.match(r"resnet50 on .*: what an expert gains .*: pytorch/single .* 1\.50 times the default", second)
    assert not any("over the defaults" in other for other in others)
    assert others


def test_another_plan_begins_with_who_leads(pages):
    assert "what an expert gains" not in pages["inputs"].findings[0]
    assert "what an expert gains" in pages["inputs"].findings[-1]


def figures(page, kind):
    return [figure for figure in page.figures if any(trace["type"] == kind for trace in figure["data"])]


def test_unproven_rows_are_not_in_the_chart_of_modes(pages):
    bars = figures(pages["inputs"], "bar")
    (modes,) = [figure for figure in bars if len({str(shade) for shade in figure["data"][0]["marker"]["color"]}) == 3]
    names = [note["text"] for note in modes["layout"]["annotations"]]
    assert "pytorch/single · disk · files · 2 readers" in names
    assert not any("reference" in name for name in names)


def test_scaling_within_a_node_and_over_nodes_are_different_lines(pages):
    wanted = {"pytorch/ddp", "pytorch/ddp · 1 device per node", "pytorch/ddp · 2 devices per node"}
    found = [
        {trace["name"]: trace["line"]["color"] for trace in figure["data"] if trace.get("name") in wanted}
        for figure in pages["paper"].figures
    ]
    assert any(len(set(lines.values())) == len(wanted) for lines in found), "each has a colour of its own"


def test_curves_of_one_chart_take_the_same_steps(pages):
    charts = [figure for figure in pages["batches"].figures if figure["layout"]["xaxis"]["title"]["text"] == "step"]
    assert len(charts) == 4  # batches
    for figure in charts:
        assert [trace["name"] for trace in figure["data"]] == ["pytorch/single", "caffempi/single"]
        assert len({len(trace["x"]) for trace in figure["data"]}) == 1


def test_what_never_reached_the_target_has_no_point(pages):
    (reached,) = [
        figure
        for figure in pages["batches"].figures
        if figure["layout"]["xaxis"].get("type") == "log" and None in figure["data"][0]["y"]
    ]
    assert reached["data"][0]["x"] == [8, 32, 128, 512]
    assert reached["data"][0]["y"][-1] is None


def test_trainings_that_did_not_time_the_opening_of_their_input_have_no_column_of_it(tmp_path):
    run, case = MadeRun(tmp_path / "run"), made_experiments.learner("pytorch", 1)
    ranks = made_experiments.taught(case)
    del ranks[0]["training"]["open_s"]
    run.proven(case, repeats=1, ranks=ranks)
    text = Page(render(run.folder, summarise(run.folder))).text
    assert "Opening the input is in neither." in text
    assert "Case epochs first, s second, s" in text


def test_unproven_trainings_are_not_in_shared_charts(tmp_path):
    run = MadeRun(tmp_path / "run")
    proven, unproven = made_experiments.learner("pytorch", 1), made_experiments.learner("caffempi", 1)
    run.proven(proven, repeats=1, ranks=made_experiments.taught(proven))
    run.add(unproven, repeats=1, ranks=made_experiments.taught(unproven))
    page = Page(render(run.folder, summarise(run.folder)))
    assert {trace["name"] for figure in page.figures for trace in figure["data"]} == {"pytorch/single"}
    assert "not shown (no proof): caffempi/single" in page.text


def test_the_best_are_a_plan_beside_the_page(tmp_path):
    folder = made_experiments.autotune(tmp_path / "run")
    page = write_single(folder, tmp_path / "page")
    assert sorted(path.name for path in page.parent.iterdir()) == ["best.toml", "index.html"]
    assert "best.toml" in Page(page.read_text()).addresses


def test_a_run_without_a_sweep_has_no_such_plan(tmp_path):
    run = MadeRun(tmp_path / "run")
    run.proven(case_of())
    assert not (write(run.folder, tmp_path / "page").parent / "best.toml").exists()


def test_figures_over_devices_have_a_series_by_strategy_batch_and_size(pages):
    over = [figure["layout"] for figure in figures(pages["epochs"], "scatter")]
    axes = [(layout["xaxis"].get("title"), layout["yaxis"].get("title")) for layout in over]
    titles = [(across["text"], up["text"]) for across, up in axes if across and up]
    assert titles.count(("devices", "samples/s, second epoch")) == 4 + 1 + 1  # each size and batch; by batch; by size
    assert titles.count(("devices", "seconds, second epoch")) == 1
    assert titles.count(("samples/s, first epoch", "samples/s, second epoch")) == 1


def test_the_articles_numbers_stand_on_no_page_of_another_experiment(pages):
    assert [name for name, page in pages.items() if re.search(r"Figure \d\w", page.text)] == []
