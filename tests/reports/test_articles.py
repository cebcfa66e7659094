"""Each source's tables and figures, by name and column, on the pages of the plans that repeat it."""

import re
import tomllib
from collections.abc import Callable
from importlib import resources
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from reports.device_charts import device_charts
from reports.devices import over_devices
from reports.figure import Chart
from reports.networks import depth
from reports.site import render
from reports.study import NETWORKS
from suite.analysis.summary import summarise
from suite.contracts.case import Placement
from suite.worker.case_parts import Input, Training
from tests.reports.made_experiments import batches, learner, taught
from tests.reports.made_run import MadeRun, case_of
from tests.reports.parsed import Page
from workloads.networks import by_name

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
    ("paper", "Table 8: samples/s"): ["Case", *PLACES],
    ("batches", TRADE_OFF): ["Batch, all devices together", "8", "32", "128", "512"],
    ("epochs", "Epochs over devices"): [
        *("Strategy", "devices"),
        *("first, samples/s", "speed-up, first", "efficiency, first"),
        *("second, samples/s", "speed-up, second", "efficiency, second"),
    ],
    ("epochs", "First and second epoch"): [
        *("Case", "epochs", "opening, s", "first, s", "second, s", "first ÷ second"),
        *("first, samples/s", "second, samples/s", "accuracy after the first", "after the second", "trainings"),
    ],
    ("time_to_train", "Time to train"): [
        *("Strategy", "nodes", "devices", "minutes", "speed-up", "epochs", "epochs per worker", "ended early"),
        *("best accuracy", "hosts; connected by"),
    ],
    ("time_to_train", "Who is connected to whom"): [
        *("Strategy", "devices", "rank", "host", "address", "connected to ranks", "other processes at"),
    ],
    ("stragglers", "Stragglers"): [
        *("Strategy", "samples per update", "no straggler, s to the loss"),
        *("straggler 50 %, s to the loss", "times as long", "taken"),
        *("straggler 75 %, s to the loss", "times as long", "taken"),
    ],
    ("parts", "One network on several devices"): [
        *("Case", "devices", "devices of one network", "samples/s"),
        *("bubble, ms", "bubble, of the iteration", "traffic, MiB", "memory of each rank"),
    ],
}
# Likewise the axes of the figure that follows it, across and up.
FIGURES = {
    "Figure 3: seconds per iteration on one device": ("seconds per iteration", None),
    "Figure 4: speed-up within a node": ("devices", "speed-up over one device"),
    "Figure 5: speed-up over nodes": ("devices", "speed-up over one device"),
}
MEASURES = ["time of 8 epochs, s", "epoch in which 0.97 is reached", "time to 0.97, s", "best accuracy", "memory, MiB"]


@pytest.fixture(scope="module")
def pages(rendered: Callable[[str], str]) -> dict[str, str]:
    return {name: rendered(name) for name, _ in TABLES}


def test_each_worker_s_peers_are_listed(pages: dict[str, str]) -> None:
    table = Page(after(pages["time_to_train"], "Who is connected to whom")).text
    assert "2 0 bench 10.0.0.1 1 10.0.0.99" in table
    assert "4 2 bench 10.0.0.3 1, 3 10.0.0.99" in table
    assert " 1 0 bench" not in table, "one worker has nobody to talk to"


def after(page: str, heading: str) -> str:
    """What stands between a heading and the next one; charts have headings of their own."""
    end = r"<h2>|<h3>(?:Table|Figure \d:|Kernels|Curves|Who)|</section>"
    found = re.search(rf"<h[23]>{re.escape(heading)}</h[23]>(.*?)(?:{end})", page, re.DOTALL)
    assert found, f"no heading {heading!r}"
    return found[1]


@pytest.mark.parametrize(("name", "heading"), TABLES)
def test_a_table_has_the_source_s_columns(pages: dict[str, str], name: str, heading: str) -> None:
    (table,) = re.findall(r"<thead>(.*?)</thead>", after(pages[name], heading), re.DOTALL)
    assert re.findall(r'<th scope="col"[^>]*>(.*?)</th>', table) == TABLES[name, heading]


