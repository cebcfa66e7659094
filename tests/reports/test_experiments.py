"""The sections that answer the experiments' questions: there when a run can answer, gone when it cannot."""

import re
from html import unescape

import pytest

from stagebench.reports.charts.lines import Lines
from stagebench.reports.exports.write import charts_of
from stagebench.reports.pages.communication import slowed_of
from stagebench.reports.site.build import render, write
from stagebench.suite.analysis.summary import summarise
from stagebench.suite.cli.results import print_results
from tests.reports import made_experiments
from tests.reports.made_run import MadeRun, case_of
from tests.reports.parsed import Page

pytestmark = pytest.mark.xdist_group("made pages")  # each made run is rendered once

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


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("inputs", "samples/s, the network takes 19.6: the network is the bottleneck"),
        ("inputs", "0.3 % of an iteration is waiting: the network is the bottleneck"),
        ("inputs", "2 readers, files, page cache as is, centre crop"),
        ("inputs", "not shown (no proof): reference/single"),
        ("inputs", "disk · lmdb"),
        ("paper", "gradients, MiB alone, ms"),
        ("paper", "All speeds at a glance"),
        ("epochs", "4\u00d7 data · batch 128 per device"),
        ("epochs", "2 0.375 1."),
        ("time_to_train", "1 1 single 0.129 1.00 5 5 1 of 1"),
        ("time_to_train", " 8 2 1 of 1 "),
        ("parts", "faster than one in parts: mnist_small on imagenet-like on 2 devices (PyTorch pipeline)."),
        ("parts", "a rank holds 2.0 GiB at most, against 3.0 GiB; a device contributes 5.00 MiB a step, against 116."),
        ("parts", "1.0 GiB, 2.0 GiB"),
        ("exchanges", "PyTorch ddp has the lowest loss, 0.373 (no detectable difference from PyTorch dist_sync)."),
        ("exchanges", "After 2.80 s of training, PyTorch ddp has the lowest loss, 0.575."),
        ("exchanges", "PyTorch dist_async 1 698"),
        ("exchanges", "1.40 at most 3.00 2"),
        ("stragglers", "taken straggler 75 %, s to the loss times as long taken PyTorch ddp"),
        ("stragglers", "46.0 %"),
        ("stragglers", "; it updates after 8 samples, others after up to 16."),
        ("stragglers", "PyTorch dist_async is sooner than PyTorch ddp once a straggler loses"),
        ("batches", "0.97 soonest with batch 128, after 2.91 s, in epoch 5 (no detectable difference from batch 32)"),
        ("batches", " never "),
        ("autotune", "batches of 8 and 16 per device are compared by samples/s"),
        ("autotune", "1 not compared: no proof"),
        ("autotune", "threads 2"),
        ("autotune", "none is detectably faster than the default"),
    ],
)  # fmt: skip
def test_a_reader_finds(pages, name, words):
    assert words in pages[name].text


TITLES = {
    "inputs": "PyTorch leads",
    "paper": "gain from",
    "epochs": "gains most",
    "time_to_train": "ends sooner on 4 devices",
    "parts": "One network in parts wins",
    "exchanges": "PyTorch leads on mnist_small",
    "stragglers": "With a straggler of 75%",
    "batches": "Batch 128 is soonest at 0.97",
    "autotune": "Tuning pays for 2 of 3: PyTorch becomes 2.09 times as fast",
}


@pytest.mark.parametrize("name", SHOWN)
def test_a_run_shows_what_it_can_answer_and_nothing_else_under_a_title_that_answers(pages, name):
    page = pages[name]
    assert SECTIONS & set(page.ids) == SHOWN[name]
    assert {address[1:] for address in page.addresses if address.startswith("#")} <= set(page.ids)
    assert any(TITLES[name] in heading for heading in page.headings)
    assert not re.search(r"Figure \d\w", page.text), "an article's number on another experiment's page"


@pytest.mark.parametrize("name", [*SHOWN, "inference"])
def test_the_terminal_says_the_title_and_the_answer_of_the_page(rendered, tmp_path, monkeypatch, capsys, name):
    monkeypatch.setattr("stagebench.suite.cli.results.PIPED", 1000)
    print_results(getattr(made_experiments, name)(tmp_path / "run"))
    printed = capsys.readouterr().out.splitlines()
    page = re.search(r'<h1>(.*?)</h1>(?:<p class="also">(.*?)</p>)?', rendered(name))
    said = [unescape(words).replace("\u202f", ",").replace("\u00a0", " ") for words in page.groups() if words]
    assert printed[: len(said)] == said


@pytest.fixture(scope="module")
def charts(tmp_path_factory):
    """The charts of each made run, by the names of their files."""
    return {
        name: dict(charts_of(getattr(made_experiments, name)(tmp_path_factory.mktemp(name) / "run")))
        for name in ("inputs", "paper", "batches", "epochs")
    }


