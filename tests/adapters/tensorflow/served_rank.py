"""One worker of parameter servers, for test_served: what it found goes to a file of its own.

python served_rank.py FOLDER KNOBS        (STAGEBENCH_RANK, MASTER_ADDR and MASTER_PORT set)
"""

import json
import sys
from pathlib import Path

import numpy as np

from adapters.tensorflow.worker import TensorFlowTrainer
from suite.worker import evidence
from suite.worker.contract import SGD, Adam, Setup
from suite.worker.feed import share, synthetic
from suite.worker.ranks import own_rank
from workloads import weights
from workloads.catalogue import by_name

STALE = 5  # updates that worker 0 makes while worker 1 waits


def pushed(trainer, gradients, before):
    """How far these gradients' push has moved the servers' weights, in units of the gradients."""
    own = [trainer._way.layout.native(name, gradient) for name, gradient in gradients.items()]
    moved = [now - was for now, was in zip(trainer._way._store.read(), before, strict=True)]
    return sum(np.vdot(*pair) for pair in zip(moved, own, strict=True)).item() / sum(np.vdot(g, g) for g in own).item()


def together(trainer, graph):
    """Stages, a lone step, and staleness where it is known: one worker waits while the other updates."""
    rank, world, batch = trainer.setup.rank, trainer.setup.world, trainer.setup.batch
    initial = dict(weights.initial(graph))
    trainer.build(graph, initial)
    placed = trainer.to_device(share(synthetic(graph, batch * world, 1), rank, batch))
    trainer.forward(placed)
    trainer.backward()
    own, before = trainer.gradients(), trainer._way._store.read()
    trainer.maximum(0.0)
    if rank == 0:
        trainer.communicate()
        push = pushed(trainer, own, before)
    trainer.maximum(0.0)
    if rank == 1:
        trainer.communicate()
    kept = trainer.gradients()
    trainer.update()
    trainer.maximum(0.0)
    first = {name: trainer._way._store.read()[place].sum().item() for place, name in enumerate(own)}
    trainer.maximum(0.0)
    before = trainer.parameters()
    trainer.step_alone(placed)
    alone = trainer.parameters()
    trainer.begin_training()
    if rank == 0:
        for _ in range(STALE):
            trainer.step(placed)
    trainer.maximum(0.0)
    if rank == 1:
        trainer.step(placed)
    trainer.maximum(0.0)
    weights_now = trainer._way._store.read()
    shown = trainer.parameters()
    names = [parameter.name for parameter in graph.parameters]
    pulled = [trainer._way.layout.native(name, shown[name]) for name in names]
    trainer.maximum(0.0)
    for _ in range(10):
        trainer.step(placed)
    return {
        "push": push if rank == 0 else None,
        "kept": all(np.array_equal(own[name], kept[name]) for name in own),
        "first": first,
        "alone": max(np.abs(alone[name] - before[name]).max().item() for name in own),
        "current": all(np.array_equal(*pair) for pair in zip(weights_now, pulled, strict=True)),
        "staleness": trainer.notes()["staleness"],
        "loss": trainer.loss(),
        "maximum": trainer.maximum(float(rank)),
    }


def main():
    folder, knobs = Path(sys.argv[1]), json.loads(sys.argv[2])
    workload, (rank, world, local) = by_name()["mnist_small"], own_rank()
    optimiser = SGD(0.001, 0.9, 0.0) if world > 1 else Adam(1e-3, 0.9, 0.999, 1e-7, 1e-4)
    batch = workload.proof_batch
    setup = Setup(rank, world, local, "parameter_server", "cpu", 1, batch, "float32", "tuned", knobs, optimiser, 1, 0)
    trainer = TensorFlowTrainer(setup)
    joined, graph = trainer.start(), workload.graph()
    alone = world == 1
    found = evidence.prove(trainer, graph, batch, str(folder / "oracle")) if alone else together(trainer, graph)
    found.update(joined=joined[:3], notes=trainer.notes())
    trainer.close()
    (folder / f"found-{rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
