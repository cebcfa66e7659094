"""Readers timed in alternating blocks of one process.

A reader that is not asked fills what it reads ahead and then waits, so two of them disturb each other for the
first batches of a block alone: those are taken, and not timed.
"""

import argparse
import json
import os
import statistics
import sys
import time

import numpy as np
from alternating import interval

BLOCK_SECONDS = 1.0
DATA = os.path.join(os.path.expanduser(os.environ.get("XDG_CACHE_HOME", "~/.cache")), "stagebench", "data")
# of the data set: file or folder, samples of a batch, the shape that the network takes
SETS = {"imagenet-like": ("imagenet-like", 8, (3, 224, 224)), "digits": ("digits.npz", 64, (1, 28, 28))}
ENOUGH = 0.95


def arguments(description):
    """--data, --readers, --rounds, --place."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", choices=[*sorted(SETS), "all"], default="all")
    parser.add_argument("--readers", type=int, choices=(1, 2), help="default: both, one after the other")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--place", default=DATA, help="where the data sets stand")
    return parser.parse_args()


def compared(ways, batch, ahead, rounds):
    """Rates in samples/s, and each way's ratio to "plain": {way: {"rate", "ratio", "low", "high"}}."""
    for step in ways.values():
        taken(step, ahead)
    batches = max(2, round(BLOCK_SECONDS / taken(ways["plain"], ahead)))
    seconds = {name: [] for name in ways}
    for number in range(rounds):
        names = sorted(ways)
        for name in names[number % len(names) :] + names[: number % len(names)]:
            taken(ways[name], ahead)
            seconds[name].append(taken(ways[name], batches))
    return {name: summary(batch, each, seconds["plain"]) for name, each in seconds.items()}


def taken(step, batches):
    """Seconds a batch."""
    begin = time.perf_counter()
    for _ in range(batches):
        step()
    return (time.perf_counter() - begin) / batches


def summary(batch, ours, plain):
    """Of the rounds."""
    ratios = [theirs / own for theirs, own in zip(plain, ours, strict=True)]
    low, high = interval(ratios)
    return {
        "rate": batch / statistics.median(ours),
        "ratio": statistics.median(ratios),
        "low": low,
        "high": high,
        "ratios": ratios,
    }


def report(asked, measured):
    """Run `measured(data, path, readers)` for all that is asked and print it; the exit code."""
    say(f"{'data':14} {'readers':>7} {'reader':8} {'samples/s':>10} {'ratio':>7} {'95 %':>15}")
    results = []
    for data in sorted(SETS) if asked.data == "all" else [asked.data]:
        for readers in (asked.readers,) if asked.readers else (1, 2):
            for way, r in sorted(measured(data, os.path.join(asked.place, SETS[data][0]), readers).items()):
                spread = f"{r['low']:.3f} - {r['high']:.3f}"
                say(f"{data:14} {readers:7} {way:8} {r['rate']:10.0f} {r['ratio']:7.3f} {spread:>15}")
                results.append(dict(r, data=data, readers=readers, way=way))
    say(json.dumps(results))
    return 0 if all(r["ratio"] >= ENOUGH for r in results) else 1


def say(line):
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def listed(folder):
    """[(path, label)] of an image folder, written out again: the plain readers use no code of ours."""
    classes = sorted(name for name in os.listdir(folder) if os.path.isdir(os.path.join(folder, name)))
    return [
        (os.path.join(folder, name, file), label)
        for label, name in enumerate(classes)
        for file in sorted(os.listdir(os.path.join(folder, name)))
    ]


def cropped(image, crop=224, resize=256):
    """A Pillow image as everybody prepares it: the shorter side scaled, the centre cut out, normalised."""
    image = image.convert("RGB")
    width, height = image.size
    scale = resize / min(width, height)
    image = image.resize((int(width * scale), int(height * scale)), 2)
    left, top = (image.width - crop) // 2, (image.height - crop) // 2
    image = image.crop((left, top, left + crop, top + crop))
    pixels = np.asarray(image, dtype=np.float32) / 255.0
    pixels = (pixels - np.float32([0.485, 0.456, 0.406])) / np.float32([0.229, 0.224, 0.225])
    return np.ascontiguousarray(pixels.transpose(2, 0, 1))
