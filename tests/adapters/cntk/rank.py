"""One rank of a real group, for test_mpi: what it found goes to files of its own.

mpiexec -n 2 python rank.py STRATEGY FOLDER OPTIMISER STEP...       a step: native, staged, alone, averaged
"""

import json
import sys
import warnings
from pathlib import Path

import numpy as np

from adapters.cntk.worker import CNTKTrainer
from suite.worker.contract import SGD, Adam, Setup
from suite.worker.feed import share, synthetic
from suite.worker.ranks import own_rank
from workloads import weights
from workloads.catalogue import by_name

TOGETHER = 8  # samples of all ranks
OPTIMISERS = {"sgd": SGD(0.01, 0.9, 1e-3), "adam": Adam(1e-3, 0.9, 0.99, 1e-3, 1e-2)}


def staged(trainer, batch, folder, number):
    trainer.forward(batch)
    trainer.backward()
    trainer.communicate()
    trainer.update()


def averaged(trainer, batch, folder, number):
    """Gradients before, and after communicate was asked twice."""
    trainer.forward(batch)
    trainer.backward()
    save(folder / ("local%d" % number), trainer, trainer.gradients())
    trainer.communicate()
    trainer.communicate()
    save(folder / ("shared%d" % number), trainer, trainer.gradients())
    trainer.update()


def native(trainer, batch, folder, number):
    trainer.step(batch)


def alone(trainer, batch, folder, number):
    trainer.step_alone(batch)


def save(path, trainer, tensors):
    np.savez("%s-%d.npz" % (path, trainer.setup.rank), **tensors)


def main():
    strategy, folder, name, steps = sys.argv[1], Path(sys.argv[2]), sys.argv[3], sys.argv[4:]
    graph = by_name()["mnist_small"].graph()
    optimiser, knobs = OPTIMISERS[name], {"block_steps": 3}
    rank = own_rank()
    samples = TOGETHER // rank.world
    setup = Setup(*(rank + (strategy, "cpu", 1, samples, "float32", "tuned", knobs, optimiser, 1, 0)))
    trainer = CNTKTrainer(setup)
    joined = trainer.start()
    trainer.build(graph, dict(weights.initial(graph)))
    batch = trainer.to_device(share(synthetic(graph, TOGETHER, 1), setup.rank, samples))
    losses = []
    for number, step in enumerate(steps):
        globals()[step](trainer, batch, folder, number)
        losses.append(trainer.loss())
        save(folder / ("after%d" % number), trainer, trainer.parameters())
    found = {"joined": list(joined[:3]), "maximum": trainer.maximum(float(setup.rank)), "losses": losses}
    trainer.close()
    (folder / ("found-%d.json" % setup.rank)).write_text(json.dumps(found))


if __name__ == "__main__":
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", r"inspect.getargspec\(\) is deprecated", DeprecationWarning)
    main()
