"""Networks in parts, in a process of their own (its CPU is cut into devices once), for test_model_parallel.

python in_parts.py FOLDER        (FOLDER/shards-N: the oracle's results for a batch in N pieces)
"""

import json
import sys
from pathlib import Path

import numpy as np

from adapters.tensorflow import machine
from adapters.tensorflow.worker import TensorFlowTrainer
from suite.worker import evidence
from suite.worker.contract import SGD, Setup
from suite.worker.feed import synthetic
from workloads import weights
from workloads.graph import Graph

SAMPLES = 8
OPTIMISER = SGD(0.01, 0.9, 1e-3)
WORK = ("Conv2D", "Conv2DBackpropFilter", "Conv2DBackpropInput", "MatMul")


def trainer(
    devices, microbatches=1, strategy="model_parallel", tuning="tuned", precision="float32", optimiser=OPTIMISER
):
    knobs = {"microbatches": microbatches, "xla": "off"} if tuning == "tuned" else {"microbatches": microbatches}
    setup = Setup(0, 1, 0, strategy, "cpu", 1, SAMPLES, precision, tuning, knobs, optimiser, 1, 0, devices=devices)
    ours = TensorFlowTrainer(setup)
    joined = ours.start()
    assert (joined.devices, joined.world) == (devices, 1)
    return ours


def proven(graph, folder, **options):
    ours = trainer(**options)
    found = evidence.prove(ours, graph, SAMPLES, str(folder / f"shards-{options.get('microbatches', 1)}"))
    found["notes"] = ours.notes()
    ours.close()
    return found


def placed(graph):
    """Where variables, gradients and the step's work are, and that lone pieces are not asked for."""
    ours = trainer(devices=2, microbatches=2)
    ours.build(graph, dict(weights.initial(graph)))
    batch = ours.to_device(synthetic(graph, SAMPLES, 1))
    ours.forward(batch)
    ours.backward()
    way = ours._way
    step = way._programs.step.get_concrete_function(batch.images, batch.labels)
    work = [(each.type, each.device[-5:]) for each in step.graph.get_operations() if each.type in WORK]
    found = {
        "variables": {name: own.device[-5:] for name, own in way.variables.items()},
        "gradients": [sorted({each.backing_device[-5:] for each in part}) for part in way._gradients],
        "labels": batch.labels[0].backing_device[-5:],
        "work": sorted({f"{kind} {device}" for kind, device in work}),
        "bubble": ours.bubble(),
    }
    ours.update()
    try:
        ours.step_alone(batch)
    except Exception as error:
        found["alone"] = f"{type(error).__name__}: {error}"
    ours.close()
    return found


def with_dropout(graph):
    """Losses of three steps and an answer in use: in parts, in one piece, staged."""
    found = {}
    for name, options, staged in (
        ("whole", {"devices": 1, "strategy": "single"}, False),
        ("native", {"devices": 2}, False),
        ("staged", {"devices": 2}, True),
    ):
        ours = trainer(**options)
        ours.build(graph, dict(weights.initial(graph)))
        batch = ours.to_device(synthetic(graph, SAMPLES, 1))
        losses = []
        for _ in range(3):
            if staged:
                ours.forward(batch)
                ours.backward()
                ours.communicate()
                ours.update()
            else:
                ours.step(batch)
            losses.append(ours.loss())
        found[name] = {"losses": losses, "answer": np.abs(ours.predict(batch)).sum().item(), "bubble": ours.bubble()}
        ours.close()
    return found


def main():
    folder = Path(sys.argv[1])
    graph = Graph.from_dict(json.loads((folder / "graph.json").read_text()))
    for pool in ("intra_op", "inter_op"):
        machine.threads(pool, 1)
    machine.threads = lambda pool, count: None  # they cannot change within a process
    machine.cpus(3)
    proofs = [
        proven(graph, folder, devices=2, tuning="default"),
        proven(graph, folder, devices=3, microbatches=2),
        proven(graph, folder, devices=1, microbatches=2, precision="float64"),
    ]
    found = {"proofs": proofs, "placed": placed(graph), "dropout": with_dropout(graph)}
    (folder / "found.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
