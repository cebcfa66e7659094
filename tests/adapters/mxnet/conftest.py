import sys
import warnings
from pathlib import Path

import pytest

with warnings.catch_warnings():
    # MXNet uses NumPy's old names (np.bool) and warns of it at every import.
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    pytest.importorskip("mxnet")

from stagebench.adapters.mxnet import server
from stagebench.suite.worker.contract import SGD
from tests.adapters.alike import trainer_of
from tests.support import processes

RANK = Path(__file__).with_name("rank.py")


trainer = trainer_of("mxnet")


@pytest.fixture(scope="session")
def run_group():
    """Run a task of rank.py in a group of real processes, which must all end by themselves, and well."""

    def run(task, folder, workers=2, servers=1, **options):
        options = {"tuning": "tuned", "optimiser": SGD(0.001, 0.9, 0.0), **options}
        common = processes.variables(DMLC_NUM_WORKER=workers, DMLC_NUM_SERVER=servers)
        roles = ("scheduler", *("server",) * servers)
        group = [([sys.executable, server.__file__, role], common) for role in roles]
        group += processes.ranks(processes.rank_tokens(RANK, task, folder, **options), workers, common)
        processes.run_together(group)
        return processes.found_by(folder, workers)

    return run
