"""One rank of a real group, for test_mpi: what it found goes to files of its own.

The task `steps` takes the steps that FOLDER/steps.json names: native, staged, alone, averaged.
"""

import json
import warnings

from stagebench.workloads import weights
from tests.support import rank, trainers
from tests.support.trainers import by_strategy

trainer = by_strategy("cntk")


def averaged(ours, batch, folder):
    """Gradients before, and after communicate was asked twice."""
    ours.forward(batch)
    ours.backward()
    rank.keep(folder, "local", ours, ours.gradients())
    ours.communicate()
    ours.communicate()
    rank.keep(folder, "shared", ours, ours.gradients())
    ours.update()


STEPS = {
    "averaged": averaged,
    "native": lambda ours, batch, folder: ours.step(batch),
    "alone": lambda ours, batch, folder: ours.step_alone(batch),
    "staged": lambda ours, batch, folder: trainers.staged(ours, batch),
}


def steps(ours, graph, folder):
    ours.build(graph, dict(weights.initial(graph)))
    batch, losses = rank.placed(ours, graph), []
    for number, step in enumerate(json.loads((folder / "steps.json").read_text())):
        STEPS[step](ours, batch, folder)
        losses.append(ours.loss())
        rank.keep(folder, "after%d" % number, ours, ours.parameters())
    found = {"maximum": ours.maximum(float(ours.setup.rank)), "losses": losses}
    return dict(found, gradient_bytes=ours.gradient_bytes(), parameters=ours.parameter_count())


if __name__ == "__main__":
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", r"inspect.getargspec\(\) is deprecated", DeprecationWarning)
    rank.main(trainer, {"steps": steps}, tuning="tuned", block_steps=3)
