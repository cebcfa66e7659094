"""What the pages of each plan that ships must show for its question to be answered."""

import re
from collections.abc import Mapping

from tests.reports.parsed import Page

# By plan and page, as patterns: headings, columns of tables, titles of figures, sentences.
Shown = Mapping[str, Mapping[str, tuple[str, ...]]]

READING = ("samples/s of the first waiting, ms",)
CURVES = ("Loss by step", "Accuracy by seconds of training")
OF_STEPS = {
    "stages.html": ("Stage by stage, milliseconds",),
    "scaling.html": ("All speeds at a glance", "efficiency"),
    "communication.html": ("gradients, MiB alone, ms",),
}

# Whatever the scale.
ALWAYS: Shown = {
    "autotune": {"speed.html": ("fastest ÷ default verdict tried",)},
    "batch-size": {"accuracy.html": (*CURVES, "all epochs, s last loss best accuracy target")},
    "data-parallel": {
        "scaling.html": ("Samples/s of the second epoch", "the first epoch against the second"),
        "accuracy.html": ("opening, s first, s second, s first ÷ second",),
    },
    "horovod-style": {"stages.html": ("Stage by stage, milliseconds",)},
    "learning": {"accuracy.html": (*CURVES, "loss off by"), "input.html": READING},
    "model-parallel": {
        "stages.html": ("[Oo]ne network in parts", " on 2 devices: .* with one network in parts", "bubble, ms"),
    },
    "inference": {
        "inference.html": (
            "offline, samples/s 1 sample, p90, ms",
            "Framework batch 1, 1 thread batch",
            "batch . · tuned",
        ),
    },
    "serving": {
        "inference.html": (
            "keeps its bound up to, queries/s",
            "the model is off by",
            "which batch and delay",
            "Where the time of a query goes",
            " 0 of ",
        ),
    },
    "networks": {**OF_STEPS, "speed.html": ("verdict processes", "steps least 5 %")},
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
    "prediction": {"predicted.html": ("off by", "fitted to 2 devices", " 4 devices ", "What if")},
    "quick": {
        **OF_STEPS,
        "speed.html": ("verdict processes", "fastest ÷ default", "steps least 5 %"),
        "scaling.html": ("All speeds at a glance",),
    },
    "transformers": {**OF_STEPS, "speed.html": ("verdict processes",)},
    "readers": {"input.html": ("2 readers", "reader alone, samples/s read by bottleneck")},
    "stragglers": {
        "accuracy.html": ("[Ss]traggler", "no straggler, s to the loss straggler 75 %, s to the loss times")
    },
    "time-to-train": {
        "accuracy.html": (
            r"a training takes \S+ minutes on 2 devices \(\S+ on one\); the best accuracy there is [01]\.\d+",
            "minutes speed-up epochs epochs per worker ended early best accuracy hosts",
        ),
    },
}

# The title of the first page, where a plan asks for more than who is the fastest.
FIRST = {
    "autotune": "(Tuning|No verdict on tuning|The default)",
    "batch-size": "(Batch|The best accuracy|The losses)",
    "data-parallel": r".* gains most: \S+ times on \d devices",
    "learning": r"The losses of \d frameworks (agree to|are equal)",
    "time-to-train": r".* ends (no )?sooner on \d devices: \S+ times",
    "model-parallel": "(One network in parts wins|No verdict yet on networks in parts)",
    "paper": r".* leads?( or shares? the lead)? (in|on) .*|.* share the lead on .*|No verdict yet|"
    r"\S+ to \S+ samples/s; nothing to compare|\S.* does \S+ samples/s",  # on a busy machine, where a trend bars a row
    "prediction": r"(\d+ predictions are|The prediction is) off by [\d.]+ %",
    "inference": "A single sample is answered within",
    "serving": "(.* queries/s keep the bound|No rate that was tried keeps its bound)",
    "readers": "Reading|The network is the bottleneck",
    "stragglers": "With a straggler of 75%, .* is soonest",
}

# At the scale `small` and larger ones.
WHOLE: Shown = {
    "inference": {
        "inference.html": (
            "In stages, against one device",
            "samples/s, of one device.s verdict 1 sample, p90, of one device.s",
            "PyTorch pipeline_inference",
            "TensorFlow model_parallel_inference",
        ),
    },
    "autotune": {"speed.html": ("alexnet on .* best settings", "mnist_small on .* best settings")},
    "batch-size": {
        "accuracy.html": ("The trade-off: mnist_small", "Best accuracy, by batch", "Batch, all devices", "memory, MiB"),
    },
    "data-parallel": {
        "scaling.html": (
            "Figure 5a: Samples/s of the second epoch, by strategy and network",
            "Figure 5b: Samples/s of the second epoch, by batch mnist_stated on",
            "Figure 5c: Seconds of the second epoch, by size of the data set mnist_stated on",
            "Figure 5d: Samples/s of the first epoch against the second mnist_stated on",
            "Figure 5e: Samples/s of the second epoch, by size of the data set mnist_stated on",
        ),
        "input.html": READING,
    },
    "horovod-style": {
        "communication.html": (
            "After .* samples, .* has the lowest loss",
            "s of training, .* has the lowest loss",
            "samples/s of the fastest verdict",
            "Loss by samples",
        ),
        "accuracy.html": CURVES,
        "input.html": READING,
    },
    "model-parallel": {
        "stages.html": (
            *(" on 2 devices: ", " on 4 devices: "),
            *("PyTorch hybrid", "PyTorch tensor_parallel", "TensorFlow model_parallel"),
        ),
    },
    "networks": {"input.html": READING},
    "paper": {"study.html": ("Kernels of the vendors .* oneDNN · PyTorch single googlenet",), "input.html": READING},
    "stragglers": {
        "accuracy.html": (
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
    first, title = FIRST.get(name, ""), texts["index.html"].headings[0]
    return [*lacking, *([f"the title is {title!r}, and not {first}"] if first and not re.match(first, title) else [])]
