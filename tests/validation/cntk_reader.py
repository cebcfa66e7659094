"""Do the adapter's readers deliver as fast as CNTK's own, written out as its documentation shows them?

    stagebench data make imagenet-like && stagebench data make digits
    stagebench data convert imagenet-like --to cbf --to imagemap; stagebench data convert digits --to cbf --to ctf
    python tests/adapters/inside.py .tox cntk tests/validation/cntk_reader.py

Records: a MinibatchSource by hand on the same file. A map of images: the same with an ImageDeserializer and its
transforms; what it leaves to the network (mean, deviation), ours has done. Arrays: cntk.io.MinibatchSourceFromData.
Image files: a cntk.io.UserDeserializer, which knows one thread only, with Pillow. Each side reads in a process of its
own, in turns: in one process the readers' threads would go on filling their queues while the other side is timed.
A ratio is theirs over ours: 1 is equal, more is faster than theirs.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
from alternating import ratio

from stagebench.adapters.cntk import libraries
from stagebench.adapters.cntk.machine import cntk as C  # noqa: N812 - the usual name
from stagebench.suite.worker.packed_set import RecordSource
from stagebench.suite.worker.sources import ArraySource, FolderSource
from stagebench.suite.worker.view import View
from tests.support.jobs import READ_ONCE
from tests.support.trainers import by_strategy, setup

cntk_trainer = by_strategy("cntk")

WANTED = 0.95
WARM = 32  # batches: more than any queue holds, and once through the photographs
CASES = [
    ("imagenet-like", "cbf", 8, 3 * 224 * 224),
    ("imagenet-like", "imagemap", 8, 3 * 224 * 224),
    ("imagenet-like", "files", 8, 3 * 224 * 224),
    ("digits", "cbf", 64, 28 * 28),
    ("digits", "ctf", 64, 28 * 28),
    ("digits", "memory", 64, 28 * 28),
]
SHAPES = {"imagenet-like": "3x224x224", "digits": "1x28x28"}
MEAN = np.array([0.485, 0.456, 0.406], np.float32) * 255
DEVIATION = np.array([0.229, 0.224, 0.225], np.float32) * 255


def records(data, form, folder):
    """Where `stagebench data convert` puts them: images are cut to one shape before they are packed, or left alone."""
    return os.path.join(folder, "records", data, form if form == "imagemap" else "%s-%s" % (form, SHAPES[data]))


def ours(data, form, batch, readers, folder):
    """The adapter's next_batch."""
    trainer = cntk_trainer(setup(batch=batch, tuning="tuned", readers=readers))
    trainer.start()
    if form in ("cbf", "ctf", "imagemap"):
        source = RecordSource(records(data, form, folder))
        source.check(tuple(map(int, SHAPES[data].split("x"))), 1000)
    elif form == "files":
        source = FolderSource(os.path.join(folder, data), (3, 224, 224))
    else:
        source = ArraySource(os.path.join(folder, data + ".npz"), (1, 28, 28))
    trainer.open_input(View(source, READ_ONCE, 1, os.devnull))
    return trainer.next_batch


