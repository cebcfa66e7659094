"""Do the adapter's readers deliver as many images a second as plain scripts of MXNet's own?

    python tests/validation/mxnet_reader.py --rounds 5

Run with MXNet's Python. The scripts are written as MXNet's documentation shows them, with the same
data, batch and number of readers:

    recordio   ImageRecordIter on the same .rec; `preprocess_threads` are the readers
    files      gluon's ImageFolderDataset, its transforms, DataLoader with worker processes
    threads    the same DataLoader with a pool of threads
    digits     NDArrayIter, shuffled

Every figure is of a process of its own, ours and theirs in turn: in one process the reader that waits goes
on reading, and begins its turn with what it has ahead. The ratio is theirs over ours in seconds an image, a
figure a round (median, and its bootstrap 95 % interval): 1 is equal, more is faster than theirs; bound 0.95.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # MXNet's use of NumPy's old names
    import mxnet as mx

import numpy as np
from alternating import ratio

from stagebench.adapters.mxnet.record_files import files_of
from stagebench.suite.contracts.kernels import KEEP_MEMORY
from stagebench.suite.worker.packed_set import RecordSource, pack
from stagebench.suite.worker.sources import ArraySource, FolderSource
from stagebench.suite.worker.view import View
from tests.support import jobs
from tests.support.jobs import READ_ONCE
from tests.support.sent import Nobody
from tests.support.trainers import by_strategy, setup

trainer_of = by_strategy("mxnet")

SHAPES = {"recordio": (3, 224, 224), "files": (3, 224, 224), "threads": (3, 224, 224), "digits": (1, 28, 28)}
BATCH = {"recordio": 8, "files": 8, "threads": 8, "digits": 64}
ASKED = READ_ONCE
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
AHEAD = 20  # batches that may have been read before the clock starts
HOME = Path(os.environ.get("STAGEBENCH_DATA", Path.home() / ".cache" / "stagebench" / "data"))


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", choices=[*SHAPES, "all"], default="all")
    parser.add_argument("--readers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--images", type=Path, default=HOME / "imagenet-like", help="a folder of images by class")
    parser.add_argument("--digits", type=Path, default=HOME / "digits.npz")
    parser.add_argument("--inside", nargs=2, metavar=("WAY", "RECORDS"), help=argparse.SUPPRESS)
    return parser.parse_args()


def main():
    asked = arguments()
    if asked.inside:
        say(json.dumps(measured(asked, *asked.inside)))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        packed(asked.images, folder)
        names = list(SHAPES) if asked.against == "all" else [asked.against]
        results = [compared(asked, name, readers, folder) for name in names for readers in asked.readers]
    say(f"{'against':9} {'readers':>7} {'theirs/s':>9} {'ours/s':>9} {'ratio':>7} {'95 %':>15} {'cpu':>6}")
    for r in results:
        rates = f"{r['theirs']:9.0f} {r['ours']:9.0f}"
        spread = f"{r['low']:.3f} - {r['high']:.3f}"
        say(f"{r['against']:9} {r['readers']:7} {rates} {r['ratio']:7.3f} {spread:>15} {r['cpu_ratio']:6.3f}")
    say(json.dumps(results))
    return 0 if all(r["ratio"] >= 0.95 for r in results) else 1


def say(line):
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def packed(images, folder):
    """The images as RecordIO."""
    trainer = trainer_of(setup(batch=8, tuning="tuned"))
    pack(trainer, FolderSource(str(images), SHAPES["files"]), jobs.packing("recordio", folder), Nobody())


def compared(asked, name, readers, folder):
    """Processes in turn; the one that begins changes."""
    timed = {"ours": [], "theirs": []}
    for number in range(asked.rounds):
        for way in sorted(timed, reverse=bool(number % 2)):
            tokens = [sys.executable, __file__, "--against", name, "--readers", str(readers)]
            tokens += ["--seconds", str(asked.seconds), "--images", str(asked.images), "--digits", str(asked.digits)]
            environ = dict(os.environ, OMP_NUM_THREADS="1", **KEEP_MEMORY)
            done = subprocess.run(
                [*tokens, "--inside", way, folder], env=environ, stdout=subprocess.PIPE, text=True, check=True
            )
            timed[way].append(json.loads(done.stdout.splitlines()[-1]))
    rates = {way: 1 / statistics.median(wall for wall, _ in timed[way]) for way in timed}
    return {"against": name, "readers": readers, **rates, **ratio(timed["theirs"], timed["ours"])}


def measured(asked, way, records):
    """(wall, CPU) seconds an image, worker processes left out of the latter."""
    name, (readers,) = asked.against, asked.readers
    following = ours(asked, name, readers, records) if way == "ours" else THEIRS[name](asked, readers, records)
    for _ in range(AHEAD):
        following()
    count, wall, cpu = 0, time.perf_counter(), time.process_time()
    while time.perf_counter() < wall + asked.seconds:
        following()
        count += BATCH[name]
    return (time.perf_counter() - wall) / count, (time.process_time() - cpu) / count


def ours(asked, name, readers, records):
    trainer = trainer_of(setup(batch=BATCH[name], tuning="tuned", readers=readers))
    trainer.start()
    if name == "recordio":
        source = RecordSource(records)
        source.check(SHAPES[name], source.classes)
    else:
        source = FolderSource(str(asked.images), SHAPES[name])
        if name == "digits":
            source = ArraySource(str(asked.digits), SHAPES[name])
    trainer.open_input(View(source, ASKED, 1, os.devnull))

    def following():
        for piece in trainer.next_batch().inputs:
            piece.wait_to_read()

    return following


def record_iter(asked, readers, records):
    files = files_of(RecordSource(records))
    iterator = mx.io.ImageRecordIter(
        path_imgrec=files.records,
        path_imgidx=files.offsets,
        data_shape=SHAPES["recordio"],
        batch_size=BATCH["recordio"],
        resize=256,
        inter_method=3,
        shuffle=True,
        mean_r=MEAN[0] * 255,
        mean_g=MEAN[1] * 255,
        mean_b=MEAN[2] * 255,
        std_r=DEVIATION[0] * 255,
        std_g=DEVIATION[1] * 255,
        std_b=DEVIATION[2] * 255,
        preprocess_threads=readers,
        prefetch_buffer=2 * readers,
        verbose=False,
    )
    return endless(iterator)


def array_iter(asked, readers, records):
    with np.load(asked.digits) as data:
        images = (data["images"] / 255.0).astype(np.float32)
        images = (images[:, np.newaxis] - images.mean()) / images.std()
        labels = data["labels"].astype(np.float32)
    return endless(mx.io.NDArrayIter(images, labels, BATCH["digits"], shuffle=True, last_batch_handle="roll_over"))


def endless(iterator):
    """Batches of a DataIter, epoch after epoch."""

    def following():
        try:
            batch = iterator.next()
        except StopIteration:
            iterator.reset()
            batch = iterator.next()
        batch.data[0].wait_to_read()

    return following


def loader(asked, readers, records, threads=False):
    from mxnet.gluon.data import DataLoader
    from mxnet.gluon.data.vision import ImageFolderDataset, transforms

    area = 3
    steps = [transforms.Resize(256, keep_ratio=True, interpolation=area), transforms.CenterCrop(224)]
    steps += [transforms.ToTensor(), transforms.Normalize(MEAN, DEVIATION)]
    images = ImageFolderDataset(str(asked.images)).transform_first(transforms.Compose(steps))
    batches = DataLoader(images, BATCH["files"], shuffle=True, num_workers=readers, thread_pool=threads)

    def epochs():
        while True:
            yield from batches

    stream = epochs()
    return lambda: next(stream)[0].wait_to_read()


def threaded_loader(asked, readers, records):
    return loader(asked, readers, records, threads=True)


THEIRS = {"recordio": record_iter, "files": loader, "threads": threaded_loader, "digits": array_iter}


if __name__ == "__main__":
    sys.exit(main())
