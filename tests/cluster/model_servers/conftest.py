"""Model servers in environments of their own; tests skip where one is not installed."""

import pytest

from stagebench.suite.errors import Unavailable
from stagebench.suite.processes.launch import started


@pytest.fixture
def installed(tmp_path):
    """Gives what starts a model server that is installed here."""

    def found(name):
        try:
            return started(name, {}, tmp_path / "bundle")
        except Unavailable as error:
            pytest.skip(str(error))

    return found
