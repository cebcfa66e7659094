"""A run of format 1 shows what it showed when it was measured: rows and page, to the last digit."""

import json
from pathlib import Path
from typing import Any

from reports import comm, page
from suite.analysis.links import links
from suite.analysis.summary import summarise
from suite.comm.records import CommFolder
from suite.results.run_folder import RunFolder
from tests.reports.cells import Cells

RUNS = Path(__file__).parents[1] / "fixtures" / "runs" / "format-1"


def as_json(content: object) -> Any:
    return json.loads(json.dumps(content))


def stored(name: str) -> Any:
    return json.loads((RUNS / f"{name}.json").read_text())


def test_the_rows_are_those_of_then() -> None:
    then, now = stored("training"), as_json([row.to_dict() for row in summarise(RunFolder.open(RUNS / "training"))])
    for row, old in zip(now, then, strict=True):
        row["case"] = {name: row["case"][name] for name in old["case"]}  # a case may have learnt further fields
    assert now == then


def test_the_page_is_that_of_then(tmp_path: Path) -> None:
    then = stored("training-page")
    now = Cells(page.write(RunFolder.open(RUNS / "training"), tmp_path).read_text())
    assert now.rows == then["rows"]
    assert now.figures == then["figures"]


def test_communication_is_that_of_then(tmp_path: Path) -> None:
    folder = CommFolder.open(RUNS / "comm")
    assert as_json([link.to_dict() for link in links(folder)]) == stored("comm")
    then, now = stored("comm-page"), Cells(comm.write(folder, tmp_path).read_text())
    assert now.rows == then["rows"]
    assert now.figures == then["figures"]
