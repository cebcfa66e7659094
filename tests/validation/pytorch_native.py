"""Is the adapter's native step as fast as a plain hand-written loop of the same network?

    python tests/validation/pytorch_native.py --network resnet50 --ranks 2 --rounds 7
    python tests/validation/pytorch_native.py --device cuda --network resnet50 --batch 256 --mode graph

Both live in one process (in the same processes, for two ranks), start from the same
weights, take the same batch and the same allocator settings, and run in alternating
short blocks, so that whatever else the machine does hits both. The ratio is plain
seconds over ours, a figure a round (median, and its bootstrap 95 % interval): 1 is equal,
more is faster than plain. Beside it the same in CPU seconds of this process, which a busy
machine disturbs less. Losses must agree.

The plain networks use the adapter's LRN, or else its speed would hide an overhead
elsewhere; `--lrn torch` gives them torch.nn.LocalResponseNorm. Where MKL is slow, as on some
of AMD's processors, the plain loop multiplies by oneDNN (`pytorch_plain.by_onednn`);
`--ordinary` leaves that out.

On a GPU the loops are those of someone who knows it: channels last, autocast, cuDNN's autotuning, and by `--mode` the
whole step compiled or recorded as a graph. There a third way is timed, too: our step without the marks of the measuring
loop, which tells what the harness costs.
"""

import argparse
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
from figures import figure, told
from pytorch_plain import by_onednn, criterion, plain
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from stagebench.adapters.pytorch.kernels import FastLRN
from stagebench.adapters.pytorch.machine import MIXED
from stagebench.suite.contracts.kernels import KEEP_MEMORY
from stagebench.suite.worker.contract import SGD
from stagebench.suite.worker.feed import ResidentFeed, share, synthetic
from stagebench.suite.worker.ranks import own_rank
from stagebench.workloads import weights
from stagebench.workloads.networks import by_name
from tests.support.trainers import by_strategy, setup

BATCH = {"alexnet": 8, "googlenet": 4, "resnet50": 4, "mnist_small": 64, "mnist_large": 16}
LRNS = {"fast": partial(FastLRN, 5, 1e-4, 0.75, 1.0), "torch": partial(nn.LocalResponseNorm, 5, 1e-4, 0.75, 1.0)}
OPTIMISER = SGD(1e-4, 0.9, 5e-4)
BLOCK_SECONDS = 0.25
EQUAL_STEPS = 2  # the second comes after an update; ResNet-50 makes 1e-3 of a rounding within a few more
MODES = {  # of ours, the knobs
    "eager": {},
    "compile": {"compile": True},
    "autotune": {"compile": "max-autotune"},
    "graph": {"cuda_graph": True},
    "compiled graph": {"compile": True, "cuda_graph": True},
}
LOSSES = {"cpu": 2e-6, "cuda": 2e-4, "bfloat16": 2e-2, "tf32": 2e-3}  # how far they may be apart


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", choices=[*sorted(BATCH), "all"], default="all")
    parser.add_argument("--ranks", type=int, choices=(1, 2), default=1)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--batch", type=int, help="samples per rank (default: by network)")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--precision", choices=("float32", "tf32", "bfloat16"), default="float32")
    parser.add_argument("--mode", choices=sorted(MODES), default="eager")
    parser.add_argument("--ordinary", action="store_true", help="a plain loop without what an expert adds")
    parser.add_argument("--lrn", choices=sorted(LRNS), default="fast", help="LRN of the plain networks")
    return parser.parse_args()


def main():
    asked = arguments()
    if "STAGEBENCH_RANK" in os.environ:
        return measure(asked)
    names = sorted(BATCH) if asked.network == "all" else [asked.network]
    results = [launched(asked, name) for name in names]
    say(
        f"{'network':12} {'ranks':>5} {'batch':>5} {'plain ms':>9} {'ours ms':>9} "
        f"{'ratio':>7} {'95 %':>15} {'cpu':>6} {'loss':>8}"
    )
    for r in results:
        spread = f"{r['low']:.3f} - {r['high']:.3f}"
        times = f"{r['plain_ms']:9.2f} {r['ours_ms']:9.2f} {r['ratio']:7.3f} {spread:>15} {r['cpu_ratio']:6.3f}"
        say(f"{r['network']:12} {r['ranks']:5} {r['batch']:5} {times} {r['loss_difference']:8.1e}")
    return told([each for r in results for each in figures(r)])


