"""Run under mpiexec: every strategy and plan of messages trains a small net from the same start.

Arguments: the output file, "sgd" or "adam", and "staged" where gradients are to lie in memory that MPI does not send
from.
"""

import json
import sys

import numpy as np

from stagebench.adapters.caffempi.transfer import MPI
from stagebench.suite.worker.contract import SGD, Adam
from stagebench.suite.worker.feed import share, synthetic
from stagebench.workloads import weights
from stagebench.workloads.networks.mnist import mnist_small
from tests.adapters.caffempi.late import staged
from tests.support import trainers
from tests.support.trainers import by_strategy

trainer_of = by_strategy("caffempi")

SAMPLES, STEPS = 2, 3
RULES = {"sgd": SGD(0.05, 0.9, 0.001), "adam": Adam(1e-3, 0.9, 0.999, 1e-3, 0.001)}

EXCHANGES = [  # strategy, overlap, progress
    ("data_parallel", "none", "layers"),
    ("data_parallel", "layerwise", "layers"),
    ("two_level", "layerwise", "thread"),
    ("parameter_server", "none", "thread"),
    ("parameter_server", "merged", "layers"),
    ("two_level", "merged", "layers"),
    ("data_parallel", "merged", "thread"),
]


def started(**options):
    """A trainer, and what it joined."""
    comm = MPI.COMM_WORLD
    place = {"rank": comm.rank, "world": comm.size, "local_rank": comm.rank, "batch": SAMPLES}
    setup = trainers.setup(**{**place, "tuning": "tuned", "optimiser": RULES[sys.argv[2]], **options})
    trainer = trainer_of(setup)
    if "staged" in sys.argv:
        trainer.memory = staged
    return trainer, trainer.start()


def train(trainer, host, way):
    """Losses averaged over ranks, and parameters."""
    graph = mnist_small()
    trainer.build(graph, dict(weights.initial(graph)))
    batch = trainer.to_device(host)
    losses = []
    for _ in range(STEPS):
        if way == "native":
            trainer.step(batch)
        else:
            trainer.forward(batch)
            trainer.backward()
            for _ in range(40 if way == "repeated" else 1):
                trainer.communicate()
            trainer.update()
        losses.append(MPI.COMM_WORLD.allreduce(trainer.loss()) / MPI.COMM_WORLD.size)
    return losses, trainer.parameters()


def main():
    comm = MPI.COMM_WORLD
    whole = synthetic(mnist_small(), SAMPLES * comm.size, 1)
    result = {"world": comm.size, "ways": {}}
    kept = []
    for number, (strategy, overlap, progress) in enumerate(EXCHANGES):
        knobs = {"overlap": overlap, "progress": progress}
        if strategy == "two_level":
            knobs["node_ranks"] = 2
        trainer, joined = started(strategy=strategy, knobs=knobs)
        assert (joined.rank, joined.world) == (comm.rank, comm.size)
        for way in ("native", "staged", "repeated")[: 3 if overlap == "merged" else 2]:
            losses, parameters = train(trainer, share(whole, comm.rank, SAMPLES), way)
            kept.append((f"{number} {strategy} {overlap} {progress} {way}", losses, parameters))
        result["notes"], result["rows"] = trainer.notes(), [row._asdict() for row in trainer.layer_times(None)]
    result["transport"] = joined.transport
    alone, _ = started(strategy="single", world=1, rank=0, batch=SAMPLES * comm.size)
    losses, parameters = train(alone, whole, "native")
    for name, own, found in kept:
        distances = [
            float(np.linalg.norm(found[n] - parameters[n]) / np.linalg.norm(parameters[n])) for n in parameters
        ]
        same = all((found[n] == kept[0][2][n]).all() for n in parameters)
        across = all(comm.bcast(found[n]).tobytes() == found[n].tobytes() for n in parameters)
        result["ways"][name] = {
            "loss": max(abs(a - b) / b for a, b in zip(own, losses, strict=True)),
            "far": comm.allreduce(max(distances), MPI.MAX),
            "same": comm.allreduce(int(same), MPI.MIN),
            "across": comm.allreduce(int(across), MPI.MIN),
        }
    if comm.rank == 0:
        with open(sys.argv[1], "w") as stream:
            json.dump(result, stream)
    trainer.close()


main()
