"""The page of each made experiment, rendered once for all tests that look at it."""

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from stagebench.reports.pages import scaling
from stagebench.reports.site.build import render
from stagebench.suite.analysis.summary import summarise
from tests.reports import made_experiments
from tests.reports.made_run import MadeRun


@pytest.fixture(scope="module", autouse=True)
def _few_predictions(request: pytest.FixtureRequest) -> Iterator[None]:
    """One step of each what-if, but where a browser takes them: they are most of a report's time."""
    with pytest.MonkeyPatch.context() as patch:
        if not request.module.__name__.endswith("test_browser"):
            patch.setattr(scaling, "STEPS", {name: steps[1:2] for name, steps in scaling.STEPS.items()})
        yield


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
