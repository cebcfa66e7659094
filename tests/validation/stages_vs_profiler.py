"""Stage seconds against the framework's own profiler: what its operations took, summed up by stage.

    PYTHONPATH=. .tox/pytorch/bin/python tests/validation/stages_vs_profiler.py pytorch alexnet:4
    PYTHONPATH=. .tox/tensorflow/bin/python tests/validation/stages_vs_profiler.py tensorflow alexnet:4
    PYTHONPATH=. python tests/validation/stages_vs_profiler.py pytorch resnet50:256 --device cuda --precision bfloat16

Blocks of staged iterations without a profiler, timed by the suite's stage clock, take turns with profiled ones. torch's
profiler sees them as the pass `kernels` does: operators on CPUs, the device's kernels on CUDA. TensorFlow's sees the
staged functions: from Python's call of each, which waits for it, until its executor has ended. A figure is the median
over rounds of the clock's seconds over the profiler's, less 1: positive, since a stage has Python's work, too. On CUDA
it has the gaps between kernels, and is not held against a bound.
"""

import argparse
import glob
import statistics
import sys
import tempfile

from alternating import interval
from figures import figure, told

from stagebench.suite.worker.clock import StageClock
from stagebench.suite.worker.feed import synthetic
from stagebench.workloads import weights
from stagebench.workloads.networks import by_name
from tests.support import trainers

ROUNDS, STEPS, WARMUP = 15, 4, 5
COMPARED = ("forward", "backward", "update")
CALL = "TFE_Py_Execute"  # TensorFlow's own name of Python's call of a function, in its profiles
BOUND = 5.0  # percent
SHORT = 0.01  # of an iteration: a shorter stage informs


def main():
    words = argparse.ArgumentParser()
    words.add_argument("framework", choices=PROFILED)
    words.add_argument("cases", nargs="+", metavar="NETWORK:BATCH")
    words.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    words.add_argument("--precision", default="float32")
    asked, figures = words.parse_args(), []
    with trainers.started(
        trainers.by_strategy(asked.framework), tuning="tuned", device=asked.device, precision=asked.precision
    ) as make:
        for name, batch in (each.split(":") for each in asked.cases):
            trainer, graph = make(batch=int(batch)), by_name()[name].graph()
            trainer.build(graph, dict(weights.initial(graph)))
            what = f"{asked.framework}, {name}" + f", batch {batch} on {asked.device}" * (asked.device != "cpu")
            figures += compared(what, trainer, trainer.to_device(synthetic(graph, int(batch), 1)))
    return told(figures)


def compared(what, trainer, batch):
    """A figure a stage."""
    profiled = PROFILED[what.partition(",")[0]]
    for _ in range(WARMUP):
        trainers.staged(trainer, batch)
        trainer.step(batch)
    rounds = []
    for number in range(ROUNDS):
        ways = [clocked, profiled]
        found = {way: way(trainer, batch) for way in (ways if number % 2 else ways[::-1])}
        rounds.append((found[clocked], found[profiled]))
    whole = statistics.median(sum(theirs[stage] for stage in COMPARED) for _, theirs in rounds)
    figures = []
    for stage in COMPARED:
        apart = [100.0 * (ours[stage] / theirs[stage] - 1.0) for ours, theirs in rounds]
        seconds, value = statistics.median(theirs[stage] for _, theirs in rounds), statistics.median(apart)
        low, high = interval(apart)
        bounded = seconds > SHORT * whole and trainer.setup.device == "cpu"
        bounds = {"at_least": -BOUND, "at_most": BOUND} if bounded else {}
        words = f"{what}: {stage}, apart from the profiler's"
        figures.append(figure(words, round(value, 2), "%", (round(low, 2), round(high, 2)), **bounds))
        clock = statistics.median(ours[stage] for ours, _ in rounds)
        print(
            f"{what}: {stage} {1e3 * clock:.2f} ms by the clock, {1e3 * seconds:.2f} ms by the profiler; "
            f"apart {value:+.1f} % ({low:+.1f} to {high:+.1f})"
        )
    return figures


def works(trainer, batch):
    """The calls of a staged iteration of a single rank, by stage."""
    return {"forward": lambda: trainer.forward(batch), "backward": trainer.backward, "update": trainer.update}


def clocked(trainer, batch):
    """Seconds of each stage, medians over a block, by the suite's clock."""
    clock = StageClock(trainer)
    for _ in range(STEPS):
        clock.begin()
        clock.lap()
        clock.lap()
        for work in (lambda: trainer.forward(batch), trainer.backward, None, trainer.communicate, trainer.update):
            if work:
                work()
            clock.lap()
    trainer.synchronize()
    return {stage: statistics.median(found) for stage, found in clock.seconds().items() if stage in COMPARED}


def by_torch(trainer, batch):
    """The same by torch.profiler, as the pass `kernels` has it."""

    def iteration(within):
        for stage, work in works(trainer, batch).items():
            with within(stage):
                work()

    return trainer.kernel_times(iteration, "").stages


def by_tensorflow(trainer, batch):
    """Of staged iterations, by TensorFlow's profiler: when its runtime was at work, medians over the iterations."""
    import tensorflow as tf

    with tempfile.TemporaryDirectory() as folder:
        tf.profiler.experimental.start(folder)
        for _ in range(STEPS):
            for stage, work in works(trainer, batch).items():
                with tf.profiler.experimental.Trace("stage " + stage):
                    work()
        tf.profiler.experimental.stop()
        (path,) = glob.glob(folder + "/**/*.xplane.pb", recursive=True)
        with open(path, "rb") as stream:
            windows, busy = of_plane(stream.read())
    seconds = {
        stage: [sum(end - begin for begin, end in busy if first <= begin < last) for first, last in found]
        for stage, found in windows.items()
    }
    return {stage: statistics.median(found) for stage, found in seconds.items()}


def of_plane(written):
    """({stage: [(begin, end)]}, [(begin, end) of work, without overlaps]) in seconds."""
    from tensorflow.tsl.profiler.protobuf.xplane_pb2 import XSpace

    windows, work = {}, []
    for plane in XSpace.FromString(written).planes:
        names = {number: about.name for number, about in plane.event_metadata.items()}
        for line in plane.lines:
            for event in line.events:
                begin = 1e-9 * line.timestamp_ns + 1e-12 * event.offset_ps
                span, name = (begin, begin + 1e-12 * event.duration_ps), names[event.metadata_id]
                if name.startswith("stage "):
                    windows.setdefault(name[len("stage ") :], []).append(span)
                elif name.startswith(CALL) or (line.name.startswith("tf_") and name != "ExecutorDoneCallback"):
                    work.append(span)
    busy = []
    for begin, end in sorted(work):
        if not busy or begin > busy[-1][1]:
            busy.append((begin, end))
        else:
            busy[-1] = busy[-1][0], max(busy[-1][1], end)
    return windows, busy


PROFILED = {"pytorch": by_torch, "tensorflow": by_tensorflow}

if __name__ == "__main__":
    sys.exit(main())
