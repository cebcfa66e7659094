"""One process of a real group, for test_spread: what it found goes to a file of its own.

python rank.py FOLDER SETTINGS        (STAGEBENCH_RANK, MASTER_ADDR and MASTER_PORT set)
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


def exchange(trainer, graph, folder):
    """Gradients before and after communicate, asked twice; losses of a whole and of a lone step."""
    rank, world, batch = trainer.setup.rank, trainer.setup.world, trainer.setup.batch
    trainer.build(graph, dict(weights.initial(graph)))
    placed = trainer.to_device(share(synthetic(graph, batch * world, 1), rank, batch))
    trainer.forward(placed)
    trainer.backward()
    for index, own in enumerate(trainer._way.local):
        np.savez(folder / f"local-{rank + index}.npz", *[each.numpy() for each in own])
    # `device` would say where a function was called, `backing_device` says where its result stands.
    devices = [sorted({each.backing_device[-5:] for each in own}) for own in trainer._way.local]
    trainer.communicate()
    trainer.communicate()
    for index, own in enumerate(trainer._way.averaged):
        np.savez(folder / f"shared-{rank + index}.npz", *[each.numpy() for each in own])
    trainer.update()
    for number, step in enumerate((trainer.step, trainer.step_alone, trainer.step)):
        step(placed)
        for index in range(trainer.setup.devices):
            own = [trainer._way.variables[parameter.name][index] for parameter in graph.parameters]
            np.savez(folder / f"step{number}-{rank + index}.npz", *[each.numpy() for each in own])
    return {"maximum": trainer.maximum(float(rank)), "devices": devices}


def main():
    folder, options = Path(sys.argv[1]), json.loads(sys.argv[2])
    strategy, devices, tuning = (options.pop(name) for name in ("strategy", "devices", "tuning"))
    workload, (kind, *values) = by_name()["mnist_small"], options.pop("optimiser")
    optimiser = {"SGD": SGD, "Adam": Adam}[kind](*values)
    batch = workload.proof_batch * devices
    setup = Setup(*own_rank(), strategy, "cpu", 1, batch, "float32", tuning, options, optimiser, 1, 0, devices=devices)
    trainer = TensorFlowTrainer(setup)
    joined = trainer.start()
    graph = workload.graph()
    found = evidence.prove(trainer, graph, batch, str(folder / "oracle"))
    found.update(exchange(trainer, graph, folder))
    trainer.close()
    found["joined"] = [joined.rank, joined.world, joined.devices, joined.transport]
    (folder / f"found-{setup.rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
