"""One rank of a real group, for test_ddp: what it found goes to a file of its own.

python rank.py TASK FOLDER KNOBS        (STAGEBENCH_RANK, MASTER_ADDR and MASTER_PORT set)
"""

import json
import sys
from pathlib import Path

import numpy as np

from adapters.pytorch.worker import PyTorchTrainer
from suite.worker import evidence
from suite.worker.feed import share, synthetic
from suite.worker.ranks import own_rank
from suite.worker.trainer import SGD, Setup
from workloads import weights
from workloads.catalogue import by_name


def prove(trainer, graph, folder):
    return evidence.prove(trainer, graph, trainer.setup.batch, str(folder / "oracle"))


def exchange(trainer, graph, folder):
    """Gradients before and after communicate, asked twice; losses of a whole and of a lone step."""
    rank, world, batch = trainer.setup.rank, trainer.setup.world, trainer.setup.batch
    trainer.build(graph, dict(weights.initial(graph)))
    placed = trainer.to_device(share(synthetic(graph, batch * world, 1), rank, batch))
    trainer.forward(placed)
    trainer.backward()
    np.savez(folder / f"local-{rank}.npz", **trainer.gradients())
    trainer.communicate()
    trainer.communicate()
    np.savez(folder / f"shared-{rank}.npz", **trainer.gradients())
    trainer.update()
    for number, step in enumerate((trainer.step, trainer.step_alone, trainer.step)):
        step(placed)
        np.savez(folder / f"step{number}-{rank}.npz", **trainer.parameters())
    ddp = trainer._parallel._get_ddp_logging_data()["rebuilt_bucket_sizes"]
    ours = [flat.numel() * flat.element_size() for flat in trainer._exchange._flats]
    sizes = {"ddp": [int(size) for size in ddp.split(", ")], "ours": ours}
    return {"maximum": trainer.maximum(float(rank)), "notes": trainer.notes(), "buckets": sizes}


def main():
    task, folder, options = sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3])
    tuning = options.pop("tuning", "tuned")
    workload, optimiser = by_name()["mnist_small"], SGD(0.001, 0.9, 0.0)
    setup = Setup(
        *own_rank(), "ddp", "cpu", 1, workload.proof_batch, "float32", tuning, options, optimiser, seed=1, readers=0
    )
    trainer = PyTorchTrainer(setup)
    joined = trainer.start()
    found = {"prove": prove, "exchange": exchange}[task](trainer, workload.graph(), folder)
    trainer.close()
    found["threads_left"] = [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]
    found["joined"] = [joined.rank, joined.world, joined.transport]
    (folder / f"found-{setup.rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
