import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from stagebench.suite.worker.contract import SGD
from tests.support import processes

pytest.importorskip("horovod")

RANK = Path(__file__).with_name("rank.py")


@pytest.fixture(scope="session")
def run_group():
    """Run a task of rank.py in a group of real processes, which must all end by themselves, and well."""

    def run(task, folder, world=2, mpi=False, **options):
        tokens = processes.rank_tokens(RANK, task, folder, **{"optimiser": SGD(0.001, 0.9, 0.0), **options})
        if mpi:
            started = [*processes.mpiexec(), "-n", str(world), *tokens]
            processes.run_together([(started, processes.mpi_variables())])
        else:
            processes.run_together(processes.ranks(tokens, world))
        return processes.found_by(folder, world)

    return run
