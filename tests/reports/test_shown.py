"""Runs of more cases than a table has lines: what answers a plan's question has every case, the rest says its cut."""

import json
import re

import pytest

from stagebench.reports.charts.lines import POINTS, Lines, thinned
from stagebench.reports.exports.write import charts_of
from stagebench.reports.site.build import render, write
from stagebench.suite.analysis import panels as names
from stagebench.suite.analysis.summary import summarise
from stagebench.suite.results.run_folder import RunFolder
from stagebench.suite.results.stored import FORMAT
from stagebench.suite.worker.case_parts import Training
from tests.reports import made_experiments
from tests.reports.made_experiments import learner, taught
from tests.reports.made_run import MadeRun, case_of, everything, proof_of, record_of
from tests.reports.parsed import Page
from tests.reports.test_experiments import SECTIONS, SHOWN

pytestmark = pytest.mark.xdist_group("made pages")  # each made run is rendered once


def sections(html: str) -> dict[str, str]:
    found = dict(re.findall(r'<section id="(\w+)">(.*?)</section>', html, re.DOTALL))
    return {id_: re.sub("</?h[23]>", "", text) for id_, text in found.items() if id_ != "overview"}


@pytest.mark.parametrize("name", SHOWN)
def test_the_last_cases_of_a_long_plan_are_on_the_page_like_the_first(name, rendered, tmp_path):
    folder = getattr(made_experiments, name)(tmp_path / "run")
    behind_others(folder, names.SHOWN)
    alone, behind = sections(rendered(name)), sections(render(folder, summarise(folder)))
    answering = SECTIONS & alone.keys()
    assert answering == SHOWN[name]
    assert {each: behind[each] for each in answering} == {each: alone[each] for each in answering}


def behind_others(folder: RunFolder, count: int) -> None:
    """Puts so many cases that nobody could measure before those of the run."""
    path = folder.path / "cases.json"
    found = json.loads(path.read_text())
    others = [case_of(seed=1000 + index) for index in range(count)]
    refused = [{"id": one.id, "case": one.to_dict(), "outcome": "unsupported", "reason": "no"} for one in others]
    path.write_text(json.dumps({**found, "cases": refused + found["cases"]}))


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """Trainings of many strategies on one and on two devices, MXNet's behind 300 of PyTorch."""
    run, entries = MadeRun(tmp_path_factory.mktemp("long") / "run", "data-parallel"), []
    strategies = [("pytorch", f"strategy_{index}") for index in range(names.SHOWN // 6)] + [("mxnet", "kvstore_local")]
    for adapter, strategy in strategies:
        for ranks in (1, 2):
            for batch in (128, 256, 512):
                case = learner(adapter, ranks, strategy=strategy, batch=batch, training=Training(epochs=2))
                proof = proof_of(case)
                run.write(f"proofs/{proof['key']}.json", proof)
                run.write(f"records/{case.id}-r0.json", record_of(case, 0, proof, ranks=taught(case)))
                entries.append({"id": case.id, "case": case.to_dict(), "outcome": None, "reason": ""})
    run.write("cases.json", {"format": FORMAT, "cases": entries})
    return run.folder


def test_the_last_strategy_of_a_long_plan_has_its_line_its_series_and_its_epochs(long, tmp_path):
    site = write(long, tmp_path / "site").parent
    over = Page(sections((site / "scaling.html").read_text())["devices"]).text
    assert over.count("MXNet kvstore_local") >= 3 * 2
    drawn = [chart for name, chart in charts_of(long) if name.startswith("devices-") and isinstance(chart, Lines)]
    assert sum(any("MXNet" in line.name for line in chart.lines) for chart in drawn) == len(drawn) - 50  # by batch
    accuracy = sections((site / "accuracy.html").read_text())
    assert "MXNet" in Page(accuracy["epochs"]).text
    assert "MXNet" in sections((site / "communication.html").read_text())["exchange"]
    assert "MXNet kvstore_local" not in Page(accuracy["learning"]).text
    assert "The first 300 of 306 trainings" in accuracy["learning"]
    assert 'href="index.html#cases"' in accuracy["learning"]


def test_every_section_with_a_line_for_each_case_says_where_it_is_cut(tmp_path, monkeypatch):
    folder = everything(tmp_path / "run")
    for module in ["overview", "speed", "stages", "scaling", "communication", "inputs", "learning", "evidence", "run"]:
        monkeypatch.setattr(f"stagebench.reports.pages.{module}.SHOWN", 2)
    found = {name: Page(html).text for name, html in sections(render(folder, summarise(folder))).items()}
    cut = {name: int(said[1]) for name, text in found.items() if (said := re.search(r"The first 2 of (\d+) ", text))}
    of_speed, of_devices = dict.fromkeys(("speeds", "steps", "startup", "stages"), 15), {"scaling": 8, "aggregation": 8}
    of_cases = {"proofs": 20, "outcomes": 22, "notes": 19}
    assert cut == {**of_speed, **of_devices, **of_cases, "layers": 6, "input": 7, "learning": 4}
    monkeypatch.undo()
    whole = {name: Page(html).text for name, html in sections(render(folder, summarise(folder))).items()}
    assert not any("The first 2 of" in text for text in whole.values())
    assert found["study"] == whole["study"]


def test_an_exchange_behind_many_others_has_its_table_and_says_that_it_has_no_curves(tmp_path, monkeypatch):
    folder = made_experiments.epochs(tmp_path / "run")
    monkeypatch.setattr("stagebench.reports.pages.communication.SHOWN", 4)  # two strategies each
    assert render(folder, summarise(folder)).count("Without curves: ") == 2


@pytest.mark.parametrize("count", [0, 1, POINTS, POINTS + 1, 10 * POINTS + 3])
def test_a_long_curve_keeps_its_last_point(count: int) -> None:
    points = thinned(range(count))
    assert len(points) <= POINTS
    assert len(points) >= min(count, POINTS // 2)
    assert points[-1:] == [count - 1] * bool(count)
