"""Is the adapter's native step as fast as a hand-written jitted loop of the same network?

    python tests/validation/jax_native.py --network mnist_large --rounds 7

Both live in one process on one CPU thread, start from the same weights, take the same batch and run in alternating
short blocks, so that whatever else the machine does hits both. The ratio is plain seconds over ours, a figure a round
(median, and the range): 1 is equal, more is faster than plain. Losses must agree. The plain loop is what a JAX user
writes: NHWC, lax.conv_general_dilated, lax.reduce_window, value_and_grad, donated buffers, nothing to wait for but the
last loss; so is `tuning = default`. `tuned` is what an expert adds, so its plain loop has the same tricks: the
operations of adapters/jax/kernels.py, called by hand; beside it, `usual` is the loop without them. The variables for
the allocator are the same everywhere.

`timed` is the plain loop that notes when each of its steps is done, as every measurement must that says how long steps
take. What it loses to the plain loop, so does ours.
"""

import argparse
import os
import statistics
import sys
import time
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import jax
import jax.numpy as jnp
import numpy as np
from alternating import interval
from figures import figure, told
from jax import lax

from stagebench.adapters.jax import kernels
from stagebench.suite.contracts.kernels import KEEP_MEMORY, ONE_ARENA
from stagebench.suite.worker.contract import SGD
from stagebench.suite.worker.feed import synthetic
from stagebench.workloads import weights
from stagebench.workloads.networks import by_name
from tests.support.trainers import by_strategy, setup

jax_trainer = by_strategy("jax")

BATCH = {"mnist_small": 64, "mnist_large": 16, "alexnet": 8}
OPTIMISER = SGD(1e-4, 0.9, 5e-4)
BLOCK_SECONDS = 0.5
LINE_SECONDS = 12.0  # where a block has several steps, rounds go on for so long: each by itself scatters by 3 %


class Usual:
    """Operations as JAX has them."""

    @staticmethod
    def convolution(x, w, stride, pad, groups):
        pads, orders = ((pad, pad), (pad, pad)), ("NHWC", "HWIO", "NHWC")
        return lax.conv_general_dilated(
            x, w, (stride, stride), pads, dimension_numbers=orders, feature_group_count=groups
        )

    @staticmethod
    def pool(x, kernel, stride):
        return lax.reduce_window(x, -jnp.inf, lax.max, (1, kernel, kernel, 1), (1, stride, stride, 1), "VALID")

    @staticmethod
    def lrn(x):
        sums = lax.reduce_window(x * x, 0.0, lax.add, (1, 1, 1, 5), (1, 1, 1, 1), ((0, 0), (0, 0), (0, 0), (2, 2)))
        return x / (1.0 + 1e-4 / 5 * sums) ** 0.75


class Tricks:
    """The same as an expert writes them for a CPU."""

    @staticmethod
    def convolution(x, w, stride, pad, groups):
        return kernels.convolution(x, w, stride, pad, lax.Precision.DEFAULT, groups)

    @staticmethod
    def pool(x, kernel, stride):
        return kernels.max_pool(x, kernel, stride, ((0, 0), (0, 0)))

    @staticmethod
    def lrn(x):
        return x * kernels.negative_power(1.0 + 1e-4 / 5 * kernels.channel_sums(x * x, 2, 2), 0.75)


def conv(use, x, p, name, stride=1, pad=0, groups=1):
    return jax.nn.relu(use.convolution(x, p[name + ".weight"], stride, pad, groups) + p[name + ".bias"])


def dense(x, p, name):
    return x @ p[name + ".weight"] + p[name + ".bias"]


def flat(x):
    return x.transpose(0, 3, 1, 2).reshape(len(x), -1)


def mnist_small(use, p, x):
    x = flat(use.pool(conv(use, x, p, "conv1", pad=1), 2, 2))
    return dense(jax.nn.relu(dense(x, p, "fc1")), p, "fc2")


def mnist_large(use, p, x):
    for name in ("conv1", "conv2", "conv3"):
        x = use.pool(conv(use, x, p, name, pad=1), 2, 2)
    x = flat(x)
    for name in ("fc1", "fc2"):
        x = jax.nn.relu(dense(x, p, name))
    return dense(x, p, "fc3")


def alexnet(use, p, x):
    """Without its dropout: both sides train so here, or their masks would differ."""
    x = use.pool(use.lrn(conv(use, x, p, "conv1", 4)), 3, 2)
    x = use.pool(use.lrn(conv(use, x, p, "conv2", 1, 2, 2)), 3, 2)
    x = conv(use, conv(use, conv(use, x, p, "conv3", 1, 1), p, "conv4", 1, 1, 2), p, "conv5", 1, 1, 2)
    x = flat(use.pool(x, 3, 2))
    for name in ("fc6", "fc7"):
        x = jax.nn.relu(dense(x, p, name))
    return dense(x, p, "fc8")


NETWORKS = {"mnist_small": mnist_small, "mnist_large": mnist_large, "alexnet": alexnet}


@partial(jax.jit, static_argnums=(0, 1), donate_argnums=(2, 3))
def plain_step(network, use, params, velocity, images, labels):
    def loss_of(p):
        logits = network(use, p, images)
        return -jnp.mean(jax.nn.log_softmax(logits)[jnp.arange(len(labels)), labels])

    loss, gradients = jax.value_and_grad(loss_of)(params)
    lr, momentum, decay = OPTIMISER[:3]
    velocity = jax.tree.map(lambda v, g, w: momentum * v + g + decay * w, velocity, gradients, params)
    return jax.tree.map(lambda w, v: w - lr * v, params, velocity), velocity, loss


