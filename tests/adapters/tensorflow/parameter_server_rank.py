"""One worker of parameter servers, for test_parameter_server."""

import numpy as np

from stagebench.workloads import weights
from tests.support import rank
from tests.support.trainers import by_strategy

STALE = 5  # updates that worker 0 makes while worker 1 waits


def pushed(trainer, gradients, before):
    """How far these gradients' push has moved the servers' weights, in units of the gradients."""
    own = [trainer.layout.native(name, gradient) for name, gradient in gradients.items()]
    moved = [now - was for now, was in zip(trainer._store.read(), before, strict=True)]
    return sum(np.vdot(*pair) for pair in zip(moved, own, strict=True)).item() / sum(np.vdot(g, g) for g in own).item()


def prove(trainer, graph, folder):
    """The proof, and the notes after it."""
    return dict(rank.prove(trainer, graph, folder), notes=trainer.notes())


def train(trainer, graph, _):
    """Stages, a lone step, and staleness where it is known: one worker waits while the other updates."""
    own_rank = trainer.setup.rank
    trainer.build(graph, dict(weights.initial(graph)))
    placed = rank.placed(trainer, graph)
    trainer.forward(placed)
    trainer.backward()
    own, before = trainer.gradients(), trainer._store.read()
    trainer.maximum(0.0)
    if own_rank == 0:
        trainer.communicate()
        push = pushed(trainer, own, before)
    trainer.maximum(0.0)
    if own_rank == 1:
        trainer.communicate()
    kept = trainer.gradients()
    trainer.update()
    trainer.maximum(0.0)
    first = {name: trainer._store.read()[place].sum().item() for place, name in enumerate(own)}
    trainer.maximum(0.0)
    before = trainer.parameters()
    trainer.step_alone(placed)
    alone = trainer.parameters()
    trainer.begin_training()
    if own_rank == 0:
        for _ in range(STALE):
            trainer.step(placed)
    trainer.maximum(0.0)
    if own_rank == 1:
        trainer.step(placed)
    trainer.maximum(0.0)
    weights_now = trainer._store.read()
    shown = trainer.parameters()
    names = [parameter.name for parameter in graph.parameters]
    pulled = [trainer.layout.native(name, shown[name]) for name in names]
    trainer.maximum(0.0)
    for _ in range(10):
        trainer.step(placed)
    return {
        "push": push if own_rank == 0 else None,
        "kept": all(np.array_equal(own[name], kept[name]) for name in own),
        "first": first,
        "alone": max(np.abs(alone[name] - before[name]).max().item() for name in own),
        "current": all(np.array_equal(*pair) for pair in zip(weights_now, pulled, strict=True)),
        "staleness": trainer.notes()["staleness"],
        "loss": trainer.loss(),
        "maximum": trainer.maximum(float(own_rank)),
        "joint": trainer.joint_steps(),
    }


if __name__ == "__main__":
    rank.main(by_strategy("tensorflow"), {"prove": prove, "train": train}, strategy="parameter_server", tuning="tuned")
