"""Each source's tables and figures, by name and column, on the pages of the plans that repeat it."""

import re
import tomllib
from collections.abc import Callable
from importlib import resources
from itertools import product
from pathlib import Path

import pytest

from stagebench.reports.charts.lines import Lines
from stagebench.reports.exports.write import charts_of
from stagebench.reports.pages.epochs import _figures, over_devices
from stagebench.reports.pages.epochs import charts_of as charts_over_devices
from stagebench.reports.pages.study import NETWORKS, depth
from stagebench.reports.site.build import render
from stagebench.suite.analysis.summary import summarise
from stagebench.suite.contracts.case import Placement
from stagebench.suite.worker.case_parts import Input, Training
from stagebench.workloads.networks import by_name
from tests.reports.made_experiments import batches, learner, paper, taught
from tests.reports.made_run import MadeRun, case_of
from tests.reports.parsed import Page

pytestmark = pytest.mark.xdist_group("made pages")  # each made run is rendered once

TRADE_OFF = "The trade-off: mnist_small on digits.npz"
AGGREGATING = [
    *("Network, framework", "devices", "gradients, MiB", "alone, s", "exposed, s", "hidden, of alone"),
    "iteration, s",
]
PLACES = ["1 device", "2 devices", "4 devices", "2 nodes of 2", "4 nodes of 1", "4 nodes of 2"]
# By made run and heading: the columns of the table that follows it.
TABLES = {
    ("paper", "Table 2: hardware of each node"): ["Node", "CPU", "cores", "memory", "GPUs", "PCIe", "network"],
    ("paper", "Table 3: software"): ["Framework", "versions", "interpreter", "transport"],
    ("paper", "Table 4: networks"): ["Network", "layers", "parameters", "batch per device"],
    ("paper", "Table 5: seconds of each stage on one device"): [
        *("Network, framework", "reading", "host to device", "forward", "backward", "update", "other", "total"),
        "reading alone",
    ],
    ("paper", "Table 6: aggregating gradients within a node"): AGGREGATING,
    ("paper", "Table 7: aggregating gradients over nodes"): AGGREGATING,
    ("paper", "Table 8: samples/s"): ["samples/s", *PLACES],
    ("batches", TRADE_OFF): ["Batch, all devices together", "8", "32", "128", "512"],
}
# Likewise by made run and section.
SECTIONS = {
    ("epochs", "devices"): [
        *("Strategy", "devices"),
        *("first, samples/s", "speed-up, first", "efficiency, first"),
        *("second, samples/s", "speed-up, second", "efficiency, second"),
    ],
    ("epochs", "epochs"): [
        *("Case", "epochs", "opening, s", "first, s", "second, s", "first ÷ second"),
        *("first, samples/s", "second, samples/s", "accuracy after the first", "after the second", "trainings"),
    ],
    ("time_to_train", "time_to_train"): [
        *("Strategy", "nodes", "devices", "minutes", "speed-up", "epochs", "epochs per worker", "ended early"),
        *("best accuracy", "hosts; connected by"),
    ],
    ("stragglers", "stragglers"): [
        *("Strategy", "samples per update", "no straggler, s to the loss"),
        *("straggler 50\xa0%, s to the loss", "times as long", "taken"),
        *("straggler 75\xa0%, s to the loss", "times as long", "taken"),
    ],
    ("parts", "parts"): [
        *("Case", "devices", "devices of one network", "samples/s"),
        *("bubble, ms", "bubble, of the iteration", "traffic, MiB", "memory of each rank"),
    ],
}
MEASURES = ["time of 8 epochs, s", "epoch in which 0.97 is reached", "time to 0.97, s", "best accuracy", "memory, MiB"]


@pytest.fixture(scope="module")
def pages(rendered: Callable[[str], str]) -> dict[str, str]:
    return {name: rendered(name) for name, _ in (*TABLES, *SECTIONS)}


def heads(table: str) -> list[str]:
    """The columns of the first table."""
    return re.findall(r'<th scope="col"[^>]*>(.*?)</th>', table[table.index("<thead>") : table.index("</thead>")])


def section(page: str, id_: str) -> str:
    return page[page.index(f'id="{id_}"') :].partition("</section>")[0]


