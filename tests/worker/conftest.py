"""What the worker's tests share. They run on Python 3.6, where the controller cannot be imported."""

import os
import subprocess
import sys

import pytest

from stagebench import suite
from stagebench.suite.worker.job import Job, encode
from stagebench.suite.worker.messages import decode
from tests.support import jobs
from tests.support.behind import Clock

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(suite.__file__)))
sys.path.insert(0, HERE)  # for `toy`, which worker processes import too


@pytest.fixture
def sampling():
    """As short as the loop allows."""
    return jobs.SHORT


@pytest.fixture
def settled(monkeypatch):
    """Warm-ups of as few steps as can be: bodies that do nothing take times that may well fall."""
    monkeypatch.setattr("stagebench.suite.worker.loop.falling", lambda seconds: False)


@pytest.fixture
def clock(monkeypatch):
    """One in place of the system's, for whoever measures or sleeps."""
    made = Clock()
    for module in ("feed", "loop", "member", "passes"):
        monkeypatch.setattr("stagebench.suite.worker.%s.time" % module, made)
    monkeypatch.setattr("toy.time", made)
    return made


@pytest.fixture
def make_job(tmp_path):
    """A job as the controller writes it (of `jobs.measure()`, if no task is given); returns its path."""

    def make(task=None, **group):
        output = tmp_path / ("attempt-%d" % len(list(tmp_path.iterdir())))
        output.mkdir()
        path = output / "job.json"
        path.write_text(encode(Job(str(output), jobs.ranks(**group), task or jobs.measure())))
        return path

    return make


@pytest.fixture
def work():
    """Runs a worker on a job as a launcher does; (exit code, messages of its rank)."""

    def run(path, rank=0, world=1):
        environ = dict(os.environ, STAGEBENCH_RANK=str(rank), STAGEBENCH_WORLD=str(world))
        environ.update(PYTHONPATH=os.pathsep.join([ROOT, HERE]), OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1")
        code = subprocess.call([sys.executable, "-m", "stagebench.suite.worker", str(path)], env=environ, timeout=300)
        lines = (path.parent / ("rank-%d.jsonl" % rank)).read_text().splitlines()
        return code, [decode(line) for line in lines]

    return run
