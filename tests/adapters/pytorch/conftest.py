from pathlib import Path

import pytest

pytest.importorskip("torch")

from stagebench.suite.worker.contract import SGD, Adam
from stagebench.suite.worker.view import View
from tests.adapters.alike import trainer_of
from tests.support import forked, pictures, processes, proofs
from tests.support.jobs import READ_ONCE

forked.preload("stagebench.adapters.pytorch.strategies.ddp", "tests.support.rank", "torch._dynamo")

RULES = {
    "sgd": SGD(0.001, 0.9, 1e-3),
    "clipped": SGD(0.001, 0.9, 1e-3, clip=0.05),
    "adam": Adam(1e-3, 0.9, 0.999, 1e-3, 1e-3),
}


trainer = trainer_of("pytorch")


@pytest.fixture
def ranks(tmp_path):
    """A function that runs a task of rank.py on real ranks and returns what each of them found."""

    def run(task, graph, world=2, optimiser="sgd", **options):
        options["optimiser"] = RULES[optimiser]
        tokens = processes.rank_tokens(Path(__file__).with_name("rank.py"), task, tmp_path, graph, **options)
        processes.run_together(processes.ranks([tokens[0], "-W", "error", *tokens[1:]], world))
        return processes.found_by(tmp_path, world)

    return run


@pytest.fixture
def proven(ranks, tmp_path):
    """A function that proves a strategy on real ranks, in float64: batches joined, pieces normalised by themselves."""

    def prove(graph, world=2, batch=8, pieces=1, optimiser="sgd", precision="float64", **options):
        networks = world // options.get("model_parallel_size", 1)
        shards = {"shards": networks * pieces, "observed": pieces}
        proofs.write_oracle(graph, batch * networks, tmp_path / "oracle", RULES[optimiser], **shards)
        found = ranks("prove", graph, world, optimiser, batch=batch, precision=precision, **options)
        # The oracle is stored in float32: its rounding is the distance that remains.
        proofs.assert_proven(graph, *found, tensor=1e-6 if precision == "float64" else 1e-5)
        return found

    return prove


@pytest.fixture
def seen(tmp_path):
    """A function that makes a source's view; keywords change how it is read."""

    def make(source, **changes):
        return View(source, READ_ONCE._replace(**changes), 1, str(tmp_path / "skipped.txt"))

    return make


@pytest.fixture
def folder(tmp_path):
    """Ten JPEG files of two classes."""
    for label in ("ants", "bees"):
        (tmp_path / "images" / label).mkdir(parents=True)
        for number in range(5):
            picture = pictures.drawn(number + 7 * (label == "bees"))
            picture.save(tmp_path / "images" / label / f"{number}.jpg")
    return tmp_path / "images"
