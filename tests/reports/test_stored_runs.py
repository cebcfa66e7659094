"""A run of every format shows what it showed when it was measured: rows and page, to the last digit."""

import json
from pathlib import Path
from typing import Any

import pytest

from stagebench.reports.site.build import write
from stagebench.suite.analysis.budget import STAGES
from stagebench.suite.analysis.links import links
from stagebench.suite.analysis.stats import Interval
from stagebench.suite.analysis.summary import summarise
from stagebench.suite.analysis.wording import milliseconds, number
from stagebench.suite.results.records import COMM
from stagebench.suite.results.run_folder import RunFolder
from tests.reports.cells import Cells
from tests.reports.parsed import Page

RUNS = Path(__file__).parents[1] / "fixtures" / "runs"


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


def test_the_rows_are_those_of_then(runs: Path) -> None:
    rows = summarise(RunFolder.open(runs / "training"))
    assert as_json([row.to_dict() for row in rows]) == stored(runs / "training.json")


def test_the_page_shows_the_numbers_of_then(runs: Path, tmp_path: Path) -> None:
    text = Page(write(RunFolder.open(runs / "training"), tmp_path, single=True).read_text()).text
    for row in stored(runs / "training.json"):
        speed, budget = row["samples_per_second"], row["budget_seconds"]
        if speed:
            shown = f"{number(speed['low'])} … {number(speed['high'])}"
            assert spaced(f"{number(speed['value'])} {shown}") in text or not Interval(**speed).tells
        if budget:
            assert all(spaced(milliseconds(budget[stage])) in text for stage in (*STAGES, "native", "staged"))


def test_communication_is_that_of_then(runs: Path, tmp_path: Path) -> None:
    folder = RunFolder.open(runs / "comm", COMM)
    assert as_json([link.to_dict() for link in links(folder)]) == stored(runs / "comm.json")
    then, now = stored(runs / "comm-page.json"), Cells(write(folder, tmp_path).read_text())
    assert now.rows == then["rows"]