def after(page: str, heading: str) -> str:
    """What stands between a heading and the next one; charts have headings of their own."""
    end = r"<h2>|<h3>(?:Table|Figure \d:|Kernels|Curves)|</section>"
    found = re.search(rf"<h[23]>{re.escape(heading)}</h[23]>(.*?)(?:{end})", page, re.DOTALL)
    assert found, f"no heading {heading!r}"
    return found[1]


@pytest.mark.parametrize(("name", "place"), [*TABLES, *SECTIONS])
def test_a_table_or_a_section_has_the_source_s_columns(pages: dict[str, str], name: str, place: str) -> None:
    found = after(pages[name], place) if (name, place) in TABLES else section(pages[name], place)
    assert heads(found[found.index('class="scroll"') :]) == {**TABLES, **SECTIONS}[name, place]


def test_figures_have_the_study_s_axes_and_begin_with_one_device(tmp_path: Path) -> None:
    study = {name: chart for name, chart in charts_of(paper(tmp_path / "run")) if name.startswith("study-")}
    over = [chart for name, chart in study.items() if "speed-up" in name]
    assert len(over) == 3 + 2  # networks within a node, and over nodes
    axes = {(chart.across, chart.up) for chart in over if isinstance(chart, Lines)}
    assert axes == {("devices", "speed-up over one device")}
    assert len([chart for name, chart in study.items() if "seconds-per-iteration" in name]) == 3
    chart = next(chart for name, chart in study.items() if "alexnet" in name and "over-nodes" in name)
    assert isinstance(chart, Lines)
    lines = {line.name: line for line in chart.lines}
    assert lines["PyTorch ddp · 2 devices per node"].x == [1, 2, 4, 8]
    assert lines["PyTorch ddp · 2 devices per node"].y[0] == 1.0
    assert lines["PyTorch ddp · 1 device per node"].x == [1, 4]


def measures(page: str) -> list[str]:
    """The lines of the trade-off's table."""
    table = after(page, TRADE_OFF).partition('class="scroll"')[2]
    return re.findall(r'<th scope="row"[^>]*>(.*?)</th>', table)


def test_the_trade_off_has_the_source_s_measures_as_rows_and_no_claim_of_single_trainings(
    pages: dict[str, str], tmp_path: Path
) -> None:
    assert measures(pages["batches"]) == MEASURES * 2  # adapters
    assert "Memory, by batch" in pages["batches"]
    assert "soonest" in pages["batches"]
    folder = batches(tmp_path / "run", seeds=(1,))
    page = render(folder, summarise(folder))
    assert measures(page) == MEASURES * 2
    assert not any("soonest" in one or "best accuracy" in one for one in Page(page).findings)


OWN = {  # by number: what the article's figure shows
    "5a": "digits.npz · 4\u00d7 data · batch 256 per device · samples/s of the second epoch",
    "5b": "mnist_large on digits.npz · 4\u00d7 data · samples/s of the second epoch",
    "5c": "mnist_large on digits.npz · batch 256 per device · seconds of the second epoch",
    "5d": "mnist_large on digits.npz · 1\u00d7 data · batch 256 per device · first against second",
    "5e": "mnist_large on digits.npz · batch 256 per device · samples/s of the second epoch",
}
STRATEGIES = [("pytorch", "zero1"), ("pytorch", "ddp"), ("tensorflow", "mirrored"), ("tensorflow", "keras_fit")]


def parallel(path: Path, *workloads: str) -> list[Lines]:
    """The charts over devices of the plan data-parallel, some of its strategies and sizes."""
    run = MadeRun(path, "data-parallel")
    sizes = product(workloads, STRATEGIES, (1, 4), (128, 256, 512), (1, 2))
    for workload, (adapter, strategy), repeat, batch, ranks in sizes:
        case = learner(adapter, ranks, batch=batch, input=Input(repeat=repeat), training=Training(epochs=2))
        case = case.on(workload=workload, strategy=strategy)
        run.proven(case, repeats=1, ranks=taught(case))
    found = over_devices(summarise(run.folder))
    assert found
    return [chart for chart in charts_over_devices(found, _figures(found)) if isinstance(chart, Lines)]


