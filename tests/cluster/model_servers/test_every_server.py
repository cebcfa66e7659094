"""Every model server that is installed here, for real, in front of a predictor whose answers are the samples."""

from pathlib import Path

import numpy as np
import pytest

from suite.errors import Unavailable
from suite.plugins import model_servers
from suite.processes.launch import started
from suite.worker.arrivals import Asked
from suite.worker.case_parts import Serving
from suite.worker.model_server import Behind
from tests.support.echo import SAMPLES, echo
from tests.support.started import running_in

pytestmark = pytest.mark.slow
DUE = np.arange(1.0, 401.0) / 400.0


@pytest.fixture(params=sorted(model_servers()))
def server(request, tmp_path):
    """Gives a declaration and what starts it."""
    try:
        return model_servers()[request.param], started(request.param, {}, tmp_path / "bundle")
    except Unavailable as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("workers", [1, 2])
def test_every_answer_is_right_batches_are_made_and_nothing_stays(server, workers, tmp_path):
    declared, named = server
    predictor = echo(batch=4 if declared.batches else 1, batch_s=1e-3)
    rule = Serving(max_delay_ms=8.0, bound_ms=2000.0, workers=workers)  # a busy machine's queue is not hopeless soon
    with Behind(Asked(predictor, SAMPLES), rule, named, str(tmp_path)).running() as behind:
        behind.capacity()
        found = behind.attempt(400.0, DUE)
        folder = Path(behind._told.memory).parent
    assert len(found.latency_s) == sum(found.batches) == found.compared == found.scheduled == 400
    assert (found.wrong, found.malformed, found.refused, found.timed_out, found.failed) == (0,) * 5
    assert (1 < max(found.batches) <= 4) if declared.batches else set(found.batches) == {1}
    if declared.delays and workers == 1:
        assert np.mean(found.batches) > 2
    assert running_in(folder) == []
    assert not folder.exists()
