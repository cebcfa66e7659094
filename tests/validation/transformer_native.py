"""Is the adapter's native step as fast as a transformer that was written by hand in the same framework?

    python tests/adapters/inside.py .tox pytorch tests/validation/transformer_native.py pytorch --network vit_ti16

Both live in one process, start from the same weights, take the same batch and run in alternating short blocks. A ratio
is the loop's seconds over the adapter's: more than 1 means that the adapter is faster. Losses must agree.
`hand_written/` has a loop for each framework, by whatever brings speed there; each names what was tried. `gpt_char` is
trained by AdamW, `vit_ti16` by SGD; weight decay spares biases and gains.

Oldest Python: 3.6.
"""

import argparse
import importlib
import json
import math
import statistics
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from alternating import alternated, ratio
from figures import as_fast, figure, told

from stagebench.suite.worker.contract import SGD, Adam
from stagebench.suite.worker.feed import synthetic
from stagebench.workloads import weights
from stagebench.workloads.networks import by_name
from tests.support.trainers import by_strategy, setup

Form = namedtuple("Form", "image blocks heads width eps tokens classes patch")
FORMS = {
    "gpt_char": Form(False, 4, 4, 128, 1e-5, 64, 256, None),
    "vit_ti16": Form(True, 12, 3, 192, 1e-6, 197, 1000, 16),
}
RULES = {"gpt_char": Adam(1e-4, 0.9, 0.999, 1e-8, 0.1, True, "matrices"), "vit_ti16": SGD(1e-4, 0.9, 5e-4, "matrices")}
BATCH = {"gpt_char": 8, "vit_ti16": 4}
FRAMEWORKS = ("pytorch", "tensorflow", "mxnet", "cntk", "jax", "caffempi")
EQUAL_STEPS = 3  # whose losses must agree


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("framework", choices=FRAMEWORKS)
    parser.add_argument("--network", choices=sorted(FORMS) + ["both"], default="both")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--batch", type=int, help="samples (default: by network)")
    parser.add_argument("--knob", action="append", default=[], metavar="NAME=VALUE", help="of the adapter")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def main():
    asked = arguments()
    if asked.here:
        print(json.dumps(measure(asked)), flush=True)
        return 0
    results = [launched(asked, name) for name in (sorted(FORMS) if asked.network == "both" else [asked.network])]
    print("framework  network   batch     loop     ours  ratio            95 %    cpu     loss")
    for r in results:
        spread = "%.3f - %.3f" % (r["low"], r["high"])
        row = (asked.framework, r["network"], r["batch"], r["loop_ms"], r["ours_ms"], r["ratio"], spread)
        print("%-10s %-9s %5d %8.2f %8.2f %6.3f %15s %6.3f %8.1e" % (row + (r["cpu_ratio"], r["loss"])), flush=True)
    return told([each for r in results for each in figures(r)])


def figures(r):
    yield from as_fast(r["network"] + ", speed over the loop's", r)
    yield figure(r["network"] + ", difference of the losses", r["loss"], at_most=2e-5)


def launched(asked, name):
    """The result for a network in a process of its own."""
    options = [asked.framework, "--here", "--network", name, "--rounds", str(asked.rounds)]
    options += ["--batch", str(asked.batch or BATCH[name])] + ["--knob=" + each for each in asked.knob]
    done = subprocess.run([sys.executable, __file__] + options, stdout=subprocess.PIPE, universal_newlines=True)
    if done.returncode:
        raise SystemExit("%s: failed, see above" % name)
    return json.loads(done.stdout.splitlines()[-1])


def measure(asked):
    name, batch = asked.network, asked.batch
    graph, rule = by_name()[name].graph(), RULES[name]
    initial, host = dict(weights.initial(graph)), synthetic(graph, batch, 1)
    knobs = dict(each.split("=", 1) for each in asked.knob)
    ours = by_strategy(asked.framework)(setup(batch=batch, tuning="tuned", optimiser=rule, knobs=knobs))
    ours.start()  # it sets threads for both
    ours.build(graph, initial)
    placed = ours.to_device(host)
    loop = importlib.import_module("hand_written." + asked.framework).Loop(FORMS[name], initial, host, rule)

    def adapters():
        ours.step(placed)
        ours.synchronize()

    losses = []
    for _ in range(EQUAL_STEPS):
        adapters()
        losses.append((ours.loss(), loop.step()))
    finite = all(math.isfinite(each) for pair in losses for each in pair)
    apart = max(abs(mine - theirs) / abs(theirs) for mine, theirs in losses) if finite else math.inf
    timed = alternated({"ours": adapters, "loop": loop.step}, asked.rounds, "ours")
    ms = {way + "_ms": statistics.median(wall for wall, _ in blocks) * 1e3 for way, blocks in timed.items()}
    ours.close()
    return dict(ratio(timed["loop"], timed["ours"]), network=name, batch=batch, loss=apart, **ms)


if __name__ == "__main__":
    sys.exit(main())
