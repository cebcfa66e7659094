"""The coordinator's rank, for test_coordinator."""

import threading

import numpy as np

from stagebench.suite.worker.contract import Batch
from stagebench.suite.worker.feed import synthetic
from stagebench.workloads import weights
from stagebench.workloads.build import Builder
from tests.support import rank
from tests.support.trainers import by_strategy

UPDATES, STEPS = 3, 30


def prove(trainer, graph, folder):
    """The proof, and the notes after it."""
    return dict(rank.prove(trainer, graph, folder), notes=trainer.notes())


def stages(trainer, graph, folder):
    """Shares that are computed on the same weights are one batch: this trainer's weights, to be compared."""
    trainer.build(graph, dict(weights.initial(graph)))
    batch = trainer.to_device(synthetic(graph, trainer.setup.batch, 1))
    losses = []
    for _ in range(UPDATES):
        trainer.forward(batch)
        losses.append(trainer.loss())
        trainer.backward()
        trainer.communicate()
        gradients = trainer.gradients()
        trainer.update()
    rank.keep(folder, "parameters", trainer, trainer.parameters())
    rank.keep(folder, "gradients", trainer, gradients)
    return {"losses": losses, "logits": trainer.logits().tolist(), "predicted": trainer.predict(batch).shape}


def learn(trainer, graph, _):
    """Whole steps, staleness before and after a training has begun, and a second network in the same cluster."""
    for _ in range(2):
        trainer.build(graph, dict(weights.initial(graph)))
        batch = trainer.to_device(synthetic(graph, trainer.setup.batch, 1))
        trainer.step(batch)
        first = trainer.loss()
    quiet = trainer.notes()
    trainer.begin_training()
    losses = []
    for _ in range(STEPS):
        trainer.step(batch)
        losses.append(trainer.loss())
    stale = trainer.notes()["staleness"]
    for _ in range(2 * trainer.ahead):
        trainer.step(batch)
    flying = len(trainer._in_flight)
    trainer.synchronize()
    flying = [flying, len(trainer._in_flight)]
    found = {"quiet": "staleness" not in quiet, "first": first, "losses": losses, "stale": stale, "flying": flying}
    found["masked"] = masked(trainer)
    trainer.close()
    return dict(found, left=left())


def masked(trainer):
    """Each share's losses in two steps, for two networks made alike; the shares hold the same samples."""
    b = Builder("masked", (1, 4, 4), 3)
    b.head(b.dense("fc", b.dropout("drop", b.flatten("flat", "input"), 0.5), 3))
    half = synthetic(b.graph, trainer.setup.batch // 2, 1)
    found = []
    for _ in range(2):
        trainer.build(b.graph, dict(weights.initial(b.graph)))
        batch = trainer.to_device(Batch(np.concatenate([half.inputs] * 2), np.concatenate([half.labels] * 2)))
        for _ in range(2):
            trainer.forward(batch)  # nothing is updated: only the masks can make a difference
            found.append([float(loss) for loss in trainer._losses])
    return found


def left():
    """Threads that still run some seconds after they were told to end."""
    others = [each for each in threading.enumerate() if each is not threading.current_thread()]
    for thread in others:
        thread.join(timeout=60)
    return [each.name for each in others if each.is_alive()]


if __name__ == "__main__":
    rank.main(by_strategy("tensorflow"), {"prove": prove, "stages": stages, "learn": learn}, strategy="coordinator")
