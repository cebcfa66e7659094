"""What the measuring loop costs a native step: the suite's own native pass beside the bare loop, in alternating blocks.

    python tests/validation/observer.py

Bare: take a batch, step, wait once at the end of a block. Observed: the loop of the native pass with all that it does
at a step, its marks and the wait for each batch, and a call that reports progress at the end of a block, four times as
often as in a run. Blocks are of a few steps, and many: what else the machine does lasts longer than four of them. A
round is bare, observed, observed, bare, the next one the other way round: were both the same, each ratio would be as
likely as its inverse. One observed block against the mean of two bare ones has no such symmetry, and a mean of two is
hit by a load more often than one. The same is shown for two bare loops, which is what the comparison itself is worth,
and for an empty step. That is the least that the loop can cost: a real step's data push its code out of the caches.

A message of progress is written every quarter second: its cost is measured by itself and added, and no block holds one.
The noise meter (cores, energy, clock) is read around each pass. PyTorch on the smallest network, whose steps of some
milliseconds show such costs best.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from alternating import interval
from figures import figure, told

from stagebench.suite.worker.case_parts import Sampling
from stagebench.suite.worker.feed import ResidentFeed, own_synthetic
from stagebench.suite.worker.loop import Loop
from stagebench.suite.worker.messages import Progress
from stagebench.suite.worker.noise import Meter
from stagebench.suite.worker.passes import Passes
from stagebench.suite.worker.ranks import Outbox
from stagebench.workloads import weights
from stagebench.workloads.networks import by_name
from tests.support.trainers import by_strategy, setup

trainer_of = by_strategy("pytorch")

NETWORK, BATCH, STEPS = "mnist_small", 16, 8  # STEPS of a block
MOST = 0.5  # per cent


class Quiet(Outbox):
    """Asks the clock at every step, and writes nothing after the first."""

    PROGRESS_EVERY = 1e9


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=750)
    rounds = parser.parse_args().rounds
    trainer = trainer_of(setup(batch=BATCH, tuning="tuned"))
    trainer.start()
    graph = by_name()[NETWORK].graph()
    trainer.build(graph, dict(weights.initial(graph)))
    feed = ResidentFeed(trainer, own_synthetic(graph, BATCH, 1, 0))
    with tempfile.TemporaryDirectory() as folder:
        outbox = Quiet(folder, 0)
        loop = Loop(trainer, Sampling(5, 1.0, 5, 0.0), outbox.progress)
        passes = Passes(trainer, feed, loop)

        def bare(steps=STEPS):
            begin = time.perf_counter()
            for _ in range(steps):
                trainer.step(feed.place(feed.read()))
            trainer.synchronize()
            return time.perf_counter() - begin

        def observed(steps=STEPS):
            _, _, wall, _ = loop._timed("native", passes._reading, steps, STEPS, 0, steps)
            return wall

        def message():
            outbox.send(Progress("native", "measure", 1, STEPS))

        def meter():
            os.environ["STAGEBENCH_ATTEMPT"] = "observer"  # without it the meter would not look for its processes
            one = Meter()
            one.begin()
            one.end()

        step = usual(bare) / STEPS
        ratios = [beside(observed, bare, number % 2) for number in range(rounds)]
        alike = [beside(bare, bare, 0) for _ in range(rounds // 5)]
        messages = 100 * usual(message) / Outbox.PROGRESS_EVERY
        meters = usual(meter)
        trainer.step = empty
        nothing = usual(lambda: observed(1000)) - usual(lambda: bare(1000))
        del trainer.step
        outbox.close()
    trainer.close()
    processes = sum(name.isdigit() for name in os.listdir("/proc"))
    added = [each + messages for each in ratios]
    return told(
        [
            figure("added to a native step", statistics.median(added), "%", interval(added), at_most=MOST),
            figure("of that by messages of progress", messages, "%"),
            figure("the bare loop against itself", statistics.median(alike), "%", interval(alike)),
            figure("a native step", 1e3 * step, "ms"),
            figure("the loop around an empty step", 1e3 * nothing, "µs"),  # of a thousand
            figure(f"reading the noise meter, once a part, next to {processes} processes", 1e3 * meters, "ms"),
        ]
    )


def beside(ours, theirs, inner):
    """How much longer ours takes than theirs, in per cent: ours, theirs, theirs, ours, or the other way round."""
    outside, inside = (theirs, ours) if inner else (ours, theirs)
    first, second, third, last = outside(), inside(), inside(), outside()
    ratio = (second + third) / (first + last)
    return 100 * (ratio - 1 if inner else 1 / ratio - 1)


def empty(batch):
    """A step that does nothing."""


def usual(what):
    """Median seconds of a call."""
    found = []
    for _ in range(100):
        begin = time.perf_counter()
        what()
        found.append(time.perf_counter() - begin)
    return statistics.median(found)


if __name__ == "__main__":
    sys.exit(main())
