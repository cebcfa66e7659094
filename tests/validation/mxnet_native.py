"""Is the adapter's tuned step as fast as hand-written Gluon of the same network?

    python tests/validation/mxnet_native.py --network resnet50 --rounds 30

The ways live in one process, start from the same weights, take the same batch and the
same allocator settings, and run in alternating short blocks:

    ours      the adapter's native step, tuned
    plain     hand-written layers, hybridised, updated by `sgd_mom_update`
    trainer   the same layers, trained as MXNet's documentation teaches: gluon.Trainer
    own lrn   ours with the knob lrn = "native", for networks that have one: MXNet's own operator

The ratio is theirs over ours, a figure a round (median, and its bootstrap 95 %
interval): 1 is equal, more is faster than theirs. Beside it the same in CPU seconds of
this process, which a busy machine disturbs less. Losses must agree. All but `own lrn`
take the adapter's LRN, or its speed would hide an overhead elsewhere; `own lrn` has no
bound, and only its first loss must agree: MXNet's own gradient is wrong.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # MXNet's use of NumPy's old names
    import mxnet as mx

from alternating import BLOCK_SECONDS, alternated, block, ratio
from figures import figure, told
from mxnet_plain import Criterion, plain, trainable

from stagebench.suite.contracts.kernels import KEEP_MEMORY, ONE_ARENA
from stagebench.suite.worker.contract import SGD
from stagebench.suite.worker.feed import synthetic
from stagebench.workloads import weights
from stagebench.workloads.networks import by_name
from tests.support.trainers import by_strategy, setup

trainer_of = by_strategy("mxnet")

BATCH = {"alexnet": 8, "googlenet": 4, "resnet50": 4, "mnist_small": 64, "mnist_large": 16}
OPTIMISER = SGD(1e-4, 0.9, 5e-4)
EQUAL_STEPS = 5
BOUNDS = {"plain": 0.99, "trainer": 1.0}
AGAINST = (*BOUNDS, "own lrn")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", choices=[*sorted(BATCH), "all"], default="all")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def main():
    asked = arguments()
    if asked.inside:
        say(json.dumps(measured(asked.network, asked.rounds)))
        return 0
    names = sorted(BATCH) if asked.network == "all" else [asked.network]
    results = [launched(name, asked.rounds) for name in names]
    say(
        f"{'network':12} {'against':8} {'theirs ms':>9} {'ours ms':>9} {'ratio':>7} {'95 %':>15} {'cpu':>6} {'loss':>8}"
    )
    for r in results:
        for way in AGAINST:
            if way not in r:
                continue
            found = r[way]
            spread = f"{found['low']:.3f} - {found['high']:.3f}"
            times = f"{r['ms'][way]:9.2f} {r['ms']['ours']:9.2f} {found['ratio']:7.3f} {spread:>15}"
            say(f"{r['network']:12} {way:8} {times} {found['cpu_ratio']:6.3f} {r['loss_difference']:8.1e}")
    return told([each for r in results for each in figures(r)])


def figures(r):
    for way in AGAINST:
        if way in r:
            ends, title = (r[way]["low"], r[way]["high"]), f"{r['network']}, speed over that of '{way}'"
            yield figure(title, r[way]["ratio"], "", ends, at_least=BOUNDS.get(way))
    yield figure(f"{r['network']}, difference of the losses", r["loss_difference"], at_most=2e-6)


def say(line):
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def launched(name, rounds):
    """One network in a process of its own, with the allocator's settings and one thread."""
    tokens = [sys.executable, __file__, "--inside", "--network", name, "--rounds", str(rounds)]
    environ = dict(os.environ, OMP_NUM_THREADS="1", **KEEP_MEMORY, **ONE_ARENA)
    done = subprocess.run(tokens, env=environ, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def measured(name, rounds):
    graph, samples = by_name()[name].graph(), BATCH[name]
    initial = dict(weights.initial(graph))
    batch = synthetic(graph, samples, 1)
    images, labels = mx.nd.array(batch.inputs), mx.nd.array(batch.labels)
    ways = {
        "ours": adapters(graph, initial, batch),
        "plain": hand_written(plain(name, list(initial.values()), images), images, labels, by_trainer=False),
        "trainer": hand_written(plain(name, list(initial.values()), images), images, labels, by_trainer=True),
    }
    if any(layer.kind == "lrn" for layer in graph.layers):
        ways["own lrn"] = adapters(graph, initial, batch, lrn="native")
    difference = furthest(ways)
    bursts = {way: burst(step) for way, (step, _) in ways.items()}
    timed = alternated(bursts, rounds, "plain")
    return {
        "network": name,
        "batch": samples,
        "ms": {way: statistics.median(wall for wall, _ in timed[way]) * 1e3 / bursts[way].steps for way in ways},
        **{way: ratio(per_step(timed, bursts, way), per_step(timed, bursts, "ours")) for way in AGAINST if way in ways},
        "loss_difference": difference,
    }


def adapters(graph, initial, batch, **knobs):
    """(step, loss) of the adapter's native step, tuned."""
    trainer = trainer_of(setup(batch=len(batch.labels), tuning="tuned", knobs=knobs, optimiser=OPTIMISER))
    trainer.start()
    trainer.build(graph, initial)
    placed = trainer.to_device(batch)
    return (lambda: trainer.step(placed)), trainer.loss


def hand_written(network, images, labels, by_trainer):
    """(step, loss) of a loop around the network."""
    criterion = Criterion()
    criterion.hybridize(static_alloc=True, static_shape=True)
    lr, momentum, decay = OPTIMISER[:3]
    parameters, samples = trainable(network), images.shape[0]
    if by_trainer:
        rates = {"learning_rate": lr, "momentum": momentum, "wd": decay}
        trainer = mx.gluon.Trainer(parameters, "sgd", rates)
    arrays = [(each.data(), each.grad(), mx.nd.zeros(each.shape)) for each in parameters]
    last = []

    def step():
        with mx.autograd.record():
            heads = network(images)
            loss = criterion(labels, *(heads if isinstance(heads, (list, tuple)) else [heads]))
        loss.backward()
        if by_trainer:
            trainer.step(samples)
        else:
            for weight, gradient, velocity in arrays:
                rates = {"lr": lr, "momentum": momentum, "wd": decay, "rescale_grad": 1 / samples}
                mx.nd.sgd_mom_update(weight, gradient, velocity, out=weight, **rates)
        loss.wait_to_read()
        last[:] = [loss]

    return step, lambda: float(last[0].asnumpy().mean(dtype="float64"))


def furthest(ways):
    """The largest relative difference of the ways' losses over the first steps, dropout's masks drawn alike."""
    losses = {way: [] for way in ways}
    for seed in range(EQUAL_STEPS):
        for way, (step, loss) in ways.items():
            mx.random.seed(seed)
            step()
            losses[way].append(loss())
            mx.nd.waitall()
    ours = losses.pop("ours")
    if "own lrn" in losses:
        del losses["own lrn"][1:]  # wrong gradients go their own way
    return max(abs(a - b) / abs(b) for theirs in losses.values() for a, b in zip(ours, theirs, strict=False))


def burst(step):
    """Some steps and a wait for the engine: a call returns before it is done, and the next way must not pay for it."""
    usual = min(block(lambda: (step(), mx.nd.waitall()), 1)[0] for _ in range(2))

    def several():
        for _ in range(several.steps):
            step()
        mx.nd.waitall()

    several.steps = max(1, round(BLOCK_SECONDS / usual))
    return several


def per_step(timed, bursts, way):
    return [(wall / bursts[way].steps, cpu / bursts[way].steps) for wall, cpu in timed[way]]


if __name__ == "__main__":
    sys.exit(main())
