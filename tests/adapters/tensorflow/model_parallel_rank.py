"""Networks in stages, in a process of their own (its CPU is cut into devices once), for test_model_parallel."""

import numpy as np

from stagebench.adapters.tensorflow import machine
from stagebench.suite.worker.feed import synthetic
from stagebench.suite.worker.predictor import prove
from stagebench.workloads import weights
from tests.support import proofs, rank, trainers
from tests.support.trainers import by_strategy

SAMPLES = 8
WORK = ("Conv2D", "Conv2DBackpropFilter", "Conv2DBackpropInput", "MatMul")
PROVEN = (
    {"devices": 2, "tuning": "default"},
    {"devices": 3, "microbatches": 2},
    {"devices": 1, "microbatches": 2, "precision": "float64"},
)


def made(tuning="tuned", **options):
    if tuning == "tuned":
        options["xla"] = "off"
    options = {"strategy": "model_parallel", "batch": SAMPLES, "tuning": tuning, **options}
    ours = by_strategy("tensorflow")(trainers.setup_with_knobs(**options))
    joined = ours.start()
    assert (joined.devices, joined.world) == (options["devices"], 1)
    return ours


def look(_, graph, folder):
    for pool in ("intra_op", "inter_op"):
        machine.threads(pool, 1)
    machine.threads = lambda pool, count: None  # they cannot change within a process
    machine.cpus(3)
    proofs = [proven(graph, folder, **options) for options in PROVEN]
    return {
        "proofs": proofs,
        "placed": placed(graph),
        "dropout": with_dropout(graph),
        "inferred": [inferred(graph, folder, tuning) for tuning in ("default", "tuned")],
    }


def proven(graph, folder, **options):
    ours = made(**options)
    found = proofs.prove(ours, graph, SAMPLES, str(folder / f"shards-{options.get('microbatches', 1)}"))
    found["notes"] = ours.notes()
    ours.close()
    return found


def inferred(graph, folder, tuning):
    """The errors of a predictor's answers, and where a query's work is."""
    ours = made(tuning, strategy="model_parallel_inference", devices=2, microbatches=3, precision="float64")
    proof = prove(ours, graph, SAMPLES, str(folder / "shards-1"))
    (answer,) = (each for samples, each in ours._traced.items() if samples == SAMPLES)
    work = sorted({each.device[-5:] for each in answer.graph.get_operations() if each.type in WORK})
    return {"errors": proof.errors["predict"], "work": work, "notes": ours.notes()}


def placed(graph):
    """Where variables, gradients and the step's work are, and that lone stages are not asked for."""
    ours = made(devices=2, microbatches=2)
    ours.build(graph, dict(weights.initial(graph)))
    batch = ours.to_device(synthetic(graph, SAMPLES, 1))
    ours.forward(batch)
    ours.backward()
    step = ours._step.get_concrete_function(batch.inputs, batch.labels)
    work = [(each.type, each.device[-5:]) for each in step.graph.get_operations() if each.type in WORK]
    found = {
        "variables": {name: own.device[-5:] for name, own in ours.variables.items()},
        "gradients": [sorted({each.backing_device[-5:] for each in stage}) for stage in ours._gradients],
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
    """Losses of three steps and an answer in use: on one device, in stages, staged."""
    found = {}
    for name, options, staged in (
        ("whole", {"devices": 1, "strategy": "single"}, False),
        ("native", {"devices": 2}, False),
        ("staged", {"devices": 2}, True),
    ):
        ours = made(**options)
        ours.build(graph, dict(weights.initial(graph)))
        batch = ours.to_device(synthetic(graph, SAMPLES, 1))
        losses = []
        for _ in range(3):
            trainers.staged(ours, batch) if staged else ours.step(batch)
            losses.append(ours.loss())
        found[name] = {"losses": losses, "answer": np.abs(ours.predict(batch)).sum().item(), "bubble": ours.bubble()}
        ours.close()
    return found


if __name__ == "__main__":
    rank.main(by_strategy("tensorflow"), {"look": look})