def test_the_article_s_figures_come_first_and_show_its_networks_and_strategies(tmp_path: Path) -> None:
    charts = parallel(tmp_path / "run", "mnist_stated", "mnist_small", "mnist_large")
    numbered = {chart.title.partition(":")[0].removeprefix("Figure "): chart.setting for chart in charts[: len(OWN)]}
    assert numbered == OWN
    assert not any("Figure" in chart.title for chart in charts[len(OWN) :])
    for chart in charts[: len(OWN)]:
        names = " ".join(line.name for line in chart.lines)
        assert "zero1" not in names
        assert "mirrored" not in names
    assert {
        word for line in charts[0].lines for word in ("mnist_small", "mnist_large", "mnist_stated") if word in line.name
    } == {"mnist_small", "mnist_large"}
    assert not any("Figure" in chart.title for chart in parallel(tmp_path / "other", "mnist_small", "alexnet"))


NUMBERED = r"<h3>((?:Table|Figure) \d|Kernels)"
DESCRIBED = ["Table 2", "Figure 1", "Table 3", "Table 4"]  # of any run that has measured something


@pytest.mark.parametrize(
    ("cases", "numbers"),
    [
        ([], None),
        ([{"workload": "mnist_small"}, {"workload": "mnist_small", "ranks": 2}], None),
        ([{}], [*DESCRIBED, "Table 5", "Figure 3", "Table 8"]),
        ([{"passes": ("native",)}], DESCRIBED),
        ([{"passes": ("native",), "knobs": {"onednn": one}} for one in ("on", "off")], [*DESCRIBED, "Kernels"]),
        (
            [{"passes": ("native", "staged")}, {"passes": ("native",), "ranks": 2}],
            [*DESCRIBED, "Table 5", "Figure 3", "Table 8"],
        ),
        ([{"ranks": 2}], [*DESCRIBED, "Table 6", "Table 8"]),
        ([{}, {"ranks": 2}], [*DESCRIBED, "Table 5", "Figure 3", "Figure 4", "Table 6", "Table 8"]),
        ([{"placement": Placement(nodes=2)}], [*DESCRIBED, "Table 7", "Table 8"]),
    ],
)
def test_nothing_has_the_study_s_number_that_was_not_measured(cases, numbers, tmp_path):
    run = MadeRun(tmp_path / "run", "paper")
    for workload in ("googlenet", "resnet152"):  # which nobody has measured
        run.refuse(case_of(workload=workload), None, "")
    for changes in cases:
        run.proven(case_of(**changes))
    page = render(run.folder, summarise(run.folder))
    assert (re.findall(NUMBERED, page) if 'id="study"' in page else None) == numbers
    assert "googlenet" not in (after(page, "Table 4: networks") if numbers else "")


def test_the_study_s_page_alone_has_its_nodes_kernels_and_peers(pages: dict[str, str]) -> None:
    assert [name for name, page in pages.items() if 'id="study"' in page] == ["paper"]
    words = Page(after(pages["paper"], "Figure 1: nodes and links")).text
    assert words == "eth0, 10000 Mbit/s bench AMD EPYC 7B13, 2 cores GPU 0: NVIDIA H100 8.0 GT/s PCIe x16"
    table = Page(after(pages["paper"], "Kernels of the vendors")).text
    assert "oneDNN · PyTorch single alexnet batch 8" in table
    assert "cuDNN's autotuning · PyTorch single alexnet batch 8" in table
    assert table.count(" faster") == 2
    text = Page(pages["time_to_train"]).text
    assert "2 0 bench 10.0.0.1 1 10.0.0.99" in text
    assert "4 2 bench 10.0.0.3 1, 3 10.0.0.99" in text
    assert " 1 0 bench" not in text, "a single worker has no peer"


@pytest.mark.parametrize(("name", "layers"), [("alexnet", 8), ("googlenet", 22), ("resnet50", 50), ("resnet152", 152)])
def test_layers_are_counted_as_networks_are_named_and_the_study_s_are_those_of_its_plan(name: str, layers: int) -> None:
    assert depth(by_name()[name].graph()) == layers
    plan = tomllib.loads((resources.files("stagebench.suite") / "plans" / "paper.toml").read_text())
    assert list(NETWORKS) == plan["defaults"]["workload"]
