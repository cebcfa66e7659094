"""What the pages of each plan that ships must show for its question to be answered."""

import re
from collections.abc import Mapping

from tests.reports.parsed import Page

# By plan and page, as patterns: headings, columns of tables, titles of figures, sentences.
Shown = Mapping[str, Mapping[str, tuple[str, ...]]]

READING = ("What reading costs", "Synthetic, memory, disk", "samples/s against the first")
CURVES = (": loss by step", ": accuracy by seconds of training")

# Whatever the scale.
ALWAYS: Shown = {
    "autotune": {"speed.html": ("Best configurations", "fastest ÷ default verdict tried")},
    "batch-size": {"accuracy.html": ("Learning", *CURVES, "all epochs, s last loss best accuracy target")},
    "data-parallel": {
        "scaling.html": ("Epochs over devices", "samples/s of the second epoch", "the first epoch against the second"),
        "accuracy.html": ("First and second epoch", "opening, s first, s second, s first ÷ second"),
    },
    "horovod-style": {"stages.html": ("Where the time goes", "Milliseconds per iteration")},
    "learning": {"accuracy.html": ("Learning", *CURVES, "loss off by"), "input.html": READING},
    "model-parallel": {
        "stages.html": ("One network on several devices", " on 2 devices: .* with one network in parts", "bubble, ms"),
    },
    "networks": {
        "speed.html": ("Samples per second", "Step times"),
        "stages.html": ("Where the time goes", "Milliseconds per iteration"),
        "scaling.html": ("Speed over devices", "All speeds at a glance, samples/s", "Efficiency"),
        "communication.html": ("Aggregating gradients",),
    },
    "paper": {
        "study.html": (
            "Table 2: hardware of each node",
            "Figure 1: nodes and links",
            "Table 3: software",
            "Table 4: networks .* (alexnet 8|googlenet 22) ",
            "Table 5: seconds of each stage on one device",
            "Figure 3: seconds per iteration on one device",
            "Figure 4: speed-up within a node",
            "Table 6: aggregating gradients within a node",
            "Table 8: samples/s",
        ),
    },
    "prediction": {"predicted.html": ("Measured beside predicted", "fitted to 2 devices", " 4 devices ", "What if")},
    "quick": {
        "speed.html": ("Samples per second", "Best configurations", "Step times"),
        "stages.html": ("Where the time goes", "Milliseconds per iteration"),
        "scaling.html": ("Speed over devices", "All speeds at a glance, samples/s"),
        "communication.html": ("Aggregating gradients",),
    },
    "readers": {"input.html": ("What reading costs", "2 readers", "reader alone, samples/s read by bottleneck")},
    "stragglers": {"accuracy.html": ("Stragglers", "no straggler, s to the loss straggler 75 %, s to the loss times")},
    "time-to-train": {
        "index.html": (
            r"a training takes \S+ minutes on 2 devices \(\S+ on one\); the best accuracy there is [01]\.\d+",
        ),
        "accuracy.html": ("Time to train", "minutes speed-up epochs epochs per worker ended early best accuracy hosts"),
    },
}

# The first of all results, where a plan asks for more than who is the fastest.
FIRST = {
    "autotune": "(alexnet|mnist_small) on .*: what an expert gains over the defaults: ",
    "data-parallel": r"mnist_\w+ on .*: the second epoch, .*/ddp does .* samples/s on \d devices, \S+ times as much",
    "learning": r"mnist_small on .*: over their first 50 steps, the losses of .* and .* differ by \S+ at most",
    "time-to-train": r".*: a training takes \S+ minutes on \d devices",
    "model-parallel": r"(One network|No difference) .*(in parts|on each device)",
    "paper": r"(alexnet|googlenet) on .*, on \d+ devices: \S+.* is [\d.]+ times as fast as on one \([\d.]+ % of ",
    "prediction": r"Fitted to fewer devices, the model predicts the speed on more: \d+ predictions are off by [\d.]+ %",
    "readers": r".*(bottleneck|holds? (it|the network) up|no detectable difference|fewer cores)",
}

# At the scale `small` and larger ones.
WHOLE: Shown = {
    "autotune": {"index.html": ("alexnet on .*what an expert gains", "mnist_small on .*what an expert gains")},
    "batch-size": {
        "accuracy.html": ("The trade-off: mnist_small", "best accuracy, by batch", "Batch, all devices", "memory, MiB"),
    },
    "data-parallel": {
        "scaling.html": (
            "Figure 5a: [^:]*: samples/s of the second epoch, by strategy and network",
            "Figure 5b: mnist_stated on [^:]*: samples/s of the second epoch, by batch",
            "Figure 5c: mnist_stated on [^:]*: seconds of the second epoch, by size of the data set",
            "Figure 5d: mnist_stated on [^:]*: samples/s of the first epoch against the second",
            "Figure 5e: mnist_stated on [^:]*: samples/s of the second epoch, by size of the data set",
        ),
        "input.html": READING,
    },
    "horovod-style": {
        "index.html": ("After .* samples, .* has the lowest loss", "s of training, .* has the lowest loss"),
        "communication.html": ("Exchange", "samples/s against the fastest verdict", ": loss by samples"),
        "accuracy.html": CURVES,
        "input.html": READING,
    },
    "model-parallel": {
        "stages.html": (
            " on 2 devices: ",
            " on 4 devices: ",
            "pytorch/hybrid",
            "pytorch/tensor_parallel",
            "tensorflow/model_parallel",
        ),
    },
    "networks": {"input.html": ("What reading costs",)},
    "paper": {
        "study.html": ("Kernels of the vendors .* oneDNN · pytorch/single googlenet",),
        "input.html": READING,
    },
    "stragglers": {
        "index.html": (
            "With a straggler of 75%, .* is the first to reach a loss of ",
            r"is sooner than \S+.* (once a straggler loses \d+% of its time \(.* to .*\)|at .*0% and 75%)",
        )
    },
}


def unanswered(name: str, pages: Mapping[str, str], whole: bool) -> list[str]:
    """What the pages (HTML by file) of a plan do not show; `whole`: at its scale `small` or a larger one."""
    texts = {file: Page(text) for file, text in pages.items()}
    wanted = [*ALWAYS[name].items(), *(WHOLE.get(name, {}).items() if whole else ())]
    every = [(file, pattern) for file, patterns in wanted for pattern in patterns]
    lacking = [f"{file}: {it}" for file, it in every if file not in texts or not re.search(it, texts[file].text)]
    first, found = FIRST.get(name, ""), texts["index.html"].findings
    return [*lacking, *([f"first of all: {first}"] if first and not (found and re.match(first, found[0])) else [])]
