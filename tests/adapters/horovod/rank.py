"""One rank of a real group: what it found goes to a file of its own.

python rank.py TASK FOLDER OPTIONS        (STAGEBENCH_RANK or an mpiexec's variables, MASTER_ADDR, MASTER_PORT set)
"""

import json
import sys
from pathlib import Path

import numpy as np
from engine import trainer_class, write

from suite.worker import evidence
from suite.worker.contract import SGD, Adam, Setup
from suite.worker.feed import share, synthetic
from suite.worker.ranks import own_rank
from workloads import weights
from workloads.catalogue import by_name


def prove(trainer, graph, folder):
    return evidence.prove(trainer, graph, trainer.setup.batch, str(folder / "oracle"))


def exchange(trainer, graph, folder):
    """Gradients before and after communicate, asked twice; parameters after staged, whole and lone steps."""
    rank, world, batch = trainer.setup.rank, trainer.setup.world, trainer.setup.batch
    initial = dict(weights.initial(graph))
    trainer.build(graph, initial)
    trainer.build(graph, initial)  # as a proof does
    placed = trainer.to_device(share(synthetic(graph, batch * world, 1), rank, batch))

    def keep(name, tensors):
        np.savez(folder / f"{name}-{rank}.npz", **tensors)

    trainer.forward(placed)
    trainer.backward()
    keep("local", trainer.gradients())
    trainer.communicate()
    trainer.communicate()
    keep("shared", trainer.gradients())
    trainer.update()
    keep("staged", trainer.parameters())
    # As the passes follow each other: whole steps, stages again, steps without the exchange, whole ones.
    for number, step in enumerate((trainer.step, lambda batch: staged(trainer, batch), trainer.step_alone)):
        step(placed)
        trainer.synchronize()
        keep(f"step{number}", trainer.parameters())
    trainer.step(placed)
    return {"maximum": trainer.maximum(float(rank)), "notes": trainer.notes(), "loss": trainer.loss()}


def staged(trainer, batch):
    trainer.forward(batch)
    trainer.backward()
    trainer.communicate()
    trainer.update()


def main():
    task, folder, options = sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3])
    tuning, numbers = options.pop("tuning", "tuned"), options.pop("optimiser")
    workload = by_name()["mnist_small"]
    optimiser = (Adam if len(numbers) == len(Adam._fields) else SGD)(*numbers)
    batch = workload.proof_batch
    setup = Setup(*own_rank(), "allreduce", "cpu", 1, batch, "float32", tuning, options, optimiser, 1, 0)
    trainer = trainer_class()(setup)
    joined = trainer.start()
    found = {"prove": prove, "exchange": exchange}[task](trainer, workload.graph(), folder)
    trainer.close()
    found["joined"] = [joined.rank, joined.world, joined.devices, joined.transport]
    write(folder, setup.rank, found)


if __name__ == "__main__":
    main()
