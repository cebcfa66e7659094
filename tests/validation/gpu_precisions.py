"""What a GPU gains by tuning and by each number format, and how much of its own peak it then uses.

    PYTHONPATH=. python tests/validation/gpu_precisions.py resnet50:256 --way default --way bfloat16

PyTorch's trainer, batches on the device. A way's figures are printed as soon as they are known: its first step, in
which cuDNN tries its algorithms; its speed, the median of blocks of native steps, each behind a synchronisation; its
share of the peak, a large product of matrices in the same format (`stagebench.suite.worker.peaks`). Where `default` is
among the ways, the others' gains over it follow, each with its bootstrap 95 % interval. `--device cpu` shows that it
runs.
"""

import argparse
import statistics
import sys
import time

import numpy as np
from alternating import interval
from figures import figure, told

from stagebench.suite.worker import peaks
from stagebench.suite.worker.contract import Batch
from stagebench.suite.worker.feed import ResidentFeed, own_synthetic
from stagebench.workloads import weights
from stagebench.workloads.networks import by_name
from tests.support import trainers
from tests.support.trainers import by_strategy

WAYS = {  # precision, tuning, knobs
    "default": ("float32", "default", {}),
    "float32": ("float32", "tuned", {}),
    "contiguous": ("float32", "tuned", {"memory_format": "contiguous"}),
    "not-autotuned": ("float32", "tuned", {"cudnn_autotune": "off"}),
    "tf32": ("tf32", "tuned", {}),
    "bfloat16": ("bfloat16", "tuned", {}),
    "float16": ("float16", "tuned", {}),
    "graph": ("bfloat16", "tuned", {"cuda_graph": True}),
}
DRAWN = 16  # images, which a batch repeats: a CPU takes 10 s to draw four batches of 1,024
WARMUP, BLOCKS, BLOCK_S = 3, 5, 0.1
PER_SAMPLE = 6  # operations of forward and backward, for each multiply-accumulate of the forward


def main():
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("case", metavar="NETWORK:BATCH")
    words.add_argument("--way", action="append", choices=WAYS, help="may be repeated (default: all)")
    words.add_argument("--device", default="cuda", choices=["cpu", "cuda"])
    asked = words.parse_args()
    name, batch = asked.case.split(":")
    graph = by_name()[name].graph()
    initial = dict(weights.initial(graph))
    samples = [repeated(drawn, int(batch)) for drawn in own_synthetic(graph, DRAWN, 1, 0)]
    steps, figures = {}, []
    for way in asked.way or WAYS:
        first, steps[way], peak = measured(way, graph, initial, samples, asked.device)
        speed = int(batch) / statistics.median(steps[way])
        used = 100.0 * PER_SAMPLE * graph.macs * speed / peak
        print(
            f"{name}, batch {batch}, {way}: first step {first:.1f} s, {speed:,.0f} samples/s, {used:.1f} % of its peak",
            flush=True,
        )
        figures += [
            figure(f"{name}: {way}, first step", first, "s"),
            figure(f"{name}: {way}, speed", speed, "samples/s"),
            figure(f"{name}: {way}, of the peak of {peak / 1e12:.1f} TFLOP/s", used, "%"),
        ]
        if way != "default" and "default" in steps:
            gains = [a / b for a, b in zip(steps["default"], steps[way], strict=True)]
            figures.append(figure(f"{name}: {way} over the default", statistics.median(gains), "", interval(gains)))
    return told(figures)


def repeated(drawn, batch):
    """A batch of this size, of the images of a smaller one."""
    numbers = np.arange(batch) % len(drawn.labels)
    return Batch(drawn.inputs[numbers], drawn.labels[numbers])


def measured(way, graph, initial, samples, device):
    """Seconds of the first step; of a later step, a figure a block; the peak in the way's format, in FLOP/s."""
    precision, tuning, knobs = WAYS[way]
    with trainers.started(
        by_strategy("pytorch"), tuning=tuning, device=device, precision=precision, knobs=knobs
    ) as make:
        trainer = make(batch=len(samples[0].labels))
        trainer.build(graph, dict(initial))
        feed = ResidentFeed(trainer, samples)

        def block(steps):
            trainer.synchronize()
            begin = time.perf_counter()
            for _ in range(steps):
                trainer.step(feed.place(None))
            trainer.synchronize()
            return (time.perf_counter() - begin) / steps

        first = block(1)
        usual = block(WARMUP)
        seconds = [block(max(2, round(BLOCK_S / usual))) for _ in range(BLOCKS)]
        peak = peaks.measure(trainer.yardstick(), 1, trainer.synchronize)
    return first, seconds, peak.flop_per_s


if __name__ == "__main__":
    sys.exit(main())
