"""The pass `train`: whole epochs, the loss on the way, the accuracy after each.

How fast a network learns is another question than how fast it is trained: this pass
reads losses and tests between epochs, so it never gives a speed that is compared with
the native pass's. Every framework starts from the same weights and sees the same samples
in the same order, so that the curves can be laid over each other.
"""

import time
from typing import Any, Callable, List, Tuple

import numpy as np

from stagebench.suite.worker import gpus, messages
from stagebench.suite.worker.case_parts import Schedule
from stagebench.suite.worker.contract import Batch, Unsupported
from stagebench.suite.worker.noise import Meter
from stagebench.suite.worker.pass_kinds import TRAIN
from stagebench.suite.worker.sources import Source
from stagebench.suite.worker.threaded import stacked
from stagebench.suite.worker.trainer import Trainer
from stagebench.workloads.graph import Graph

EVERY_STEP, THEN_EVERY = 100, 10  # losses kept: of the first steps all, later one in ten
CONSTANT = Schedule()


class Training:
    """A training on one source, with tests on another."""

    def __init__(self, trainer: Trainer, graph: Graph, progress: Callable[..., None]) -> None:
        """Raise Unsupported if the trainer cannot test this network."""
        kinds = untold(trainer, graph)
        if kinds:
            raise Unsupported(
                f"{type(trainer).__name__} does not tell training from use (predict), which a network with "
                f"{' and '.join(kinds)} asks for"
            )
        self._trainer = trainer
        self._progress = progress

    def run(
        self, learning: Source, testing: Source, epochs: int, schedule: Schedule = CONSTANT, patience: int = 0
    ) -> messages.Training:
        """Train; return seconds, samples and accuracy of every epoch, losses by step; all of this rank's.

        An epoch's seconds are training alone, from a common barrier until all is done; opening the input comes before,
        and has seconds of its own. Steps are those of the joined batch (`Trainer.joint_steps`). Training stops early
        after `patience` epochs without a better accuracy; 0: never.
        """
        trainer, setup = self._trainer, self._trainer.setup
        trainer.begin_training()
        begin = time.perf_counter()
        trainer.open_input(learning)
        opening = time.perf_counter() - begin
        batches = list(test_batches(trainer, testing))
        ends = epoch_ends(len(learning), setup.batch, setup.replicas, epochs)
        losses: List[Tuple[int, float, float]] = []
        rows: List[messages.Epoch] = []
        meter = Meter(gpus.driven(setup))
        earlier = 0.0
        done = taken = 0  # steps of the joined batch, and this rank's own
        for number, end in enumerate(ends, 1):
            first, before = done, taken
            trainer.synchronize()
            meter.begin()
            trainer.maximum(0.0)
            begin = time.perf_counter()
            while done < end:
                if schedule.changing:
                    factor = schedule.factor(done, ends[-1], ends[-1] / epochs)
                    trainer.set_learning_rate(setup.optimiser.lr * factor)
                trainer.step(trainer.to_device(trainer.next_batch()))
                step, joint = done, trainer.joint_steps()
                done = step + 1 if joint is None else joint
                if taken < EVERY_STEP or taken % THEN_EVERY == 0 or done >= end:
                    losses.append((step, trainer.loss(), earlier + time.perf_counter() - begin))
                taken += 1
                phase = f"epoch {number} of {len(ends)}"
                self._progress(name=TRAIN, phase=phase, step=min(done, end) - first, of=end - first)
            trainer.synchronize()
            seconds = time.perf_counter() - begin
            use = meter.end()
            earlier += seconds
            begin = time.perf_counter()
            accuracy = self._accuracy(batches)
            rows.append(
                messages.Epoch(
                    train_s=seconds,
                    test_s=time.perf_counter() - begin,
                    samples=(taken - before) * setup.batch // setup.model_parallel_size,
                    steps=taken - before,
                    accuracy=accuracy,
                    loss=losses[-1][1],
                    host_use=use,
                )
            )
            accuracies = [row.accuracy for row in rows]
            improving = len(rows) - 1 - accuracies.index(max(accuracies)) < patience
            if patience and trainer.maximum(float(improving)) == 0.0:
                break
        steps, values, times = zip(*losses)
        return messages.Training(rows, list(steps), list(values), list(times), opening)

    def _accuracy(self, batches: List[Tuple[Any, np.ndarray]]) -> float:
        """Return the share of test labels whose logit is the largest one; on every rank the whole set."""
        right = total = 0
        for batch, labels in batches:
            answers = self._trainer.predict(batch).argmax(axis=-1)[: len(labels)]
            right += int((answers == labels).sum())
            total += labels.size
        return right / total


def untold(trainer: Trainer, graph: Graph) -> List[str]:
    """Return the kinds of layers that differ in inference, if the trainer's `predict` does not tell them apart."""
    if type(trainer).predict is not Trainer.predict:
        return []
    return sorted({layer.kind for layer in graph.layers if layer.differs_in_inference})


def test_batches(trainer: Trainer, testing: Source) -> Any:
    """Yield (device batch, labels) over the whole source; the last batch is filled up, its labels are not.

    Frameworks compile for one batch size.
    """
    size = trainer.setup.batch
    for begin in range(0, len(testing), size):
        indices = range(begin, min(begin + size, len(testing)))
        samples = [testing.sample(index) for index in indices]
        filled = stacked(samples + [samples[-1]] * (size - len(samples)))
        yield trainer.to_device(Batch(filled.inputs, filled.labels)), filled.labels[: len(samples)]


def epoch_ends(samples: int, batch: int, replicas: int, epochs: int) -> List[int]:
    """Return the step after which each epoch has been seen; batches run across the borders, as the readers' do."""
    seen = samples // replicas
    return [max(1, int(round(seen * epoch / batch))) for epoch in range(1, epochs + 1)]
