"""One process of a real group, for test_mirrored: it is proven, and keeps what every device of its own holds."""

import numpy as np
import tensorflow as tf

from stagebench.suite.worker.contract import Batch
from stagebench.suite.worker.sources import ArraySource
from stagebench.suite.worker.view import View
from stagebench.workloads import weights
from tests.support import data, rank
from tests.support.jobs import READ_ONCE
from tests.support.trainers import by_strategy


def prove_and_exchange(trainer, graph, folder):
    """Gradients before and after communicate, called twice; weights after whole and lone steps."""
    found = rank.prove(trainer, graph, folder)
    first = trainer.setup.rank  # of this process's devices, among all
    trainer.build(graph, dict(weights.initial(graph)))
    placed = rank.placed(trainer, graph)

    def keep(name, devices):
        for index, own in enumerate(devices):
            np.savez(folder / f"{name}-{first + index}.npz", *[each.numpy() for each in own])

    trainer.forward(placed)
    trainer.backward()
    keep("local", trainer.local)
    # `device` would say where a function was called, `backing_device` says where its result stands.
    found["devices"] = [sorted({each.backing_device[-5:] for each in own}) for own in trainer.local]
    host = Batch(tf.zeros((2, 28, 28, 1)), tf.zeros(2, tf.int64))  # as tf.data leaves it
    found["placed"] = [each.backing_device[-5:] for part in trainer.to_device(host) for each in part]
    trainer.communicate()
    trainer.communicate()
    keep("shared", trainer.averaged)
    trainer.update()
    for name, step in (("whole", trainer.step), ("alone", trainer.step_alone), ("after", trainer.step)):
        step(placed)
        keep(name, [net.trainable for net in trainer.nets])
    return dict(found, maximum=trainer.maximum(float(trainer.setup.rank)))


def read_and_train(trainer, graph, folder):
    """A task: weights after steps on batches that are read, by which the strategy has them."""
    source = ArraySource(data.noise(folder / "set.npz", 40), graph.input_shape)
    trainer.build(graph, dict(weights.initial(graph)))
    distribute, shared_out = trainer.distribution.experimental_distribute_dataset, []
    trainer.distribution.experimental_distribute_dataset = lambda data: shared_out.append(data) or distribute(data)
    trainer.open_input(View(source, READ_ONCE, 1, str(folder / "skipped.log")))
    distributed, losses = len(shared_out), []
    for _ in range(4):
        trainer.skip_batch()
        trainer.step(trainer.to_device(trainer.next_batch()))
        losses.append(trainer.loss())
    trainer.forward(trainer.to_device(trainer.next_batch()))
    rank.keep(folder, "trained", trainer, trainer.parameters())
    assert len(shared_out) == distributed, "as the input is opened, and never again"
    return {
        "losses": losses,
        "logits": trainer.logits().tolist(),
        "notes": trainer.notes(),
        "distributed": distributed,
    }


if __name__ == "__main__":
    rank.main(by_strategy("tensorflow"), {"prove_and_exchange": prove_and_exchange, "read_and_train": read_and_train})
