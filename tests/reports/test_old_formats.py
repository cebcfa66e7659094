"""A run of every format shows what it showed when it was measured: rows and page, to the last digit."""

import json
from pathlib import Path
from typing import Any

import pytest

from reports import comm, site
from reports.text import milliseconds, number
from suite.analysis.budget import STAGES
from suite.analysis.links import links
from suite.analysis.stats import Interval
from suite.analysis.summary import summarise
from suite.comm.records import CommFolder
from suite.results.run_folder import RunFolder
from tests.reports.cells import Cells
from tests.reports.parsed import Page

RUNS = Path(__file__).parents[1] / "fixtures" / "runs"
# Keys of rows.
RENAMED = {"hideable": "overlappable", "observer_effect": "instrumentation_overhead", "left_out": "skipped"}


@pytest.fixture(params=sorted(path.name for path in RUNS.iterdir()))
def runs(request: pytest.FixtureRequest) -> Path:
    return RUNS / request.param


def rounded(text: str) -> float:
    """Twelve digits: Python 3.12 began to sum with compensation, and the last bits are not shown."""
    return float(f"{float(text):.12g}")


def parsed(text: str) -> Any:
    return json.loads(text, parse_float=rounded)


def spaced(text: str) -> str:
    """As a page's text is read: every space is a plain one."""
    return " ".join(text.split())


def as_json(content: object) -> Any:
    return parsed(json.dumps(content))


def stored(path: Path) -> Any:
    return parsed(path.read_text())


def known(now: Any, then: Any) -> Any:
    """Without what was not there then: fields may have come since."""
    if isinstance(then, list):
        return [known(*each) for each in zip(now, then, strict=True)]
    if not isinstance(then, dict):
        return now
    called = {name: RENAMED.get(name, name) for name in then}
    return {name: known(now[called[name]], then[name]) for name in then if called[name] in now}


def test_the_rows_are_those_of_then(runs: Path) -> None:
    then = stored(runs / "training.json")
    now = as_json([row.to_dict() for row in summarise(RunFolder.open(runs / "training"))])
    for old in then:
        old["case"]["sampling"].pop("steady", None)  # which nothing was ever shown of
    assert [known(row, old) for row, old in zip(now, then, strict=True)] == then


def test_the_page_shows_the_numbers_of_then(runs: Path, tmp_path: Path) -> None:
    text = Page(site.write_single(RunFolder.open(runs / "training"), tmp_path).read_text()).text
    for row in stored(runs / "training.json"):
        speed, budget = row["samples_per_second"], row["budget_seconds"]
        if speed:
            shown = f"{number(speed['low'])} … {number(speed['high'])}"
            assert spaced(f"{number(speed['value'])} {shown}") in text or not Interval(**speed).tells
        if budget:
            assert all(spaced(milliseconds(budget[stage])) in text for stage in (*STAGES, "native", "staged"))


def test_communication_is_that_of_then(runs: Path, tmp_path: Path) -> None:
    folder = CommFolder.open(runs / "comm")
    old = stored(runs / "comm.json")
    for link in old:
        link.pop("id")  # it is worked out from the case, which has had more fields since
    assert [
        known(link, then) for link, then in zip(as_json([link.to_dict() for link in links(folder)]), old, strict=True)
    ] == old
    then, now = stored(runs / "comm-page.json"), Cells(comm.write(folder, tmp_path).read_text())
    assert now.rows == then["rows"]
    assert as_json(now.figures) == then["figures"]