class Plain:
    def __init__(self, name, use, initial, batch):
        orders = {4: (2, 3, 1, 0), 2: (1, 0)}
        self.network, self.use = NETWORKS[name], use
        self.params = {
            key: jnp.array(value.transpose(orders.get(value.ndim, range(value.ndim)))) for key, value in initial.items()
        }
        self.velocity = jax.tree.map(jnp.zeros_like, self.params)
        self.batch = jnp.array(batch.inputs.transpose(0, 2, 3, 1)), jnp.array(batch.labels.astype(np.int32))

    def step(self):
        state = self.params, self.velocity
        self.params, self.velocity, self.last = plain_step(self.network, self.use, *state, *self.batch)

    def loss(self):
        return float(self.last)


class Timed(Plain):
    """The plain loop, with a list of the moments at which its steps were done."""

    def __init__(self, name, use, initial, batch):
        super().__init__(name, use, initial, batch)
        self.asked, self.ends = [], []

    def step(self):
        super().step()
        self.asked.append(self.last)

    def loss(self):
        for last in self.asked:
            jax.block_until_ready(last)
            self.ends.append(time.perf_counter())
        self.asked.clear()
        return super().loss()


def ours(name, tuning, initial, batch):
    """(step, loss) of the adapter, in the measuring loop's own shape."""
    size = len(batch.labels)
    trainer = jax_trainer(setup(batch=size, tuning=tuning, optimiser=OPTIMISER))
    trainer.start()
    trainer.build(by_name()[name].graph().without_dropout(), initial)
    placed = trainer.to_device(batch)

    def step():
        trainer.step(placed)
        trainer.mark()

    def loss():
        trainer.synchronize()
        return trainer.loss()

    return step, loss


def block(way, steps):
    step, loss = way
    begin = time.perf_counter()
    for _ in range(steps):
        step()
    loss()
    return (time.perf_counter() - begin) / steps


def compared(name, size, tuning, rounds):
    """One line of the table."""
    graph = by_name()[name].graph()
    initial, batch = dict(weights.initial(graph)), synthetic(graph, size, 1)
    mine = ours(name, tuning, initial, batch)  # first: it sets threads and devices
    use = Tricks if tuning == "tuned" else Usual
    loops = {"plain": Plain(name, use, initial, batch), "timed": Timed(name, use, initial, batch)}
    if use is Tricks:
        loops["usual"] = Plain(name, Usual, initial, batch)
    ways = {**{way: (loop.step, loop.loss) for way, loop in loops.items()}, "ours": mine}
    losses = {way: [step() or loss() for _ in range(5)] for way, (step, loss) in ways.items()}
    difference = max(abs(a - b) / abs(b) for a, b in zip(losses["ours"], losses["plain"], strict=True))
    steps = max(1, round(BLOCK_SECONDS / block(ways["plain"], 2)))
    times = {way: [] for way in ways}
    for number in range(max(rounds, round(LINE_SECONDS / (2 * BLOCK_SECONDS)) if steps > 1 else 0)):
        for way in list(ways)[:: -1 if number % 2 else 1]:
            times[way].append(block(ways[way], steps))
    ratios = {way: [a / b for a, b in zip(times[way], times["ours"], strict=True)] for way in loops}
    medians = {way: statistics.median(found) for way, found in ratios.items()}
    plain_ms, ours_ms = (statistics.median(times[way]) * 1e3 for way in ("plain", "ours"))
    print(
        f"{name:12} {tuning:8} {size:5} {plain_ms:9.2f} {ours_ms:9.2f} {medians['plain']:7.3f} "
        f"{min(ratios['plain']):6.3f} - {max(ratios['plain']):.3f} {medians['timed']:7.3f} {difference:8.1e}",
        flush=True,
    )
    loop = "a loop's with the same tricks" if use is Tricks else "the plain loop's"
    names = {"plain": (loop, 0.99), "timed": (f"{loop} that times its steps", 0.99), "usual": ("the usual loop's", 1.0)}
    return [
        *(
            figure(f"{name}, {tuning}: speed over {names[way][0]}", medians[way], "", interval(found), names[way][1])
            for way, found in ratios.items()
        ),
        figure(f"{name}, {tuning}: difference of the losses from {loop}", difference, at_most=2e-5),
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", choices=[*sorted(BATCH), "all"], default="all")
    parser.add_argument("--tuning", choices=["default", "tuned", "both"], default="both")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--batch", type=int)
    asked = parser.parse_args()
    tuned = {**KEEP_MEMORY, **ONE_ARENA}  # as the adapter has it
    if any(os.environ.get(name) != value for name, value in tuned.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **tuned})  # read at a start only
    print("network      tuning   batch  plain ms   ours ms   ratio           range   timed     loss")
    networks = sorted(BATCH) if asked.network == "all" else [asked.network]
    tunings = ["default", "tuned"] if asked.tuning == "both" else [asked.tuning]
    return told(
        [
            each
            for name in networks
            for tuning in tunings
            for each in compared(name, asked.batch or BATCH[name], tuning, asked.rounds)
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
