"""Is the adapter's inference as fast as what an expert writes by hand in the same framework?

    python tests/validation/inference_native.py --all
    python tests/validation/inference_native.py --framework pytorch --network resnet50 --rounds 20

Both live in one process on one thread, have the same weights and running statistics, and answer the same queries, from
samples in the host's memory to logits there, in alternating short blocks; both are made several times. A ratio is the
hand-written seconds over the tuned adapter's: more than 1 means that the adapter is faster. Answers must agree.
The networks are written here, once, by operations that `hand_written/` has for each framework, by whatever brings speed
there; each names what was tried. Normalisations are folded into convolutions here, too.

Oldest Python: 3.6.
"""

import argparse
import importlib
import json
import os
import statistics
import subprocess
import sys
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
from alternating import alternated, ratio
from figures import as_fast, figure, told
from transformer_native import FORMS

from stagebench.suite.worker.feed import synthetic
from stagebench.workloads import weights
from stagebench.workloads.networks import by_name
from tests.support.trainers import setup

HERE = Path(__file__).resolve()
PREDICTORS = {
    "pytorch": "TorchPredictor",
    "tensorflow": "TensorFlowPredictor",
    "mxnet": "MXNetPredictor",
    "cntk": "CNTKPredictor",
    "jax": "JaxPredictor",
    "caffempi": "CaffeMPIPredictor",
    "onnxruntime": "OrtPredictor",
    "openvino": "OpenVinoPredictor",
}
BATCHES = (1, 32)
ROW = "%-11s %-11s %5d %9.2f %9.2f %6.3f %15s %6.3f %8.1e"
TITLES = "framework   network     batch   hand ms   ours ms  ratio            95 %    cpu    apart"


def mnist_small(k, x):
    x = k.max_pool(k.conv(x, "conv1", pad=1), 2, 2)
    return k.dense(k.dense(k.flat(x), "fc1", relu=True), "fc2")


def googlenet(k, x):
    x = k.lrn(k.max_pool(k.conv(x, "conv1", 2, 3), 3, 2, ceil=True))
    x = k.max_pool(k.lrn(k.conv(k.conv(x, "conv2_reduce"), "conv2", pad=1)), 3, 2, ceil=True)
    for block in ("3a", "3b", "4a", "4b", "4c", "4d", "4e", "5a", "5b"):
        p = "inception_%s_" % block
        branches = [k.conv(x, p + "1x1"), k.conv(k.conv(x, p + "3x3_reduce"), p + "3x3", pad=1)]
        branches += [k.conv(k.conv(x, p + "5x5_reduce"), p + "5x5", pad=2)]
        x = k.concat(branches + [k.conv(k.max_pool(x, 3, 1, 1), p + "pool_proj")])
        if block in ("3b", "4e"):
            x = k.max_pool(x, 3, 2, ceil=True)
    return k.dense(k.mean(x), "loss3_classifier")


def resnet50(k, x):
    x = k.max_pool(k.conv(x, "conv1", 2, 3), 3, 2, 1)
    for stage, count in enumerate((3, 4, 6, 3), 2):
        for block in range(count):
            p, stride = "res%d%s_" % (stage, "abcdef"[block]), 2 if stage > 2 and not block else 1
            y = k.conv(k.conv(x, p + "a"), p + "b", stride, 1)
            x = k.conv(y, p + "c", plus=x if block else k.conv(x, p + "proj", stride, relu=False))
    return k.dense(k.mean(x), "fc")


def transformer(k, x):
    return k.transformer(x)


NETWORKS = {each.__name__: each for each in (mnist_small, googlenet, resnet50)}
NETWORKS.update(dict.fromkeys(FORMS, transformer))


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="every framework and network: the default")
    parser.add_argument("--framework", choices=sorted(PREDICTORS), action="append")
    parser.add_argument("--network", choices=sorted(NETWORKS), action="append")
    parser.add_argument("--batch", type=int, action="append", help="samples of a query (default: 1 and 32)")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--builds", type=int, default=2, help="times that both are made, each in its turn first")
    parser.add_argument("--way", help="of those that a hand-written file knows (default: its fastest)")
    parser.add_argument("--environments", default=os.environ.get("STAGEBENCH_TOX_DIR", ".tox"), metavar="FOLDER")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def main():
    asked = arguments()
    if asked.here:
        measure(asked, asked.framework[0], asked.network[0])
        return 0
    print(TITLES, flush=True)
    pairs = [(each, name) for each in asked.framework or PREDICTORS for name in asked.network or NETWORKS]
    results = [result for framework, name in pairs for result in launched(asked, framework, name)]
    return told([each for r in results for each in figures(r)])


