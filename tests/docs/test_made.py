"""The tables that are made from the code are up to date, and each is on a page."""

from pathlib import Path

import pytest

from tests.docs.made import BLOCK, MADE, pages, renewed


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_its_tables_are_up_to_date(page: Path) -> None:
    assert page.read_text() == renewed(page.read_text()), "python -m tests.docs.made"


def test_every_table_is_on_a_page() -> None:
    assert {name for page in pages() for _, name, _ in BLOCK.findall(page.read_text())} == set(MADE)
