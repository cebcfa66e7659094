"""What a GPU gains by tuning and by each number format, and how much of its own peak it then uses.

    PYTHONPATH=. python tests/validation/gpu_precisions.py resnet50:256 alexnet:1024 googlenet:256

PyTorch's trainer, batches on the device: the default in float32 first, then tuned in every format. A figure is the
median of blocks of native steps, each behind a synchronisation, with the bootstrap 95 % interval of its ratio to
another's. The peak is a large product of matrices in the same format, measured beside it (`suite.worker.peaks`).
`--device cpu` shows that it runs.
"""

import argparse
import statistics
import sys
import time

from alternating import interval
from figures import figure, told

from suite.worker import peaks
from suite.worker.feed import ResidentFeed, own_synthetic
from tests.support import trainers
from tests.support.trainers import by_strategy
from workloads import weights
from workloads.networks import by_name

WAYS = {  # precision, tuning, knobs
    "default float32": ("float32", "default", {}),
    "tuned float32": ("float32", "tuned", {}),
    "tuned float32, contiguous": ("float32", "tuned", {"memory_format": "contiguous"}),
    "tuned TF32": ("tf32", "tuned", {}),
    "tuned bfloat16": ("bfloat16", "tuned", {}),
    "tuned float16": ("float16", "tuned", {}),
    "tuned bfloat16, one graph": ("bfloat16", "tuned", {"cuda_graph": True}),
}
ON_CPU = ("default float32", "tuned float32", "tuned bfloat16")
WARMUP, BLOCKS, BLOCK_S = 6, 7, 0.12
PER_SAMPLE = 6  # operations of forward and backward, for each multiply-accumulate of the forward


def main():
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("cases", nargs="+", metavar="NETWORK:BATCH")
    words.add_argument("--device", default="cuda", choices=["cpu", "cuda"])
    asked, figures, known = words.parse_args(), [], {}
    for name, batch in (each.split(":") for each in asked.cases):
        graph = by_name()[name].graph()
        initial, samples = dict(weights.initial(graph)), own_synthetic(graph, int(batch), 1, 0)
        steps = {way: measured(way, graph, initial, samples, asked.device, known) for way in ways(asked.device)}
        figures += compared(name, int(batch), steps, known)
    return told(figures)


def ways(device):
    return ON_CPU if device == "cpu" else tuple(WAYS)


def measured(way, graph, initial, samples, device, known):
    """Seconds of a step, a figure a block; the peak of its format is put into `known`."""
    precision, tuning, knobs = WAYS[way]
    batch = len(samples[0].labels)
    with trainers.started(
        by_strategy("pytorch"), tuning=tuning, device=device, precision=precision, knobs=knobs
    ) as make:
        trainer = make(batch=batch)
        trainer.build(graph, dict(initial))
        feed = ResidentFeed(trainer, samples)
        found = []
        for number in range(BLOCKS + 1):
            count = WARMUP if not found else max(2, round(BLOCK_S / found[-1]))
            trainer.synchronize()
            begin = time.perf_counter()
            for _ in range(count):
                trainer.step(feed.place(None))
            trainer.synchronize()
            found.append((time.perf_counter() - begin) / count)
            if number == 0:  # whatever is made once is made
                found = [min(found[0], BLOCK_S)]
        if precision not in known:
            known[precision] = peaks.measure(trainer.yardstick(), 1, trainer.synchronize)
    speed, peak = batch / statistics.median(found[1:]), known[precision].flop_per_s
    used = share(graph.macs * speed, peak)
    print(f"{graph.name}, batch {batch}, {way}: {speed:,.0f} samples/s, {used:.1f} % of its peak", flush=True)
    return found[1:]


def share(macs_per_s, peak):
    """Percent of a peak in operations a second."""
    return 100.0 * PER_SAMPLE * macs_per_s / peak


def compared(name, batch, steps, known):
    base, macs = steps["default float32"], by_name()[name].graph().macs
    for way, seconds in steps.items():
        precision = WAYS[way][0]
        if way != "default float32":
            yield gain(f"{name}: {way} over the default", base, seconds)
        if way not in ("default float32", "tuned float32"):
            yield gain(f"{name}: {way} over tuned float32", steps["tuned float32"], seconds)
        peak = known[precision].flop_per_s
        used = share(macs * batch / statistics.median(seconds), peak)
        yield figure(f"{name}: {way}, of the peak of {peak / 1e12:.1f} TFLOP/s", used, "%")


def gain(words, slow, fast):
    ratios = [a / b for a, b in zip(slow, fast, strict=True)]
    return figure(words, statistics.median(ratios), "", interval(ratios))


if __name__ == "__main__":
    sys.exit(main())
