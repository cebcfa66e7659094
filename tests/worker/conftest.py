"""What the worker's tests share. They run on Python 3.6, where the controller cannot be imported."""

import json
import os
import subprocess
import sys

import pytest

import suite
from workloads.catalogue import by_name
from workloads.preprocessing import PHOTOGRAPHS

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(suite.__file__)))
sys.path.insert(0, HERE)  # for `toy`, which worker processes import too

ASIDE = ("data", "oracle", "format", "pack", "samples", "communicator", "comm")  # of a job, beside its case
SAMPLING = {"warmup_steps": 5, "warmup_limit": 0.0, "steady": 0.05, "steps": 3, "seconds": 0.0}


@pytest.fixture
def sampling():
    """As short as the loop allows."""
    return dict(SAMPLING)


@pytest.fixture
def make_job(tmp_path):
    """A job as the controller writes it, with changes to its case; returns its path."""

    def make(task="measure", trainer="adapters.reference.worker:ReferenceTrainer", workload="mnist_small", **changes):
        output = tmp_path / ("attempt-%d" % len(list(tmp_path.iterdir())))
        output.mkdir()
        job = {key: changes.pop(key) for key in ASIDE if key in changes}
        placement = {"nodes": 1, "ranks_per_node": 1, "devices": 1, "device": "cpu", "threads": 1}
        placement["binding"] = "none"
        placement.update(changes.pop("placement", {}))
        case = {"strategy": "single", "batch": 4, "precision": "float64", "tuning": "default", "knobs": {}}
        case.update(
            optimiser="sgd", lr=0.001, momentum=0.9, weight_decay=0.0, seed=1, readers=0, passes=["native", "staged"]
        )
        read = {
            "mode": "disk",
            "page_cache": "as is",
            "prefetch": 2,
            "repeat": 1,
            "augment": "centre",
            "on_error": "fail",
        }
        read.update(changes.pop("input", {}))
        case.update(changes, placement=placement, sampling=SAMPLING, input=read)
        defaults = {"format": 1, "data": None, "oracle": None, "task": task, "trainer": trainer}
        defaults["preprocessing"] = PHOTOGRAPHS._asdict()
        graph = by_name()[workload].graph().to_dict()
        job = dict(defaults, case=case, graph=graph, output=str(output), batch=case["batch"], **job)
        path = output / "job.json"
        path.write_text(json.dumps(job))
        return path

    return make


@pytest.fixture
def work():
    """Runs a worker on a job as a launcher does; (exit code, messages of its rank)."""

    def run(path, rank=0, world=1):
        environ = dict(os.environ, STAGEBENCH_RANK=str(rank), STAGEBENCH_WORLD=str(world))
        environ.update(PYTHONPATH=os.pathsep.join([ROOT, HERE]), OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1")
        code = subprocess.call([sys.executable, "-m", "suite.worker", str(path)], env=environ, timeout=300)
        lines = (path.parent / ("rank-%d.jsonl" % rank)).read_text().splitlines()
        return code, [json.loads(line) for line in lines]

    return run
