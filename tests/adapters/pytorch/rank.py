"""One rank of a real group: what it found goes to a file of its own.

python rank.py TASK FOLDER OPTIONS        (STAGEBENCH_RANK, MASTER_ADDR and MASTER_PORT set)

FOLDER holds the network, graph.json.
"""

import json
import sys
import time
from pathlib import Path

import numpy as np

from adapters.pytorch.worker import PyTorchTrainer
from suite.worker import evidence
from suite.worker.contract import SGD, Adam, Setup
from suite.worker.feed import share, synthetic
from suite.worker.ranks import own_rank
from workloads import weights
from workloads.graph import Graph

NAP = 0.5  # seconds that all but a pipeline's first part sleep before a staged iteration
STALE = 5  # updates that rank 0 makes while rank 1 waits
RULES = {"sgd": SGD(0.001, 0.9, 1e-3), "adam": Adam(1e-3, 0.9, 0.999, 1e-3, 1e-3)}


def placed(trainer, graph):
    setup = trainer.setup
    whole = synthetic(graph, setup.batch * setup.replicas, 1)
    return trainer.to_device(share(whole, setup.replica, setup.batch))


def prove(trainer, graph, folder):
    return evidence.prove(trainer, graph, trainer.setup.batch, str(folder / "oracle"))


def exchange(trainer, graph, folder):
    """Gradients before and after communicate, asked twice; losses of a whole and of a lone step."""
    rank = trainer.setup.rank
    trainer.build(graph, dict(weights.initial(graph)))
    batch = placed(trainer, graph)
    trainer.forward(batch)
    trainer.backward()
    np.savez(folder / f"local-{rank}.npz", **trainer.gradients())
    trainer.communicate()
    trainer.communicate()
    np.savez(folder / f"shared-{rank}.npz", **trainer.gradients())
    trainer.update()
    for number, step in enumerate((trainer.step, trainer.step_alone, trainer.step)):
        step(batch)
        np.savez(folder / f"step{number}-{rank}.npz", **trainer.parameters())
    ddp = trainer._parallel._get_ddp_logging_data()["rebuilt_bucket_sizes"]
    ours = [flat.numel() * flat.element_size() for flat in trainer._exchange._flats]
    sizes = {"ddp": [int(size) for size in ddp.split(", ")], "ours": ours}
    return {"maximum": trainer.maximum(float(rank)), "notes": trainer.notes(), "buckets": sizes}


def train(trainer, graph, folder):
    """Losses of a few native steps on one batch, then of staged ones, and the parameters after both."""
    trainer.build(graph, dict(weights.initial(graph)))
    batch, losses, bubbles, seconds = placed(trainer, graph), [], [], []
    built = trainer.notes()
    for _ in range(6):
        trainer.step(batch)
        losses.append(trainer.loss())
    for _ in range(2):
        begin = time.perf_counter()
        if trainer.setup.rank % trainer.setup.parts:
            time.sleep(NAP)
        trainer.forward(batch)
        trainer.backward()
        trainer.communicate()
        trainer.update()
        seconds.append(time.perf_counter() - begin)
        losses.append(trainer.loss())
        bubbles.append(trainer.bubble())
    trainer.maximum(0.0)
    np.savez(folder / f"trained-{trainer.setup.rank}.npz", **trainer.parameters())
    answers = trainer.predict(batch)
    found = {"losses": losses, "bubbles": bubbles, "seconds": seconds, "answers": answers.tolist()}
    return dict(found, built=built, notes=trainer.notes())


def push(trainer, graph, folder):
    """What one push of rank 0 does while rank 1 waits; then staleness where it is known, and where nobody waits."""
    rank = trainer.setup.rank
    trainer.build(graph, dict(weights.initial(graph)))
    batch = placed(trainer, graph)
    trainer.forward(batch)
    trainer.backward()
    np.savez(folder / f"local-{rank}.npz", **trainer.gradients())
    np.savez(folder / f"before-{rank}.npz", **trainer.parameters())
    if rank == 0:
        trainer.update()
    trainer.maximum(0.0)
    np.savez(folder / f"pushed-{rank}.npz", **trainer.parameters())
    if rank == 1:
        trainer.update()
    trainer.maximum(0.0)
    untrained = trainer.notes()
    trainer.begin_training()
    for turn in range(2):
        for _ in range(STALE if rank == 0 else 1):
            if turn == rank:
                trainer.step(batch)
        trainer.maximum(0.0)
    turns = trainer.notes()
    trainer.begin_training()
    for _ in range(8):
        trainer.step(batch)
    trainer.maximum(0.0)
    return {"untrained": untrained, "turns": turns, "notes": trainer.notes()}


TASKS = {"prove": prove, "exchange": exchange, "train": train, "push": push}


def main():
    task, folder, options = sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3])
    graph = Graph.from_dict(json.loads((folder / "graph.json").read_text()))
    setup = Setup(
        *own_rank(),
        strategy=options.pop("strategy", "ddp"),
        device="cpu",
        threads=1,
        batch=options.pop("batch"),
        precision=options.pop("precision", "float32"),
        tuning=options.pop("tuning", "tuned"),
        parts=options.pop("parts", 1),
        optimiser=RULES[options.pop("optimiser", "sgd")],
        knobs=options,
        seed=1,
        readers=0,
    )
    trainer = PyTorchTrainer(setup)
    joined = trainer.start()
    found = TASKS[task](trainer, graph, folder)
    trainer.close()
    found["threads_left"] = [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]
    found["joined"] = [joined.rank, joined.world, joined.transport]
    (folder / f"found-{setup.rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
