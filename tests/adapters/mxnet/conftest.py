import json
import os
import socket
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

with warnings.catch_warnings():
    # MXNet uses NumPy's old names (np.bool) and warns of it at every import.
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    pytest.importorskip("mxnet")

from adapters.mxnet.worker import MXNetTrainer
from suite.worker.contract import SGD, Setup

ROOT = Path(__file__).parents[3]
SERVER = ROOT / "adapters" / "mxnet" / "server.py"
RANK = Path(__file__).with_name("rank.py")


def make_trainer(
    strategy="single",
    tuning="tuned",
    precision="float32",
    device="cpu",
    batch=2,
    devices=1,
    readers=0,
    prefetch=2,
    optimiser=SGD(0.01, 0.9, 1e-3),  # noqa: B008 - a tuple
    **knobs,
):
    setup = Setup(
        0, 1, 0, strategy, device, 1, batch, precision, tuning, knobs, optimiser, 1, readers, prefetch, devices
    )
    return MXNetTrainer(setup)


@pytest.fixture
def trainer():
    """A function that makes a started, single-rank trainer; all are closed at the end."""
    made = []

    def make(**options):
        made.append(make_trainer(**options))
        made[-1].start()
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture(scope="session")
def run_group():
    """Run a task of rank.py in a group of real processes."""
    return _run


def _run(task, folder, workers=2, servers=1, optimiser=SGD(0.001, 0.9, 0.0), **options):  # noqa: B008 - a tuple
    """What each worker found; also asserts that every process ends by itself, and well."""
    options["optimiser"] = optimiser
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    common = dict(os.environ, PYTHONPATH=str(ROOT), MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    common.update(DMLC_NUM_WORKER=str(workers), DMLC_NUM_SERVER=str(servers), STAGEBENCH_WORLD=str(workers))
    common.update(OMP_NUM_THREADS="1")
    tokens = [[str(SERVER), role] for role in ("scheduler", *("server",) * servers)]
    environs = [common] * len(tokens)
    for rank in range(workers):
        tokens.append([str(RANK), task, str(folder), json.dumps(options)])
        environs.append(dict(common, STAGEBENCH_RANK=str(rank)))
    group = [subprocess.Popen([sys.executable, *each], env=env) for each, env in zip(tokens, environs, strict=True)]
    try:
        assert [process.wait(timeout=60) for process in group] == [0] * len(group)
    finally:
        for process in group:
            process.kill()
    return [json.loads((folder / f"found-{rank}.json").read_text()) for rank in range(workers)]
