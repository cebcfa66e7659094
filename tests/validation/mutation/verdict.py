"""A pytest plugin for mutmut, which takes exit code 1 for a failed test: here it comes of nothing else.

Without it, files that cannot be collected end with 1 too, and so does a mutant that has changed its tests' names, since
mutmut's process then dies of an exception.
"""

from collections.abc import Generator

import pytest

NO_VERDICT = 35  # mutmut's own code for what is suspicious
_failed: list[str] = []


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Remember which test failed."""
    if report.failed:
        _failed.append(report.nodeid)


@pytest.hookimpl(wrapper=True)
def pytest_cmdline_main() -> Generator[None, int, int]:
    """Replace an exit code that does not tell of a test."""
    _failed.clear()  # mutmut runs pytest several times in one process
    try:
        code = yield
    except pytest.UsageError:
        return NO_VERDICT
    return code if code != pytest.ExitCode.TESTS_FAILED or _failed else NO_VERDICT