def figures(r):
    what = "%(framework)s, %(network)s, %(batch)d at once: " % r
    yield from as_fast(what + "speed over the hand-written", r)
    yield figure(what + "difference of the answers", r["apart"], at_most=1e-4)


def launched(asked, framework, name):
    """Yield the results for a network, in a process of the framework's own interpreter, and print them."""
    options = [
        "--here",
        "--framework",
        framework,
        "--network",
        name,
        "--rounds",
        str(asked.rounds),
        "--builds",
        str(asked.builds),
    ]
    options += ["--batch=%d" % each for each in asked.batch or BATCHES] + [
        "--way=" + each for each in [asked.way] if each
    ]
    inside = HERE.parents[1] / "adapters" / "inside.py"
    command = [sys.executable, str(inside), asked.environments, framework, str(HERE)] + options
    with subprocess.Popen(command, stdout=subprocess.PIPE, universal_newlines=True) as process:
        for line in process.stdout or ():
            if line.startswith("{"):
                r = json.loads(line)
                row = (framework, name, r["batch"], r["hand_ms"], r["ours_ms"], r["ratio"])
                print(ROW % (row + ("%(low).3f - %(high).3f" % r, r["cpu_ratio"], r["apart"])), flush=True)
                yield r
    if process.returncode:
        raise SystemExit("%s, %s: failed, see above" % (framework, name))


def measure(asked, framework, name):
    graph = by_name()[name].graph()
    tensors = trained(graph)
    kind = getattr(importlib.import_module("stagebench.adapters.%s.inference" % framework), PREDICTORS[framework])
    written, options = (
        importlib.import_module("hand_written." + framework).Answers,
        {"way": asked.way} if asked.way else {},
    )
    for batch in asked.batch:
        queries = [synthetic(graph, batch, seed).inputs for seed in range(3)]
        by_hand = partial(written, NETWORKS[name], FORMS.get(name), folded(tensors), queries[0], **options)
        timed, apart = {"ours": [], "hand": []}, 0.0
        for made in range(asked.builds):
            ours = kind(setup(batch=batch, tuning="tuned"))
            ours.start()  # it sets threads for both
            hand = by_hand() if made % 2 else None  # the place in memory can bring 3 %: the first to be made changes
            ours.load(graph, tensors)
            hand = hand or by_hand()
            apart = max([apart] + [apart_by(ours.answer(each), hand.answer(each)) for each in queries])
            ways = {"ours": partial(ours.answer, queries[0]), "hand": partial(hand.answer, queries[0])}
            for way, blocks in alternated(ways, asked.rounds // asked.builds, "ours").items():
                timed[way] += blocks
            ours.close()
        ms = {way + "_ms": statistics.median(wall for wall, _ in blocks) * 1e3 for way, blocks in timed.items()}
        found = dict(ratio(timed["hand"], timed["ours"]), apart=apart, **ms)
        print(json.dumps(dict(found, framework=framework, network=name, batch=batch)), flush=True)


def apart_by(ours, hand):
    return float(abs(ours - hand).max() / abs(ours).max())


def trained(graph):
    """Weights, and running statistics as if of trained normalisations."""
    stream, found = np.random.Generator(np.random.PCG64(1)), weights.for_proof(graph)
    for name, shape in graph.buffers:
        drawn = stream.random(shape)
        found[name] = (drawn + 0.5 if name.endswith("var") else drawn - 0.5).astype(np.float32)
    return found


def folded(tensors, eps=1e-5):
    """Those of a network whose normalisations are part of the convolutions before them."""
    found = {name: value for name, value in tensors.items() if "_bn." not in name}
    for name in [name for name in tensors if name.endswith("_bn.weight")]:
        norm = name[: -len(".weight")]
        conv = norm[: -len("_bn")]
        gain, shift, mean, variance = (
            tensors[norm + role].astype(np.float64) for role in (".weight", ".bias", ".running_mean", ".running_var")
        )
        gain = gain / np.sqrt(variance + eps)
        found[conv + ".weight"] = (tensors[conv + ".weight"] * gain[:, None, None, None]).astype(np.float32)
        found[conv + ".bias"] = (shift - mean * gain).astype(np.float32)
    return found


if __name__ == "__main__":
    sys.exit(main())
