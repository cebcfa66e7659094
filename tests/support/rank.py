"""The main of a rank in a real group: a program beside the tests calls it with its trainer and its tasks."""

import json
import sys
from functools import partial
from pathlib import Path

import numpy as np

from stagebench.suite.worker.feed import share, synthetic
from stagebench.suite.worker.ranks import own_rank
from stagebench.workloads import weights
from stagebench.workloads.graph import Graph
from stagebench.workloads.networks import by_name
from tests.support import proofs, trainers


def main(trainer_class, tasks, **defaults):
    """Do one task, `task(trainer, graph, folder)`, and write what it gives, with the group that was joined.

    python PROGRAM TASK FOLDER OPTIONS: the network is FOLDER/graph.json, or mnist_small; options that are not a
    setup's fields are knobs. `tests.support.processes.rank_tokens` writes such a command line.
    """
    task, folder, options = sys.argv[1], Path(sys.argv[2]), dict(defaults, **json.loads(sys.argv[3]))
    workload = by_name()["mnist_small"]
    stored = folder / "graph.json"
    graph = Graph.from_dict(json.loads(stored.read_text())) if stored.exists() else workload.graph()
    options.setdefault("batch", workload.proof_batch * options.get("devices", 1))
    if "optimiser" in options:
        options["optimiser"] = trainers.optimiser(options["optimiser"])
    place = own_rank()
    trainer = trainer_class(trainers.setup_with_knobs(**dict(place._asdict(), **options)))
    joined = trainer.start()
    found = tasks[task](trainer, graph, folder)
    trainer.close()
    write(folder, place.rank, dict(found, joined=[joined.rank, joined.world, joined.devices, joined.transport]))


def write(folder, rank, found):
    """What `tests.support.processes.found_by` reads."""
    (folder / ("found-%d.json" % rank)).write_text(json.dumps(found))


def keep(folder, name, trainer, tensors):
    """Arrays of this rank, for `tests.support.processes.saved_by`."""
    np.savez(str(folder / ("%s-%d.npz" % (name, trainer.setup.rank))), **tensors)


def placed(trainer, graph):
    """This rank's share of a batch that all have made alike, on its device."""
    setup = trainer.setup
    whole = synthetic(graph, setup.batch * setup.replicas, 1)
    return trainer.to_device(share(whole, setup.replica, setup.batch))


def prove(trainer, graph, folder):
    """A task: the proof against FOLDER/oracle, and what is exchanged."""
    found = proofs.prove(trainer, graph, trainer.setup.batch, folder / "oracle")
    return dict(found, gradient_bytes=trainer.gradient_bytes())


def exchange(trainer, graph, folder):
    """A task: gradients before and after communicate, called twice; parameters after each kind of step.

    They are kept as `local`, `shared` and `staged`; then, as the passes follow each other, `whole`, `again` (staged),
    `alone` and `after` (whole). `tests.support.proofs.assert_exchanged` compares them.
    """
    trainer.build(graph, dict(weights.initial(graph)))
    trainer.build(graph, dict(weights.initial(graph)))  # as a proof does
    batch = placed(trainer, graph)
    trainer.forward(batch)
    trainer.backward()
    keep(folder, "local", trainer, trainer.gradients())
    trainer.communicate()
    trainer.communicate()
    keep(folder, "shared", trainer, trainer.gradients())
    trainer.update()
    keep(folder, "staged", trainer, trainer.parameters())
    steps = (trainer.step, partial(trainers.staged, trainer), trainer.step_alone, trainer.step)
    for name, step in zip(("whole", "again", "alone", "after"), steps):
        step(batch)
        trainer.synchronize()
        keep(folder, name, trainer, trainer.parameters())
    found = {"maximum": trainer.maximum(float(trainer.setup.rank)), "gradient_bytes": trainer.gradient_bytes()}
    return dict(found, notes=trainer.notes(), loss=trainer.loss())