def figures(r):
    yield figure(f"{r['network']}, speed over the plain loop's", r["ratio"], "", (r["low"], r["high"]), at_least=0.99)
    yield figure(f"{r['network']}, difference of the losses", r["loss_difference"], at_most=r["loss_bound"])
    if "harness" in r:
        low, high = r["harness_interval"]
        yield figure(f"{r['network']}, what marks cost", 100 * r["harness"], "%", (100 * low, 100 * high), at_most=0.5)


def say(line):
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def launched(asked, name):
    """One process group on this network; the result of its rank 0."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    options = ["--network", name, "--ranks", asked.ranks, "--rounds", asked.rounds, "--lrn", asked.lrn]
    options += ["--batch", asked.batch or BATCH[name], "--device", asked.device]
    options += ["--precision", asked.precision, "--mode", asked.mode, *["--ordinary"] * asked.ordinary]
    common = dict(os.environ, **KEEP_MEMORY, THP_MEM_ALLOC_ENABLE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    ranks = [
        subprocess.Popen(
            [sys.executable, __file__, *map(str, options)],
            env=dict(common, STAGEBENCH_RANK=str(rank), STAGEBENCH_WORLD=str(asked.ranks)),
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(asked.ranks)
    ]
    outputs = [process.communicate()[0] for process in ranks]
    if any(process.returncode for process in ranks):
        raise SystemExit(f"{name}: a rank failed, see above")
    return json.loads(outputs[0].splitlines()[-1])


def measure(asked):
    """One rank: both ways in turn."""
    rank = own_rank()
    strategy = "ddp" if asked.ranks > 1 else "single"
    how = {"device": asked.device, "precision": asked.precision, "knobs": MODES[asked.mode]}
    ours = setup(**rank._asdict(), strategy=strategy, batch=asked.batch, tuning="tuned", optimiser=OPTIMISER, **how)
    trainer = by_strategy("pytorch")(ours)
    trainer.start()
    graph = by_name()[asked.network].graph()
    initial = dict(weights.initial(graph))
    trainer.build(graph, initial)
    batch = share(synthetic(graph, asked.batch * asked.ranks, 1), rank.rank, asked.batch)
    feed = ResidentFeed(trainer, [batch])
    step = lambda: trainer.step(feed.place(feed.read()))  # noqa: E731 - a way like the other ones
    ways = {"ours": (step, trainer.loss), "plain": hand_written(asked, list(initial.values()), batch)}
    result = compared(asked, ways, trainer)
    trainer.close()
    if rank.rank == 0:
        say(json.dumps(result))
    return 0


def hand_written(asked, values, batch):
    """(step, loss) of the plain loop."""
    network = plain(asked.network, values, LRNS[asked.lrn]).to(asked.device)
    if asked.device == "cpu" and asked.precision == "float32" and not asked.ordinary:
        network = by_onednn(network, asked.batch)
    if asked.ranks > 1:
        network = DistributedDataParallel(network, gradient_as_bucket_view=True, forward_sync_buffers=False)
    lr, momentum, decay = OPTIMISER[:3]
    optimiser = torch.optim.SGD(network.parameters(), lr, momentum=momentum, weight_decay=decay, fused=True)
    images = torch.from_numpy(batch.inputs).to(asked.device).contiguous(memory_format=torch.channels_last)
    labels = torch.from_numpy(batch.labels).to(asked.device)
    compiled = MODES[asked.mode].get("compile")
    called = torch.compile(network, mode=None if compiled is True else compiled) if compiled else network
    last = []

    def loss_of():
        if asked.precision not in MIXED:
            return criterion(called(images), labels)
        with torch.autocast(asked.device, dtype=MIXED[asked.precision]):
            return criterion(called(images), labels)

    def step():
        optimiser.zero_grad(set_to_none=True)
        loss = loss_of()
        loss.backward()
        optimiser.step()
        last[:] = [loss.detach()]

    if MODES[asked.mode].get("cuda_graph"):
        step = replayed(step, network, optimiser)
    return step, lambda: float(last[0])


def replayed(step, network, optimiser):
    """As torch's notes on CUDA graphs have it; the weights begin anew, so that losses can be compared."""
    begin = [tensor.detach().clone() for tensor in (*network.parameters(), *network.buffers())]
    beside = torch.cuda.Stream()
    beside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(beside):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(beside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=beside):
        step()
    with torch.no_grad():
        for tensor, values in zip((*network.parameters(), *network.buffers()), begin, strict=True):
            tensor.copy_(values)
        for kept in optimiser.state.values():
            kept["momentum_buffer"].zero_()

    def again(kept=step):  # what it reads and writes must live as long as it does
        graph.replay()

    return again