@pytest.mark.parametrize("heading", FIGURES)
def test_a_figure_has_the_study_s_axes(pages: dict[str, str], heading: str) -> None:
    drawn = figures(after(pages["paper"], heading))
    assert len(drawn) == (2 if "over nodes" in heading else 3)  # networks
    for layout in (one["layout"] for one in drawn):
        across, up = (layout[axis].get("title", {}).get("text") for axis in ("xaxis", "yaxis"))
        assert (across, up) == FIGURES[heading]


def figures(html: str) -> list[dict[str, Any]]:
    return Page(html).figures


def test_speed_ups_begin_with_one_device_and_take_nodes_of_as_many_devices_together(pages: dict[str, str]) -> None:
    alexnet = figures(after(pages["paper"], "Figure 5: speed-up over nodes"))[0]
    lines = {trace["name"]: trace for trace in alexnet["data"]}
    assert lines["pytorch/ddp · 2 devices per node"]["x"] == [1, 2, 4, 8]
    assert lines["pytorch/ddp · 2 devices per node"]["y"][0] == 1.0
    assert lines["pytorch/ddp · 1 device per node"]["x"] == [1, 4]


def test_nodes_and_links_are_drawn_as_found(pages: dict[str, str]) -> None:
    (drawn,) = figures(after(pages["paper"], "Figure 1: nodes and links"))
    words = [note["text"] for note in drawn["layout"]["annotations"]]
    assert words == [
        "GPU 0<br>NVIDIA H100<br>8.0 GT/s PCIe x16",
        "<b>bench</b><br>1 \u00d7 AMD EPYC 7B13, 2 cores, 8.0 GiB",
        "eth0, 10000 Mbit/s",
    ]


def test_kernels_are_compared_with_and_without(pages: dict[str, str]) -> None:
    table = after(pages["paper"], "Kernels of the vendors")
    assert "oneDNN · pytorch/single alexnet batch 8" in table
    assert "cuDNN&#39;s autotuning · pytorch/single alexnet batch 8" in table
    assert table.count("<td>faster</td>") == 2


def test_the_trade_off_has_the_source_s_measures_as_rows(pages: dict[str, str]) -> None:
    heads = re.findall(r'<th scope="row"[^>]*>(.*?)</th>', after(pages["batches"], TRADE_OFF))
    assert heads == MEASURES * 2  # adapters
    assert "memory, by batch" in pages["batches"]


def test_the_trade_off_of_single_trainings_is_a_table_without_a_claim(tmp_path: Path) -> None:
    folder, several = batches(tmp_path / "run", seeds=(1,)), batches(tmp_path / "seeds")
    page = render(folder, summarise(folder))
    assert re.findall(r'<th scope="row"[^>]*>(.*?)</th>', after(page, TRADE_OFF)) == MEASURES * 2
    assert not any("soonest" in one or "best accuracy" in one for one in Page(page).findings)
    assert "soonest" in render(several, summarise(several))


def test_each_network_s_parameters_stand_with_whose_they_are(tmp_path: Path) -> None:
    """The article's text and its code have networks of different sizes; one that has changed since is as proven."""
    run, known = MadeRun(tmp_path / "run", "data-parallel"), by_name()
    digests = {name: known[name].graph().digest for name in ("mnist_large", "mnist_stated")} | {"mnist_small": "d" * 64}
    for name, digest in digests.items():
        for ranks in (1, 2):
            case = learner("pytorch", ranks, graph_digest=digest, training=Training(epochs=2)).on(workload=name)
            run.proven(case, repeats=1, ranks=taught(case))
    found = Page(after(render(run.folder, summarise(run.folder)), "Epochs over devices")).text
    sizes = "mnist_large 4 104 202 (data-parallel article); mnist_stated 2 636 554 (the article's text)"
    assert f"Parameters of the networks: {sizes}; mnist_small 60 965 224." in found


