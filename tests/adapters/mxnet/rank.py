"""One rank of a real group, for test_dist: what it found goes to a file of its own.

python rank.py TASK FOLDER OPTIONS        (STAGEBENCH_RANK, MASTER_ADDR, DMLC_NUM_WORKER and the like set)
"""

import json
import sys
from pathlib import Path

import numpy as np

from adapters.mxnet.worker import MXNetTrainer
from suite.worker import evidence
from suite.worker.contract import SGD, Adam, Setup
from suite.worker.feed import share, synthetic
from suite.worker.ranks import own_rank
from workloads import weights
from workloads.catalogue import by_name

STEPS = 20  # of the first worker's training


def prove(trainer, graph, folder):
    return evidence.prove(trainer, graph, trainer.setup.batch, str(folder / "oracle"))


def exchange(trainer, graph, folder):
    """Gradients before and after communicate, asked twice; parameters after a whole and after a lone step."""
    rank, world, batch = trainer.setup.rank, trainer.setup.world, trainer.setup.batch
    initial = dict(weights.initial(graph))
    trainer.build(graph, initial)
    trainer.build(graph, initial)  # as a proof does
    placed = trainer.to_device(share(synthetic(graph, batch * world, 1), rank, batch))
    trainer.forward(placed)
    trainer.backward()
    np.savez(folder / f"local-{rank}.npz", **trainer.gradients())
    trainer.communicate()
    trainer.communicate()
    np.savez(folder / f"shared-{rank}.npz", **trainer.gradients())
    trainer.update()
    np.savez(folder / f"staged-{rank}.npz", **trainer.parameters())
    for number, step in enumerate((trainer.step, trainer.step_alone, trainer.step)):
        step(placed)
        np.savez(folder / f"step{number}-{rank}.npz", **trainer.parameters())
    return {"maximum": trainer.maximum(float(rank)), "notes": trainer.notes()}


def train(trainer, graph, folder):
    """Some steps, each worker at its own pace, as the pass `train` would: nothing counted before, then staleness."""
    rank, world, batch = trainer.setup.rank, trainer.setup.world, trainer.setup.batch
    trainer.build(graph, dict(weights.initial(graph)))
    placed = trainer.to_device(share(synthetic(graph, batch * world, 1), rank, batch))
    trainer.step(placed)
    before = trainer.notes()
    trainer.begin_training()
    trainer.maximum(0.0)
    for _ in range(STEPS * (rank + 1)):
        trainer.step(placed)
    return {"before": before, "notes": trainer.notes(), "loss": trainer.loss()}


def main():
    task, folder, options = sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3])
    strategy, tuning, devices = options.pop("strategy"), options.pop("tuning", "tuned"), options.pop("devices", 1)
    workload, numbers = by_name()["mnist_small"], options.pop("optimiser")
    optimiser = (Adam if len(numbers) == len(Adam._fields) else SGD)(*numbers)
    batch = workload.proof_batch * devices
    setup = Setup(*own_rank(), strategy, "cpu", 1, batch, "float32", tuning, options, optimiser, 1, 0, devices=devices)
    trainer = MXNetTrainer(setup)
    joined = trainer.start()
    found = {"prove": prove, "exchange": exchange, "train": train}[task](trainer, workload.graph(), folder)
    trainer.close()
    found["joined"] = [joined.rank, joined.world, joined.devices, joined.transport]
    (folder / f"found-{setup.rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