def compared(asked, ways, trainer):
    """Equal losses first (the masks of dropout drawn alike), then blocks in turn."""
    losses = {name: [] for name in ways}
    for seed in range(EQUAL_STEPS):
        for name, (step, loss) in ways.items():
            torch.manual_seed(seed)
            begin = time.perf_counter()
            step()
            losses[name].append(loss())
            if seed == 0:  # it compiles; on stderr, since stdout is the result
                print(f"{name}: first step {time.perf_counter() - begin:.1f} s", file=sys.stderr, flush=True)
    difference = max(abs(a - b) / abs(b) for a, b in zip(losses["ours"], losses["plain"], strict=True))
    usual, _ = min(block(ways["plain"][0], 3, trainer) for _ in range(2))
    steps = max(1, round(BLOCK_SECONDS / usual))
    bodies = {name: (step, True) for name, (step, _) in ways.items()}
    if asked.device == "cuda":
        bodies["unmarked"] = bodies["ours"][0], False
    timed = {name: [] for name in bodies}
    for number in range(asked.rounds):
        for name in sorted(bodies, reverse=bool(number % 2)):
            timed[name].append(block(bodies[name][0], steps, trainer, bodies[name][1]))
    pairs = list(zip(timed["plain"], timed["ours"], strict=True))
    ratios = [plain_wall / ours_wall for (plain_wall, _), (ours_wall, _) in pairs]
    low, high = interval(ratios)
    harness = {}
    if "unmarked" in timed:
        costs = [ours / bare - 1 for (ours, _), (bare, _) in zip(timed["ours"], timed["unmarked"], strict=True)]
        harness = {"harness": statistics.median(costs), "harness_interval": interval(costs)}
    return {
        **harness,
        "loss_bound": max(LOSSES[asked.device], LOSSES.get(asked.precision, 0.0)),
        "network": asked.network,
        "ranks": asked.ranks,
        "batch": asked.batch,
        "steps_per_block": steps,
        "plain_ms": statistics.median(wall for wall, _ in timed["plain"]) * 1e3,
        "ours_ms": statistics.median(wall for wall, _ in timed["ours"]) * 1e3,
        "ratio": statistics.median(ratios),
        "low": low,
        "high": high,
        "cpu_ratio": statistics.median(plain_cpu / ours_cpu for (_, plain_cpu), (_, ours_cpu) in pairs),
        "ratios": ratios,
        "loss_difference": trainer.maximum(difference),
    }


def block(step, steps, trainer, marked=True):
    """(wall, CPU) seconds of one step, the slowest rank's, in the measuring loop's own shape."""
    marks = []
    trainer.synchronize()
    trainer.maximum(0.0)
    begin, cpu = time.perf_counter(), time.process_time()
    for _ in range(steps):
        step()
        if marked:
            marks.append(trainer.mark())
    trainer.synchronize()
    wall, cpu = time.perf_counter() - begin, time.process_time() - cpu
    return trainer.maximum(wall / steps), trainer.maximum(cpu / steps)


def interval(ratios, draws=2000):
    """Bootstrap 95 % interval of the median."""
    chance = random.Random(1)
    medians = sorted(statistics.median(chance.choices(ratios, k=len(ratios))) for _ in range(draws))
    return medians[draws // 40], medians[-draws // 40]


if __name__ == "__main__":
    sys.exit(main())