OWN = {  # by number: what the article's figure shows
    "5a": "digits.npz: samples/s of the second epoch, by strategy and network, 4\u00d7 data, batch 256 per device",
    "5b": "mnist_large on digits.npz: samples/s of the second epoch, by batch, 4\u00d7 data",
    "5c": "mnist_large on digits.npz: seconds of the second epoch, by size of the data set, batch 256 per device",
    "5d": "mnist_large on digits.npz: samples/s of the first epoch against the second, 1\u00d7 data, "
    "batch 256 per device",
    "5e": "mnist_large on digits.npz: samples/s of the second epoch, by size of the data set, batch 256 per device",
}
STRATEGIES = [("pytorch", "zero1"), ("pytorch", "ddp"), ("tensorflow", "mirrored"), ("tensorflow", "keras_fit")]


def parallel(path: Path, *workloads: str) -> list[Chart]:
    """The charts over devices of the plan data-parallel, some of its strategies and sizes."""
    run = MadeRun(path, "data-parallel")
    sizes = product(workloads, STRATEGIES, (1, 4), (128, 256, 512), (1, 2))
    for workload, (adapter, strategy), repeat, batch, ranks in sizes:
        case = learner(adapter, ranks, batch=batch, input=Input(repeat=repeat), training=Training(epochs=2))
        case = case.on(workload=workload, strategy=strategy)
        run.proven(case, repeats=1, ranks=taught(case))
    found = over_devices(summarise(run.folder))
    assert found
    return device_charts(found, article=True).epochs


def test_the_article_s_figures_come_first_and_show_its_networks_and_strategies(tmp_path: Path) -> None:
    charts = parallel(tmp_path / "run", "mnist_stated", "mnist_small", "mnist_large")
    titles = [panel.title for panel, _ in charts]
    assert titles[: len(OWN)] == [f"Figure {number}: {title}" for number, title in OWN.items()]
    assert not any("Figure" in title for title in titles[len(OWN) :])
    for panel, _ in charts[: len(OWN)]:
        own = {("pytorch", "ddp"), ("tensorflow", "keras_fit")}
        assert {(row.case.adapter, row.case.strategy) for row in panel.rows} == own
    assert {row.case.workload for row in charts[0][0].rows} == {"mnist_small", "mnist_large"}


def test_another_network_s_charts_have_no_number_of_the_article_s(tmp_path: Path) -> None:
    assert not any("Figure" in panel.title for panel, _ in parallel(tmp_path / "run", "mnist_small", "alexnet"))


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
def test_nothing_has_the_study_s_number_that_was_not_measured(
    cases: list[dict[str, Any]], numbers: list[str] | None, tmp_path: Path
) -> None:
    run = MadeRun(tmp_path / "run", "paper")
    for workload in ("googlenet", "resnet152"):  # which nobody has measured
        run.refuse(case_of(workload=workload), None, "")
    for changes in cases:
        run.proven(case_of(**changes))
    page = render(run.folder, summarise(run.folder))
    assert (re.findall(NUMBERED, page) if 'id="study"' in page else None) == numbers
    assert "googlenet" not in (after(page, "Table 4: networks") if numbers else "")


def test_the_study_s_networks_are_those_of_its_plan() -> None:
    plan = tomllib.loads((resources.files("suite") / "plans" / "paper.toml").read_text())
    assert list(NETWORKS) == plan["defaults"]["workload"]


def test_a_run_of_another_plan_has_no_study(pages: dict[str, str]) -> None:
    assert [name for name, page in pages.items() if 'id="study"' in page] == ["paper"]


@pytest.mark.parametrize(("name", "layers"), [("alexnet", 8), ("googlenet", 22), ("resnet50", 50), ("resnet152", 152)])
def test_layers_are_counted_as_networks_are_named(name: str, layers: int) -> None:
    assert depth(by_name()[name].graph()) == layers
