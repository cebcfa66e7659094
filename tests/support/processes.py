"""Real processes: the ranks of a group with whatever runs beside them, and what they have found."""

import json
import os
import shutil
import subprocess
import sys
import time

import numpy as np

from stagebench.suite.worker.rendezvous import free_port
from tests.support.forked import Forked, possible

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def variables(**changes):
    """This process's environment for another that imports this tree, on one thread, with a meeting place of its own."""
    found = dict(os.environ, PYTHONPATH=ROOT, OMP_NUM_THREADS="1")
    found.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()))
    found.update((name, str(value)) for name, value in changes.items())
    return found


def run_together(commands, beside=(), limit=300):
    """Run commands at once, each (tokens, variables): all must end by themselves, and well.

    What runs `beside` them, servers for example, must still be there then, and is killed.
    The first that fails ends all.
    """
    running, lasting = [], []
    try:
        for into, each in ((lasting, beside), (running, commands)):
            into.extend(_started([str(token) for token in tokens], environ) for tokens, environ in each)
        deadline = time.time() + limit
        while any(process.poll() is None for process in running):
            assert not any(process.poll() for process in running), [process.poll() for process in running]
            assert time.time() < deadline, "still running after %d s" % limit
            time.sleep(0.02)
        assert [process.poll() for process in running] == [0] * len(running)
        assert [process.poll() for process in lasting] == [None] * len(lasting)
    finally:
        for process in running + lasting:
            process.kill()
            process.wait()


def _started(tokens, environ):
    return Forked(tokens, env=environ) if possible(tokens) else subprocess.Popen(tokens, env=environ)


def ranks(tokens, world, common=None):
    """A command for each of `world` ranks, with the variables that say which it is."""
    common = common or variables()
    numbers = [{"STAGEBENCH_RANK": str(rank), "STAGEBENCH_WORLD": str(world)} for rank in range(world)]
    return [(tokens, dict(common, **each)) for each in numbers]


def rank_tokens(program, task, folder, graph=None, python=(sys.executable,), **options):
    """A program that calls `tests.support.rank.main`, for one of its tasks; writes the graph where it is sought."""
    if graph is not None:
        (folder / "graph.json").write_text(json.dumps(graph.to_dict()))
    return list(python) + [str(program), task, str(folder), json.dumps(options)]


def mpiexec():
    """The start of an Open MPI command line for more ranks than cores, which it may share; None where there is none."""
    beside = os.path.join(os.path.dirname(sys.executable), "mpiexec")
    program = os.environ.get("STAGEBENCH_MPIEXEC") or (beside if os.path.exists(beside) else shutil.which("mpiexec"))
    return program and [program, "--oversubscribe", "--bind-to", "none"]


def mpi_variables(**changes):
    """As `variables`, for ranks that Open MPI's mpiexec starts; as root, too."""
    found = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    # As the launcher mpiexec names them (stagebench.cluster.dialects, which Python 3.6 cannot import).
    numbers = ["OMPI_COMM_WORLD_" + each for each in ("RANK", "SIZE", "LOCAL_RANK")]
    found.update(STAGEBENCH_RANK_VARIABLES=",".join(numbers), OMPI_MCA_mpi_yield_when_idle="1")
    return variables(**dict(found, **changes))


def found_by(folder, world):
    """What each rank wrote by `tests.support.rank.write`."""
    return [json.loads((folder / ("found-%d.json" % rank)).read_text()) for rank in range(world)]


def saved_by(folder, name, world=2):
    """The arrays that each rank kept under a name by `tests.support.rank.keep`."""
    return [dict(np.load(str(folder / ("%s-%d.npz" % (name, rank))))) for rank in range(world)]
