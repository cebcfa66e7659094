"""How much longer layers take one by one than as a stage: sums of their times over the stages', in processor time.

    PYTHONPATH=. .tox/pytorch/bin/python tests/validation/layer_sums.py pytorch alexnet:4 googlenet:4

Stages and layers take turns on one thread; a ratio is the median over the rounds. Frameworks that run layers one after
the other anyway stay near 1. It informs, and has no bound. Oldest Python: 3.6.
"""

import statistics
import sys
import time
from functools import partial

from figures import figure, told

from stagebench.suite.worker.feed import synthetic
from stagebench.workloads import weights
from stagebench.workloads.networks import by_name
from tests.support import trainers

ORDER = ("forward", "backward")
ROUNDS = 5
REPEATS = 3  # staged iterations a round


def main():
    adapter, cases = sys.argv[1], [each.split(":") for each in sys.argv[2:]]
    figures = []
    with trainers.started(in_processor_time(trainers.by_strategy(adapter)), tuning="tuned") as make:
        for name, batch in cases:
            figures += compared(adapter, name, by_name()[name].graph(), make(batch=int(batch)))
    return told(figures)


def in_processor_time(made):
    """The trainer with marks on the process's own clock: a busy machine hits it less."""

    def of(setup):
        trainer = made(setup)
        trainer.mark = time.process_time
        trainer.elapsed = lambda begin, end: end - begin
        return trainer

    return of


def compared(adapter, name, graph, trainer):
    trainer.build(graph, dict(weights.initial(graph)))
    batch = trainer.to_device(synthetic(graph, trainer.setup.batch, 1))
    for _ in range(3):
        trainers.staged(trainer, batch)
    ratios = {stage: [] for stage in ORDER}
    for _ in range(ROUNDS):
        stages = [staged(trainer, batch) for _ in range(REPEATS)]
        rows = trainer.layer_times(batch)
        for place, stage in enumerate(ORDER):
            alone = sum(getattr(row, stage + "_s") for row in rows)
            ratios[stage].append(alone / statistics.median(one[place] for one in stages))
    figures = []
    for stage in ORDER:
        found = ratios[stage]
        value, ends = round(statistics.median(found), 3), (round(min(found), 3), round(max(found), 3))
        figures.append(figure(f"{adapter}, {name}: layers one by one, {stage}", value, "\u00d7", ends))
        print(f"{figures[-1]['what']}: {statistics.median(found):.2f} times ({min(found):.2f} to {max(found):.2f})")
    return figures


def staged(trainer, batch):
    """(forward, backward) seconds of processor time."""
    trainer.forget_layer_times()
    trainer.synchronize()  # the last update's work is no forward
    marks = [time.process_time()]
    for work in (partial(trainer.forward, batch), trainer.backward):
        work()
        trainer.synchronize()
        marks.append(time.process_time())
    trainer.communicate()
    trainer.update()
    return marks[1] - marks[0], marks[2] - marks[1]


if __name__ == "__main__":
    sys.exit(main())
