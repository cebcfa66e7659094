"""The coordinator's rank, for test_coordinated: what it found goes to a file.

python coordinated_rank.py FOLDER TASK WORKERS KNOBS        (MASTER_ADDR and MASTER_PORT set)
"""

import json
import sys
import threading
from pathlib import Path

import numpy as np

from adapters.tensorflow.worker import TensorFlowTrainer
from suite.worker import evidence
from suite.worker.contract import SGD, Adam, Batch, Setup
from suite.worker.feed import synthetic
from workloads import weights
from workloads.build import Builder
from workloads.catalogue import by_name

PROVEN = Adam(1e-3, 0.9, 0.999, 1e-7, 1e-4)
PLAIN = SGD(0.05, 0.0, 0.0)  # without momentum shares' updates can be added in any order
LEARNING = SGD(0.01, 0.9, 0.0)
UPDATES, STEPS = 3, 30


def proven(trainer, graph, folder):
    """The whole proof, as the suite makes it."""
    return evidence.prove(trainer, graph, trainer.setup.batch, str(folder / "oracle"))


def staged(trainer, graph, folder):
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
    np.savez(folder / "parameters.npz", **trainer.parameters())
    np.savez(folder / "gradients.npz", **gradients)
    return {"losses": losses, "logits": trainer.logits().tolist(), "predicted": trainer.predict(batch).shape}


def learning(trainer, graph, folder):
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
    return {
        "quiet": "staleness" not in quiet,
        "first": first,
        "losses": losses,
        "stale": stale,
        "masked": masked(trainer),
    }


def masked(trainer):
    """Each share's losses in two steps, for two networks made alike; the shares hold the same samples."""
    b = Builder("masked", (1, 4, 4), 3)
    b.head(b.dense("fc", b.dropout("drop", b.flatten("flat", "input"), 0.5), 3))
    half = synthetic(b.graph, trainer.setup.batch // 2, 1)
    found = []
    for _ in range(2):
        trainer.build(b.graph, dict(weights.initial(b.graph)))
        batch = trainer.to_device(Batch(np.concatenate([half.images] * 2), np.concatenate([half.labels] * 2)))
        for _ in range(2):
            trainer.forward(batch)  # nothing is updated: only the masks can make a difference
            found.append([float(loss) for loss in trainer._way._losses])
    return found


def left():
    """Threads that still run some seconds after they were told to end."""
    others = [each for each in threading.enumerate() if each is not threading.current_thread()]
    for thread in others:
        thread.join(timeout=5)
    return [each.name for each in others if each.is_alive()]


TASKS = {"proven": (proven, PROVEN), "staged": (staged, PLAIN), "learning": (learning, LEARNING)}


def main():
    folder, name, workers, knobs = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), json.loads(sys.argv[4])
    workload, (task, optimiser) = by_name()["mnist_small"], TASKS[name]
    precision = "float64" if name == "staged" else "float32"
    shape = (0, 1, 0, "coordinator", "cpu", 1, workload.proof_batch * workers, precision, "tuned", knobs, optimiser)
    trainer = TensorFlowTrainer(Setup(*shape, 1, 0, devices=workers))
    joined = trainer.start()
    found = task(trainer, workload.graph(), folder)
    found.update(joined=[*joined[:3], joined.devices], notes=trainer.notes())
    trainer.close()
    found["left"] = left()
    (folder / "found.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
