"""The page of each made experiment, rendered once for all tests that look at it."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from reports.site.build import render
from suite.analysis.summary import summarise
from tests.reports import made_experiments
from tests.reports.made_run import MadeRun


@pytest.fixture
def run(tmp_path: Path) -> MadeRun:
    """A run folder in the making."""
    return MadeRun(tmp_path / "run")


@pytest.fixture(scope="session")
def rendered(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """The single page of a run by its name in `made_experiments`."""

    @cache
    def page(name: str) -> str:
        folder = getattr(made_experiments, name)(tmp_path_factory.mktemp(name) / "run")
        return render(folder, summarise(folder))

    return page
