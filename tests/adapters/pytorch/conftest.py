import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

from adapters.pytorch.worker import PyTorchTrainer
from adapters.reference.worker import ReferenceTrainer
from suite.worker import evidence
from suite.worker.contract import SGD, Adam, Setup

ROOT = Path(__file__).parents[3]

RULE = SGD(0.01, 0.9, 1e-3)


def make_trainer(
    strategy="single",
    tuning="tuned",
    precision="float32",
    device="cpu",
    readers=0,
    batch=2,
    optimiser=RULE,
    **knobs,
):
    return PyTorchTrainer(Setup(0, 1, 0, strategy, device, 1, batch, precision, tuning, knobs, optimiser, 1, readers))


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


@pytest.fixture
def ranks(tmp_path):
    """A function that runs a task of rank.py on real ranks and returns what each of them found."""

    def run(task, graph, world=2, **options):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = str(probe.getsockname()[1])
        common = dict(os.environ, PYTHONPATH=str(ROOT), MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
        common.update(STAGEBENCH_WORLD=str(world))
        (tmp_path / "graph.json").write_text(json.dumps(graph.to_dict()))
        tokens = [sys.executable, "-W", "error", str(Path(__file__).with_name("rank.py"))]
        tokens += [task, tmp_path, json.dumps(options)]
        running = [subprocess.Popen(tokens, env=dict(common, STAGEBENCH_RANK=str(rank))) for rank in range(world)]
        try:
            assert [rank.wait(timeout=300) for rank in running] == [0] * world
        finally:
            for rank in running:
                rank.kill()
        return [json.loads((tmp_path / f"found-{rank}.json").read_text()) for rank in range(world)]

    return run


@pytest.fixture
def proven(ranks, tmp_path):
    """A function that proves a strategy on real ranks, in float64: batches joined, pieces normalised by themselves."""

    def prove(graph, world=2, batch=8, pieces=1, optimiser="sgd", **options):
        networks = world // options.get("parts", 1)
        shards = {"shards": networks * pieces, "observed": pieces}
        rule = {"sgd": SGD(0.001, 0.9, 1e-3), "adam": Adam(1e-3, 0.9, 0.999, 1e-3, 1e-3)}[optimiser]
        samples = batch * networks
        oracle = ReferenceTrainer(Setup(0, 1, 0, "single", "cpu", 1, samples, "float64", "default", shards, rule, 1, 0))
        oracle.start()
        (tmp_path / "oracle").mkdir()
        evidence.write_oracle(oracle, graph, samples, str(tmp_path / "oracle"))
        precision = options.pop("precision", "float64")
        proofs = ranks("prove", graph, world, batch=batch, precision=precision, optimiser=optimiser, **options)
        # The oracle is stored in float32: its rounding is the distance that remains.
        bound = 1e-6 if precision == "float64" else 1e-5
        for proof in proofs:
            far = {kind: max(errors.values()) for kind, errors in proof["errors"].items() if "movement" not in kind}
            assert max(far.values()) < bound, far
            assert (proof["macs"], proof["parameter_count"]) == (graph.macs, graph.parameter_count)
        for way in ("staged", "native"):
            joint = [sum(losses) / world for losses in zip(*(proof["losses"][way] for proof in proofs), strict=True)]
            assert joint == pytest.approx(proofs[0]["losses"]["oracle"], rel=2e-6)
        return proofs

    return prove
