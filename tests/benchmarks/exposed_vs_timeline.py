"""Exposed communication, as the suite measures it, against Horovod's own timeline of the same training.

    PYTHONPATH=. .tox/horovod-mxnet/bin/python tests/benchmarks/exposed_vs_timeline.py alexnet:4

Two ranks on this machine. The suite's figure is native less compute_only, from blocks in turns. By the timeline of the
same native steps communication lasts from the moment the last gradient is handed over, when backward has ended, until
the last all-reduce is done. Updates hide in that: a weight is updated as soon as its sum is there, where compute_only
updates all of them after backward. So the timeline's figure less an update's seconds is what native takes longer, as a
share of the iteration within 5 %. What an exchange takes from the computing beside it is exposed in our figure, and not
in the timeline's: on as many cores as ranks that tells where the exchange computes much (mnist_small), and little where
it waits.
"""

import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "adapters" / "horovod"))

import numpy as np
from alternating import interval
from engine import engine, trainer
from figures import figure, told

from suite.worker.job import Sampling
from suite.worker.loop import Loop, Side
from tests.support import processes, rank
from workloads import weights
from workloads.networks import by_name

WORLD = 2
BOUND = 5.0  # percent of the iteration
SAMPLING = Sampling(warmup_steps=6, warmup_limit_s=10.0, steps=60, seconds=10.0)
WARMUP = 5
UPDATES = 9


def main():
    figures = []
    for case in sys.argv[1:]:
        name, batch = case.split(":")
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            (folder / "graph.json").write_text(json.dumps(by_name()[name].graph().to_dict()))
            tokens = processes.rank_tokens(Path(__file__), "exposed", folder, batch=int(batch))
            given = processes.variables(HOROVOD_TIMELINE="DYNAMIC")  # begun by each rank, after its warm-up
            processes.run_together(processes.ranks(tokens, WORLD, given), limit=1200)
            figures += compared(name, processes.found_by(folder, WORLD), timeline(folder / "timeline-0.json"))
    return told(figures)


def exposed(ours, graph, folder):
    """A rank's task: [native, compute_only] seconds of every pair of blocks; rank 0's timeline has them all."""
    hvd = module()
    ours.build(graph, dict(weights.initial(graph)))
    batch = rank.placed(ours, graph)
    for _ in range(WARMUP):
        ours.step(batch)
    ours.synchronize()
    ours.maximum(0.0)
    hvd.start_timeline(str(folder / f"timeline-{ours.setup.rank}.json"))
    native = Side(lambda: ours.step(batch))
    _, pairs = Loop(ours, SAMPLING, nothing).in_turns("compute_only", native, Side(lambda: ours.step_alone(batch)))
    hvd.stop_timeline()
    return {"pairs": pairs, "update_s": updating(ours, batch)}


def updating(ours, batch):
    """Seconds of an update by itself; the median of several."""
    seconds = []
    for _ in range(UPDATES):
        ours.forward(batch)
        ours.backward()
        ours.synchronize()
        begin = time.perf_counter()
        ours.update()
        ours.synchronize()
        seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds)


def module():
    if engine() == "mxnet":
        import horovod.mxnet as hvd
    elif engine() == "pytorch":
        import horovod.torch as hvd
    else:
        import horovod.tensorflow as hvd
    return hvd


def nothing(**_):
    """No progress is shown."""


def timeline(path):
    """Exposed seconds of every step in Horovod's trace: each tensor's n-th exchange is the n-th step's."""
    text = path.read_text().rstrip().rstrip(",")
    events = json.loads(text if text.endswith("]") else text + "]")
    handed, done, open_ = {}, {}, {}
    for event in events:
        tensor, when = event.get("pid"), 1e-6 * event.get("ts", 0.0)
        if event.get("ph") == "B":
            open_.setdefault(tensor, []).append(event["name"])
            if event["name"].startswith("NEGOTIATE"):
                handed.setdefault(tensor, []).append(when)
        elif event.get("ph") == "E" and open_.get(tensor) and open_[tensor].pop() == "ALLREDUCE":
            done.setdefault(tensor, []).append(when)
    steps = min(map(len, done.values()))
    return [max(e[n] for e in done.values()) - max(b[n] for b in handed.values()) for n in range(steps)]


def compared(name, ranks, shown):
    """The figures of one network."""
    # A rank that waits makes the group wait: of each pair of blocks the slowest rank's.
    pairs = np.max([each["pairs"] for each in ranks], axis=0).tolist()
    iteration, by_timeline = statistics.median(native for native, _ in pairs), statistics.median(shown)
    update = max(each["update_s"] for each in ranks)
    by_timeline -= min(update, by_timeline)
    apart = [100.0 * (native - alone - by_timeline) / iteration for native, alone in pairs]
    low, high = interval(apart)
    ours = statistics.median(native - alone for native, alone in pairs)
    print(
        f"{name}: iteration {1e3 * iteration:.1f} ms, exposed {1e3 * ours:.1f} ms, by the timeline "
        f"{1e3 * by_timeline:.1f} ms ({len(shown)} steps; an update takes {1e3 * update:.1f} ms)"
    )
    what = f"Horovod over {engine()}, {name}: exposed communication"
    value, ends = round(abs(statistics.median(apart)), 2), (round(low, 2), round(high, 2))
    return [
        figure(what + ", apart from the timeline's, of the iteration", value, "%", ends, at_most=BOUND),
        figure(what, round(1e3 * ours, 2), "ms"),
        figure(what + " by the timeline, less an update", round(1e3 * by_timeline, 2), "ms"),
    ]


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] == "exposed":
        rank.main(trainer, {"exposed": exposed}, strategy="allreduce", tuning="tuned")
    else:
        sys.exit(main())
