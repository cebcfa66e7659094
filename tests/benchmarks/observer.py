"""What the measuring loop costs a native step: the suite's own native pass beside the bare loop, in alternating blocks.

    python tests/benchmarks/observer.py

Bare: take a batch, step, wait once at the end of a block. Observed: the loop of the native pass with all that it does
at a step: its marks, the wait for each batch, the messages of progress; the noise meter (cores, energy, clock) is read
around each pass. PyTorch on the smallest network, whose steps of a few milliseconds show such costs best.
"""

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from alternating import BLOCK_SECONDS, interval
from figures import figure, told

from adapters.pytorch.worker import trainer as trainer_of
from suite.worker.feed import ResidentFeed, own_synthetic
from suite.worker.job import Sampling
from suite.worker.loop import Loop
from suite.worker.noise import Meter
from suite.worker.outbox import Outbox
from suite.worker.passes import Passes
from tests.support.trainers import setup
from workloads import weights
from workloads.networks import by_name

NETWORK, BATCH = "mnist_small", 16
MOST = 0.5  # per cent


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=200)
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

        def bare(steps):
            begin = time.perf_counter()
            for _ in range(steps):
                trainer.step(feed.place(feed.read()))
            trainer.synchronize()
            return (time.perf_counter() - begin) / steps

        def observed(steps):
            return loop._timed("native", passes._reading, steps, 0, steps)[1] / steps

        steps = max(1, round(BLOCK_SECONDS / min(bare(20) for _ in range(3))))
        meters, ratios = [], []
        for number in range(rounds):
            ways = (bare, observed) if number % 2 else (observed, bare)
            seconds = {way: way(steps) for way in ways}
            ratios.append(seconds[observed] / seconds[bare])
            begin = time.perf_counter()
            meter = Meter()
            meter.begin()
            meter.end()
            meters.append(time.perf_counter() - begin)
        outbox.close()
    trainer.close()
    added = [100 * (each - 1) for each in ratios]
    return told(
        [
            figure("added to a native step", statistics.median(added), "%", interval(added), at_most=MOST),
            figure("reading the noise meter, once a pass, outside of its steps", 1e3 * statistics.median(meters), "ms"),
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
