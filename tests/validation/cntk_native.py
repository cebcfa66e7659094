"""Is the adapter's native step as fast as hand-written loops of the same network?

    python tests/adapters/inside.py .tox cntk tests/validation/cntk_native.py --network alexnet --rounds 7

All live in one process, start from the same weights, take the same batch and run in
alternating short blocks: `tricks` is a plain `train_minibatch` loop with every trick that
the adapter knows, `usual` the loop of an ordinary user (cntk.layers, NumPy arrays). Both
have the MKL setting of the process, which an ordinary user would not.
A ratio is theirs over ours: 1 is equal, more is faster than theirs. First losses must agree.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

from tests.support.trainers import by_strategy

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
from alternating import alternated, ratio
from figures import figure, told

from stagebench.workloads.networks import by_name

BATCH = {"alexnet": 8, "googlenet": 4, "resnet50": 4, "mnist_small": 64, "mnist_large": 16}
ROUNDS = {"alexnet": 9, "googlenet": 9, "resnet50": 7, "mnist_small": 30, "mnist_large": 20}
WANTED = {"tricks": 0.99, "usual": 1.0}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", choices=sorted(BATCH) + ["all"], default="all")
    parser.add_argument("--rounds", type=int, help="default: by network")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def main():
    asked = arguments()
    if asked.here:
        say(json.dumps(measure(asked.network, asked.rounds or ROUNDS[asked.network])))
        return 0
    results = [launched(asked, name) for name in (sorted(BATCH) if asked.network == "all" else [asked.network])]
    say("%-12s %5s %9s  %s" % ("network", "batch", "ours ms", "theirs ms, ratio (95 %), in CPU time, first loss"))
    for r in results:
        for way in sorted(WANTED):
            one = r["against"][way]
            row = (r["ms"][way], one["ratio"], one["low"], one["high"], one["cpu_ratio"], r["loss"][way])
            words = "%9.2f %6.3f (%.3f - %.3f) cpu %6.3f %8.1e" % row
            say("%-12s %5d %9.2f  %-7s %s" % (r["network"], r["batch"], r["ms"]["ours"], way, words))
    return told([each for r in results for way in sorted(WANTED) for each in figures(r, way)])


def figures(r, way):
    one = r["against"][way]
    title, ends = "%s, {} '%s'" % (r["network"], way), (one["low"], one["high"])
    yield figure(title.format("speed over that of"), one["ratio"], "", ends, at_least=WANTED[way])
    yield figure(title.format("difference of the first losses from"), r["loss"][way], at_most=2e-6)


def say(line):
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def launched(asked, name):
    """A process of its own for each network: CNTK keeps what it has allocated."""
    options = ["--here", "--network", name] + (["--rounds", str(asked.rounds)] if asked.rounds else [])
    done = subprocess.run(
        [sys.executable, __file__] + options,
        env=dict(os.environ, OMP_NUM_THREADS="1", MKL_NUM_THREADS="1"),
        stdout=subprocess.PIPE,
        universal_newlines=True,
    )
    if done.returncode:
        raise SystemExit("%s: failed, see above" % name)
    return json.loads(done.stdout.splitlines()[-1])


def measure(name, rounds):
    """All three ways in turn."""
    from cntk_plain import Tricks, Usual, trainer

    from stagebench.adapters.cntk.machine import cntk

    cntk_trainer = by_strategy("cntk")
    from stagebench.suite.worker.contract import SGD, dropout_seed
    from stagebench.suite.worker.feed import synthetic
    from stagebench.workloads import weights
    from tests.support.trainers import setup

    graph, batch, optimiser = by_name()[name].graph(), BATCH[name], SGD(1e-4, 0.9, 5e-4)
    asked = setup(batch=batch, tuning="tuned", knobs={"block_steps": 10}, optimiser=optimiser)
    ours = cntk_trainer(asked)
    ours.start()
    initial = dict(weights.initial(graph))
    ours.build(graph, initial)
    masks = [dropout_seed(asked.seed, asked.rank, layer.name) for layer in graph.layers if layer.kind == "dropout"]
    host = synthetic(graph, batch, 1)
    placed = ours.to_device(host)
    ones = np.eye(graph.classes, dtype=np.float32)[host.labels]
    ways, loss = {"ours": lambda: ours.step(placed)}, {}
    ours.step(placed)
    first = ours.loss()
    for way, kit, feed in (("tricks", Tricks, placed), ("usual", Usual, (host.inputs, ones))):
        images, labels, one = trainer(
            name, kit(initial.values(), masks), graph.input_shape, graph.classes, batch, optimiser
        )
        ways[way] = stepping(one, {images: feed[0], labels: feed[1]})
        ways[way]()
        loss[way] = abs(one.previous_minibatch_loss_average - first) / first
    timed = alternated(ways, rounds, "ours")
    against = {way: ratio(timed[way], timed["ours"]) for way in WANTED}
    ms = {way: statistics.median(wall for wall, _ in blocks) * 1e3 for way, blocks in timed.items()}
    about = {"network": name, "batch": batch, "versions": {"cntk": cntk.__version__}}
    return dict(about, against=against, ms=ms, loss=loss)


def stepping(one, feed):
    return lambda: one.train_minibatch(feed)


if __name__ == "__main__":
    sys.exit(main())