def theirs(data, form, batch, values, folder):
    """A documented reader of CNTK's; every batch as train_minibatch takes it."""
    if form == "memory":
        with np.load(os.path.join(folder, data + ".npz")) as content:
            images, labels = content["images"].astype(np.float32), content["labels"]
        images = ((images / 255 - (images / 255).mean()) / (images / 255).std())[:, np.newaxis]
        streams = {"images": images, "labels": np.eye(10, dtype=np.float32)[labels]}
        reader = C.io.MinibatchSourceFromData(streams)
    elif form == "files":
        reader = C.io.MinibatchSource(
            Photographs(os.path.join(folder, data), batch),
            randomization_window_in_chunks=1,  # more would be kept
        )
    elif form == "imagemap":
        scale = C.io.transforms.scale(256, 256, 3, interpolations="linear", scale_mode="crop")
        crop = C.io.transforms.crop(crop_type="center", crop_size=224)
        streams = C.io.StreamDefs(
            images=C.io.StreamDef(field="image", transforms=[scale, crop]),
            labels=C.io.StreamDef(field="label", shape=10),
        )
        path = os.path.join(records(data, form, folder), "joined", "images.map")
        reader = C.io.MinibatchSource(C.io.ImageDeserializer(path, streams))
        images, labels = C.input_variable((3, 224, 224)), C.input_variable(10, is_sparse=True)
        inputs = {images: reader.streams.images, labels: reader.streams.labels}
        return lambda: reader.next_minibatch(batch, input_map=inputs)
    else:
        path = os.path.join(records(data, form, folder), "joined", "records." + form)
        kind = C.io.CBFDeserializer if form == "cbf" else C.io.CTFDeserializer
        streams = C.io.StreamDefs(
            images=C.io.StreamDef(field="images", shape=values), labels=C.io.StreamDef(field="labels", shape=1)
        )
        window = max(1, (256 << 20) // (max(1, 65536 // 4 // values) * 4 * values)) if form == "cbf" else 8
        reader = C.io.MinibatchSource(kind(path, streams), randomize=True, randomization_window_in_chunks=window)
        inputs = {C.input_variable(values): reader.streams.images, C.input_variable(1): reader.streams.labels}
        return lambda: reader.next_minibatch(batch, input_map=inputs)
    return lambda: reader.next_minibatch(batch)


class Photographs(C.io.UserDeserializer):
    """A batch is a chunk; in the order that CNTK draws."""

    def __init__(self, folder, batch):
        self._files = [
            (str(path), label)
            for label, name in enumerate(sorted(os.listdir(folder)))
            if os.path.isdir(os.path.join(folder, name))
            for path in sorted(Path(folder, name).iterdir())
        ]
        self._batch = batch
        shapes = {"images": (3, 224, 224), "labels": (1,)}
        self._streams = [
            C.io.StreamInformation(name, number, "dense", np.float32, shapes[name])
            for number, name in enumerate(("images", "labels"))
        ]
        super().__init__()

    def stream_infos(self):
        return self._streams

    def num_chunks(self):
        return len(self._files) // self._batch

    def get_chunk(self, chunk_id):
        files = self._files[chunk_id * self._batch :][: self._batch]
        images = np.stack([photograph(path) for path, _ in files])
        return {"images": images, "labels": np.array([[label] for _, label in files], np.float32)}


def photograph(path):
    from PIL import Image

    with Image.open(path) as image:
        width, height = image.size
        scale = 256 / min(width, height)
        image = image.convert("RGB").resize((int(width * scale), int(height * scale)), Image.BILINEAR)
        left, top = (image.size[0] - 224) // 2, (image.size[1] - 224) // 2
        pixels = np.asarray(image.crop((left, top, left + 224, top + 224)), np.float32)
    return np.ascontiguousarray(((pixels - MEAN) / DEVIATION).transpose(2, 0, 1))


def seconds_a_batch(next_batch, at_least):
    """Of one reader, once its queue has been emptied: (wall, CPU of all threads)."""
    for _ in range(WARM):
        next_batch()
    cpu, begin, batches = time.process_time(), time.perf_counter(), 0
    while time.perf_counter() - begin < at_least:
        next_batch()
        batches += 1
    return (time.perf_counter() - begin) / batches, (time.process_time() - cpu) / batches


def launched(side, number, readers, asked):
    """A side's seconds a batch, (wall, CPU), measured in a process of its own."""
    # CNTK's image reader has as many threads as OpenMP says; ours must see to it by itself.
    openmp = readers if side == "theirs" and CASES[number][1] == "imagemap" else 1
    tokens = [sys.executable, __file__, "--data", asked.data, "--seconds", str(asked.seconds), "--side", side]
    done = subprocess.run(
        tokens + ["--case", str(number), "--readers", str(readers)],
        env=dict(os.environ, OMP_NUM_THREADS=str(openmp), MKL_NUM_THREADS="1"),
        stdout=subprocess.PIPE,
        universal_newlines=True,
        check=True,
    )
    return tuple(float(word) for word in done.stdout.splitlines()[-1].split())


def one_side(asked):
    data, form, batch, values = CASES[asked.case]
    if asked.side == "ours":
        next_batch = ours(data, form, batch, asked.readers, asked.data)
    else:
        next_batch = theirs(data, form, batch, values, asked.data)
    say("%r %r" % seconds_a_batch(next_batch, asked.seconds))
    os._exit(0)  # a UserDeserializer's thread aborts a process that ends in the usual way


def compared(number, readers, asked):
    """Whether ours keeps up."""
    data, form, batch, _ = CASES[number]
    timed = {"ours": [], "theirs": []}
    for turn in range(asked.rounds):
        for side in sorted(timed, reverse=turn % 2 == 1):
            timed[side].append(launched(side, number, readers, asked))
    one = ratio(timed["theirs"], timed["ours"])
    rates = tuple(batch / statistics.median(wall for wall, _ in timed[side]) for side in ("ours", "theirs"))
    figures = (data, form, readers) + rates + tuple(one[key] for key in ("ratio", "low", "high", "cpu_ratio"))
    say(
        "%-14s %-7s readers %d: ours %8.0f, theirs %8.0f images/s, ratio %.3f (%.3f - %.3f), in CPU time %.3f" % figures
    )
    return one["ratio"] >= WANTED


def say(line):
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=os.path.expanduser("~/.cache/stagebench/data"), help="where the sets stand")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--only", default="", help="cases with this in their set and format, as 'digits cbf'")
    for hidden in ("--case", "--readers"):
        parser.add_argument(hidden, type=int, help=argparse.SUPPRESS)
    parser.add_argument("--side", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.side:
        one_side(asked)
    chosen = [number for number, case in enumerate(CASES) if asked.only in " ".join(case[:2])]
    missing = libraries.missing()
    if missing:
        chosen = [number for number in chosen if CASES[number][1] != "imagemap"]
        say("imagemap is skipped: " + libraries.remedy(missing))
    kept = [compared(number, readers, asked) for number in chosen for readers in (1, 2)]
    return 0 if all(kept) else 1


if __name__ == "__main__":
    sys.exit(main())
