"""One rank of a real group; tests/support/rank.py says how it is called, and what it leaves."""

from engine import trainer

from tests.support import rank, trainers
from workloads import weights


def exchange(trainer, graph, folder):
    """Gradients before and after communicate, called twice; parameters after staged, whole and lone steps."""
    initial = dict(weights.initial(graph))
    trainer.build(graph, initial)
    trainer.build(graph, initial)  # as a proof does
    batch = rank.placed(trainer, graph)
    trainer.forward(batch)
    trainer.backward()
    rank.keep(folder, "local", trainer, trainer.gradients())
    trainer.communicate()
    trainer.communicate()
    rank.keep(folder, "shared", trainer, trainer.gradients())
    trainer.update()
    rank.keep(folder, "staged", trainer, trainer.parameters())
    # As the passes follow each other: whole steps, stages again, steps without the exchange, whole ones.
    for number, step in enumerate((trainer.step, lambda batch: trainers.staged(trainer, batch), trainer.step_alone)):
        step(batch)
        trainer.synchronize()
        rank.keep(folder, f"step{number}", trainer, trainer.parameters())
    trainer.step(batch)
    return {"maximum": trainer.maximum(float(trainer.setup.rank)), "notes": trainer.notes(), "loss": trainer.loss()}


if __name__ == "__main__":
    rank.main(trainer, {"prove": rank.prove, "exchange": exchange}, strategy="allreduce", tuning="tuned")