def test_charts_have_the_series_that_may_be_compared(charts):
    modes = [chart for name, chart in charts["inputs"].items() if name.startswith("input-") and len(chart.key) == 3]
    (entries,) = [chart.entries for chart in modes]
    assert "disk · files · 2 readers" in [entry.detail for entry in entries]
    assert "reference" not in {entry.of for entry in entries}
    wanted = {"PyTorch ddp", "PyTorch ddp · 1 device per node", "PyTorch ddp · 2 devices per node"}
    figures = [
        chart for name, chart in charts["paper"].items() if name.startswith("study-") and isinstance(chart, Lines)
    ]
    assert wanted <= {line.name for chart in figures for line in chart.lines}
    over = [chart for name, chart in charts["epochs"].items() if name.startswith("devices-")]
    axes = [(chart.across, chart.up) for chart in over]
    assert (
        axes.count(("devices", "samples/s of the second epoch")) == 4 + 1 + 1
    )  # each size and batch; by batch; by size
    assert axes.count(("devices", "seconds of the second epoch")) == 1
    assert axes.count(("samples/s, first epoch", "samples/s, second epoch")) == 1


def test_curves_of_one_chart_take_the_same_steps_and_what_never_reached_the_target_has_no_point(charts):
    curves = [chart for chart in charts["batches"].values() if isinstance(chart, Lines) and chart.across == "step"]
    assert len(curves) == 4  # batches
    for chart in curves:
        assert [line.name for line in chart.lines] == ["PyTorch", "Caffe-MPI style"]
        assert len({len(line.x) for line in chart.lines}) == 1
    (reached,) = [chart for name, chart in charts["batches"].items() if "time-to-an-accuracy" in name]
    assert reached.lines[0].x == [8, 32, 128, 512]
    assert reached.lines[0].y[-1] is None
    assert "M" in reached.html()


def test_trainings_that_did_not_time_the_opening_of_their_input_have_no_column_of_it(tmp_path):
    run, case = MadeRun(tmp_path / "run"), made_experiments.learner("pytorch", 1)
    ranks = made_experiments.taught(case)
    del ranks[0]["training"]["open_s"]
    run.proven(case, repeats=1, ranks=ranks)
    assert "Case epochs first, s second, s" in Page(render(run.folder, summarise(run.folder))).text


FREER, TRIED = made_experiments.FREER, "(0%, 50% and 75%)"


@pytest.mark.parametrize(
    ("freer", "seeds", "words"),
    [
        (FREER, (1, 2, 3), "once a straggler loses "),
        ((3.0, 3.0, 3.0), (1, 2, 3), f"at every share tried {TRIED}."),
        ((0.2, 0.1, 0.05), (1, 2, 3), f"at none of the shares tried {TRIED}."),
        ((3.0, 0.1, 0.05), (1, 2, 3), "at 0% alone, of 0%, 50% and 75%."),
        ((3.0, 3.0, 3.0), (1,), f"at every share tried {TRIED}; a single seed has no interval."),
        (FREER, (1,), "at 50% and 75% alone, of 0%, 50% and 75%; a single seed has no interval."),
        ((1.4, 1.4, 1.4), (1, 2), "; no detectable difference at 0%."),  # which no interval shows
    ],
)  # fmt: skip
def test_where_a_strategy_that_does_not_wait_for_a_straggler_is_sooner(freer, seeds, words, tmp_path):
    (found,) = slowed_of(summarise(made_experiments.stragglers(tmp_path / "run", freer, seeds)))
    assert found.answers[-1].startswith("PyTorch dist_async is sooner than PyTorch ddp ")
    assert words in found.answers[-1]


def test_clipped_trainings_have_charts_of_their_own_and_unproven_ones_none(run, tmp_path):
    for name in ("pytorch", "caffempi"):
        case = made_experiments.learner(name, 1)
        for each in (case, case.on(clip_norm=0.5)):
            run.proven(each, repeats=1, ranks=made_experiments.taught(each))
    charts = [chart for _, chart in charts_of(run.folder) if isinstance(chart, Lines) and chart.across == "step"]
    assert [[line.name for line in chart.lines] for chart in charts] == [["PyTorch", "Caffe-MPI style"]] * 2
    assert any("gradients clipped to a norm of 0.5" in chart.setting for chart in charts)
    other, unproven = MadeRun(tmp_path / "other"), made_experiments.learner("caffempi", 1)
    proven = made_experiments.learner("pytorch", 1)
    other.proven(proven, repeats=1, ranks=made_experiments.taught(proven))
    other.add(unproven, repeats=1, ranks=made_experiments.taught(unproven))
    lines = [line.name for _, chart in charts_of(other.folder) if isinstance(chart, Lines) for line in chart.lines]
    assert set(lines) == {"PyTorch"}
    assert "not shown (no proof): caffempi/single" in Page(render(other.folder, summarise(other.folder))).text


def test_the_best_are_a_plan_beside_the_page_where_there_was_a_sweep(tmp_path, run):
    folder = made_experiments.autotune(tmp_path / "tuned")
    page = write(folder, tmp_path / "page", single=True)
    assert sorted(path.name for path in page.parent.iterdir()) == ["best.toml", "index.html"]
    assert "best.toml" in Page(page.read_text()).addresses
    run.proven(case_of())
    assert not (write(run.folder, tmp_path / "plain").parent / "best.toml").exists()
