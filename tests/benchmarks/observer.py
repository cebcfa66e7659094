"""What the measuring loop costs a native step: the suite's own native pass beside the bare loop, in alternating blocks.

    python tests/benchmarks/observer.py

Bare: take a batch, step, wait once at the end of a block. Observed: the loop of the native pass with all that it does
at a step: its marks, the wait for each batch, the call that reports progress. Blocks are of a few steps, and many: what
else the machine does lasts longer than three of them. Each observed block stands between two bare ones; these against
each other show what the comparison itself is worth. A message of progress is written every quarter second, which a
median over such short blocks would not see: its cost is measured by itself and added. The noise meter (cores, energy,
clock) is read around each pass. PyTorch on the smallest network, whose steps of some milliseconds show such costs best.
"""

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from alternating import interval
from figures import figure, told

from adapters.pytorch.worker import trainer as trainer_of
from suite.worker.feed import ResidentFeed, own_synthetic
from suite.worker.job import Sampling
from suite.worker.loop import Loop
from suite.worker.messages import Progress
from suite.worker.noise import Meter
from suite.worker.outbox import Outbox
from suite.worker.passes import Passes
from tests.support.trainers import setup
from workloads import weights
from workloads.networks import by_name

NETWORK, BATCH, STEPS = "mnist_small", 16, 8  # STEPS of a block
MOST = 0.5  # per cent


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1000)
    rounds = parser.parse_args().rounds
    trainer = trainer_of(setup(batch=BATCH, tuning="tuned"))
    trainer.start()
    graph = by_name()[NETWORK].graph()
    trainer.build(graph, dict(weights.initial(graph)))
    feed = ResidentFeed(trainer, own_synthetic(graph, BATCH, 1, 0))
    with tempfile.TemporaryDirectory() as folder:
        outbox = Outbox(folder, 0)
        loop = Loop(trainer, Sampling(5, 1.0, 5, 0.0), outbox.progress)
        passes = Passes(trainer, feed, loop)

        def bare():
            begin = time.perf_counter()
            for _ in range(STEPS):
                trainer.step(feed.place(feed.read()))
            trainer.synchronize()
            return time.perf_counter() - begin

        def observed():
            return loop._timed("native", passes._reading, STEPS, 0, STEPS)[1]

        def message():
            outbox.send(Progress("native", "measure", 1, STEPS))

        def meter():
            one = Meter()
            one.begin()
            one.end()

        for _ in range(20):
            bare()
        ratios, alike = [], []
        for _ in range(rounds):
            before, seconds, after = bare(), observed(), bare()
            ratios.append(2 * seconds / (before + after))
            alike.append(after / before)
        messages = 100 * usual(message) / Outbox.PROGRESS_EVERY
        meters = usual(meter)
        outbox.close()
    trainer.close()
    added = [100 * (each - 1) + messages for each in ratios]
    return told(
        [
            figure("added to a native step", statistics.median(added), "%", interval(added), at_most=MOST),
            figure("of that by messages of progress", messages, "%"),
            figure("the bare loop after it, against itself before it", *percent(alike)),
            figure("reading the noise meter, once a pass, outside of its steps", 1e3 * meters, "ms"),
        ]
    )


def percent(ratios):
    found = [100 * (each - 1) for each in ratios]
    return statistics.median(found), "%", interval(found)


def usual(what):
    """Median seconds of a call."""
    found = []
    for _ in range(200):
        begin = time.perf_counter()
        what()
        found.append(time.perf_counter() - begin)
    return statistics.median(found)


if __name__ == "__main__":
    sys.exit(main())
