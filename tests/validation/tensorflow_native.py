"""Is the adapter's native step as fast as a hand-written fused tf.function, and as Keras' compiled training?

    python tests/validation/tensorflow_native.py --network resnet50 --rounds 7

All live in one process, start from the same weights, take the same batch, threads and
allocator settings, and run in alternating short blocks. A ratio is theirs over ours in
seconds (median over the rounds, bootstrap 95 % interval): more than 1 is faster than
they. Beside it the same in CPU seconds, which a busy machine disturbs less. Losses must
agree, with dropout off, since masks differ.

plain: the same layers on tf.nn, the adapter's LRN and its XLA-compiled update, or else
their speed would hide an overhead elsewhere. keras: Keras layers and Keras' SGD, the
function that `fit` calls at every step; keras_xla: the same with jit_compile.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from figures import figure, told

from stagebench.adapters.tensorflow.plugin import TensorFlow
from stagebench.suite.contracts.case import Case
from stagebench.suite.worker.contract import SGD
from stagebench.suite.worker.feed import ResidentFeed, synthetic
from stagebench.workloads import weights
from stagebench.workloads.networks import by_name
from tests.support.trainers import setup

BATCH = {"alexnet": 8, "googlenet": 4, "resnet50": 4, "mnist_small": 64, "mnist_large": 16}
OPTIMISER = SGD(1e-4, 0.9, 0.0)  # Keras' weight decay is another one
EQUAL_STEPS = 3  # whose losses must agree
# Batch normalisation over few samples blows up roundings: two plain loops whose weights differ by one rounding have
# losses apart by 1e-7 at the first step, 3e-4 at the second and 6e-3 at the third. Proofs look at its updates.
EQUAL_STEPS_OF = {"resnet50": 1}
REQUIRED = {"plain": 0.99, "keras": 1.0, "keras_xla": 1.0}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", choices=[*sorted(BATCH), "all"], default="all")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--batch", type=int, help="samples (default: by network)")
    parser.add_argument("--against", nargs="+", choices=sorted(REQUIRED), default=["plain", "keras"])
    parser.add_argument("--xla", choices=("auto", "off", "update", "step"), default="auto", help="the adapter's knob")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def main():
    asked = arguments()
    if asked.measure:
        return measure(asked)
    names = sorted(BATCH) if asked.network == "all" else [asked.network]
    heads = f"{'network':12} {'batch':>5} {'against':>10} {'theirs ms':>9} {'ours ms':>9}"
    say(f"{heads} {'ratio':>7} {'95 %':>15} {'cpu':>6}")
    results = []
    for name in names:
        results.append(launched(asked, name))
        for other, r in results[-1]["against"].items():
            spread = f"{r['low']:.3f} - {r['high']:.3f}"
            times = f"{r['ms']:9.2f} {results[-1]['ours_ms']:9.2f} {r['ratio']:7.3f} {spread:>15} {r['cpu_ratio']:6.3f}"
            say(f"{name:12} {results[-1]['batch']:5} {other:>10} {times}")
    return told([each for result in results for each in figures(result)])


def figures(result):
    for other, r in result["against"].items():
        title = f"{result['network']}, {{}} '{other}'"
        ends = (r["low"], r["high"])
        yield figure(title.format("speed over that of"), r["ratio"], "", ends, at_least=REQUIRED[other])
        yield figure(title.format("difference of the losses from"), r["loss_difference"], at_most=2e-5)


def say(line):
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def launched(asked, name):
    """A process of its own, with what the adapter wants to stand in its environment."""
    batch = asked.batch or BATCH[name]
    options = ["--measure", "--network", name, "--rounds", asked.rounds, "--batch", batch, "--xla", asked.xla]
    options += ["--against", *asked.against]
    environ = TensorFlow().environ(Case("tensorflow", "single", name, tuning="tuned"), Path(sys.executable))
    done = subprocess.run(
        [sys.executable, __file__, *map(str, options)],
        env={**os.environ, **environ},
        stdout=subprocess.PIPE,
        text=True,
    )
    if done.returncode:
        raise SystemExit(f"{name} failed, see above")
    return json.loads(done.stdout.splitlines()[-1])


def measure(asked):
    """All ways in one process."""
    from alternating import alternated, ratio

    from tests.support.trainers import by_strategy

    trainer = by_strategy("tensorflow")(
        setup(batch=asked.batch, tuning="tuned", knobs={"xla": asked.xla}, optimiser=OPTIMISER)
    )
    trainer.start()
    graph = by_name()[asked.network].graph()
    batch = synthetic(graph, asked.batch, 1)
    losses = {}
    for name, (step, loss, reset) in ways(asked, trainer, graph.without_dropout(), batch, 0.0).items():
        losses[name] = [(reset(), step(), loss())[-1] for _ in range(EQUAL_STEPS_OF.get(asked.network, EQUAL_STEPS))]
    found = ways(asked, trainer, graph, batch, 1.0)
    timed = alternated({name: step for name, (step, _, _) in found.items()}, asked.rounds, "ours")
    ours = timed.pop("ours")
    against = {
        name: {"ms": 1e3 * statistics.median(wall for wall, _ in each), **ratio(each, ours)}
        for name, each in timed.items()
    }
    for name, each in against.items():
        pairs = zip(losses[name], losses["ours"], strict=True)
        each["loss_difference"] = max(abs(a - b) / abs(b) for a, b in pairs)
    result = {"network": asked.network, "batch": asked.batch, "against": against}
    say(json.dumps({**result, "ours_ms": 1e3 * statistics.median(wall for wall, _ in ours)}))
    return 0


def ways(asked, trainer, graph, batch, drops):
    """{name: (step, loss, what to call before a step whose loss is asked for)}."""
    from tensorflow_plain import plain, with_keras

    initial = dict(weights.initial(graph))
    trainer.build(graph, initial)
    feed = ResidentFeed(trainer, [batch])
    found = {"ours": (lambda: trainer.step(feed.place(feed.read())), trainer.loss, lambda: None)}
    if "plain" in asked.against:
        found["plain"] = (*plain(asked.network, graph, initial, OPTIMISER, batch, drops), lambda: None)
    for name, by_xla in (("keras", False), ("keras_xla", True)):
        if name in asked.against:
            found[name] = with_keras(graph, initial, OPTIMISER, batch, drops, by_xla)
    return found


if __name__ == "__main__":
    sys.exit(main())
