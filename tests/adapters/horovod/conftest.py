import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from engine import read

from suite.worker.contract import SGD

pytest.importorskip("horovod")

HERE = Path(__file__).parent
ROOT = HERE.parents[2]


@pytest.fixture(scope="session")
def run_group():
    """Run a task of rank.py in a group of real processes."""
    return _run


def _run(task, folder, world=2, mpi=False, optimiser=SGD(0.001, 0.9, 0.0), **options):  # noqa: B008 - a tuple
    """What each rank found; also asserts that every process ends by itself, and well."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    common = dict(os.environ, PYTHONPATH=str(ROOT), MASTER_ADDR="127.0.0.1", MASTER_PORT=port, OMP_NUM_THREADS="1")
    rank = [sys.executable, str(HERE / "rank.py"), task, str(folder), json.dumps({**options, "optimiser": optimiser})]
    if mpi:
        common.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
        mpiexec = str(Path(sys.executable).with_name("mpiexec"))
        group = [([mpiexec, "-n", str(world), "--map-by", ":OVERSUBSCRIBE", "--bind-to", "none", *rank], common)]
    else:
        numbers = [{"STAGEBENCH_RANK": str(each), "STAGEBENCH_WORLD": str(world)} for each in range(world)]
        group = [(rank, {**common, **each}) for each in numbers]
    processes = [subprocess.Popen(tokens, env=environ) for tokens, environ in group]
    try:
        assert [process.wait(timeout=120) for process in processes] == [0] * len(processes)
    finally:
        for process in processes:
            process.kill()
    return read(folder, world)
