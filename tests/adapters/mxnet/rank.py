"""One worker of a real group; tests/support/rank.py says how it is called, and what it leaves."""

from stagebench.workloads import weights
from tests.support import rank
from tests.support.trainers import by_strategy

trainer = by_strategy("mxnet")

STEPS = 20  # of the first worker's training


def train(trainer, graph, folder):
    """Some steps, each worker at its own pace, as the pass `train` would: nothing counted before, then staleness."""
    trainer.build(graph, dict(weights.initial(graph)))
    placed = rank.placed(trainer, graph)
    trainer.step(placed)
    before = trainer.notes()
    trainer.begin_training()
    trainer.maximum(0.0)
    for _ in range(STEPS * (trainer.setup.rank + 1)):
        trainer.step(placed)
    notes = trainer.notes()  # waits for the last exchange
    return {"before": before, "notes": notes, "loss": trainer.loss(), "joint": trainer.joint_steps()}


if __name__ == "__main__":
    rank.main(trainer, {"prove": rank.prove, "exchange": rank.exchange, "train": train})
