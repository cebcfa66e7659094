"""The tables that are made from the code are up to date, and each is on a page."""

import json
import re
import runpy
from pathlib import Path

import pytest

from tests.docs.made import BLOCK, MADE, ROOT, pages, renewed


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_its_tables_are_up_to_date(page: Path) -> None:
    assert page.read_text() == renewed(page.read_text()), "python -m tests.docs.made"


def test_every_table_is_on_a_page_with_mistakes_that_are_kept() -> None:
    assert {name for page in pages() for _, name, _ in BLOCK.findall(page.read_text())} == set(MADE)
    page = (ROOT / "docs" / "planted-mistakes.md").read_text()
    shown = dict(re.findall(r"^\| (.+?) \| `(.+)` \|$", page, re.MULTILINE))
    assert shown
    assert shown.items() <= json.loads((ROOT / "docs" / "planted-mistakes.json").read_text()).items()


def test_the_website_has_the_tables_of_the_results() -> None:
    tables = runpy.run_path(str(ROOT / "docs" / "conf.py"))["tables"]
    assert "| alexnet, speed over the plain loop's |" in tables("trust")
    assert "| learning rate | ``staged parameter of" in tables("planted-mistakes")
    assert "| none | 19 | completed 19 | 0 |" in tables("faults")
    validation = tables("validation")
    assert "| 3 deviations, 10 runs | 81.8% | 5.1% |" in validation
    assert "| 8 | merged | 1210.9 | 1274 (+5.2%) |" in validation
    assert "| cases: 1, processes: 3 | 2.7% |" in validation
    assert not tables("index")
