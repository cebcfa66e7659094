"""Does the adapter read as fast as a plain tf.data script, written as TensorFlow's documentation shows it?

    python tests/validation/tensorflow_reader.py --rounds 15

Sets: `imagenet-like` (500 x 375 JPEG to 224), from its files and from TFRecord, and `digits` from memory, with 1 and
2 readers. Both sides live in one process and take turns. Two pipelines disturb each other, for a rested one fills its
buffers in the other's time: every block opens its own, reads what may lie ready, reads on against the clock, and
closes it. The ratio is plain seconds over ours (median over the rounds, bootstrap 95 % interval): more than 1 is
faster than plain.

The plain side takes the same files, cuts the same part of them with the official models' functions
(decode_and_crop_jpeg, tf.image.resize with antialias), normalises, and has as many parallel calls and threads of its
own as there are readers.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from stagebench.adapters.tensorflow.plugin import TensorFlow
from stagebench.suite.contracts.case import Case
from stagebench.suite.files import cache_folder

BATCH = {"digits": 64, "files": 8, "tfrecord": 8}
SECONDS = 1.0  # a block, by the plain side's pace
PREFETCH = 2  # a reader
REQUIRED = 0.95
MEAN, DEVIATION = [123.675, 116.28, 103.53], [58.395, 57.12, 57.375]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=cache_folder("data"), type=Path, help="where the made sets stand")
    parser.add_argument("--what", nargs="+", choices=sorted(BATCH), default=sorted(BATCH))
    parser.add_argument("--readers", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def main():
    if "--measure" in sys.argv:
        return measure(arguments())
    # A process of its own, with what the adapter wants to stand in its environment; both sides have it.
    environ = TensorFlow().environ(Case("tensorflow", "single", "alexnet", tuning="tuned"), Path(sys.executable))
    return subprocess.call([sys.executable, *sys.argv, "--measure"], env={**os.environ, **environ})


def measure(asked):
    """Every set with every number of readers."""
    from alternating import ratio

    sys.stdout.write(
        f"{'what':10} {'readers':>7} {'plain /s':>9} {'ours /s':>9} {'ratio':>6} {'95 %':>14} {'cpu':>6}\n"
    )
    good, results = True, []
    with tempfile.TemporaryDirectory() as folder:
        for what in asked.what:
            for readers in asked.readers:
                times = alternated(ways(what, asked.data, readers, Path(folder)), BATCH[what], readers, asked.rounds)
                found = ratio(times["plain"], times["ours"])
                rates = [1 / statistics.median(wall for wall, _ in times[name]) for name in ("plain", "ours")]
                figures = (
                    f"{rates[0]:9.0f} {rates[1]:9.0f} {found['ratio']:6.3f} {found['low']:6.3f} - {found['high']:.3f}"
                )
                sys.stdout.write(f"{what:10} {readers:7} {figures} {found['cpu_ratio']:6.3f}\n")
                sys.stdout.flush()
                results.append({"what": what, "readers": readers, "rates": rates, **found})
                good &= found["ratio"] >= REQUIRED
    sys.stdout.write(json.dumps(results) + "\n")
    return 0 if good else 1


def alternated(sides, batch, readers, rounds):
    """{side: [(wall, CPU) seconds a sample, a figure a round]}."""
    ready = 2 * PREFETCH * readers + 2  # batches that may lie ready, and samples under way
    steps = max(ready, round(SECONDS / (block(sides["plain"], ready, ready)[0])))
    timed = {name: [] for name in sides}
    for number in range(rounds):
        for name in sorted(sides, reverse=bool(number % 2)):
            wall, cpu = block(sides[name], ready, steps)
            timed[name].append((wall / batch, cpu / batch))
    return timed


def block(opened, ready, steps):
    """(wall, CPU) seconds of one batch."""
    read, close = opened()
    for _ in range(ready):
        read()
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(steps):
        read()
    found = (time.perf_counter() - wall) / steps, (time.process_time() - cpu) / steps
    close()
    return found


def ways(what, data, readers, folder):
    """{side: what opens it and returns (what reads a batch, what closes it)}."""
    from stagebench.suite.worker.job import DataSet
    from stagebench.suite.worker.sources import open_source

    batch = BATCH[what]
    if what == "digits":
        path, kind, shape = data / "digits.npz", "arrays", (1, 28, 28)
    else:
        path, kind, shape = data / "imagenet-like", "folder", (3, 224, 224)
    source = open_source(DataSet(kind, str(path)), shape, 1000)
    if what == "tfrecord":
        source = packed(source, folder)
    mine = ours(source, shape, batch, readers, folder)  # first: it sets TensorFlow's threads
    if what == "digits":
        plain = plain_arrays(source.arrays, batch, readers)
    elif what == "files":
        plain = plain_files(source.files, batch, readers)
    else:
        plain = plain_records(folder / "part-00000" / "samples.tfrecord", batch, readers)

    def opened():
        iterator = iter(plain)
        return (lambda: next(iterator)), (lambda: None)

    return {"plain": opened, "ours": mine}


def ours(source, shape, batch, readers, folder):
    """The adapter's own reader, as a case opens it."""

    from stagebench.suite.worker.view import View
    from stagebench.workloads import weights
    from stagebench.workloads.build import Builder
    from tests.support.jobs import READ_ONCE
    from tests.support.trainers import by_strategy, setup

    trainer = by_strategy("tensorflow")(setup(batch=batch, tuning="tuned", readers=readers, prefetch=PREFETCH))
    trainer.start()
    b = Builder("none", shape, 10)
    b.head(b.dense("fc", b.flatten("flat", "input"), 10))
    trainer.build(b.graph, dict(weights.initial(b.graph)))

    def opened():
        trainer.open_input(View(source, READ_ONCE, 1, str(folder / "skipped.txt")))
        return trainer.next_batch, trainer._reader.close

    return opened


def packed(source, folder):
    """The set as TFRecord, by the adapter."""
    from stagebench.suite.worker import packed_set
    from stagebench.suite.worker.packed_set import RecordSource
    from tests.support import jobs
    from tests.support.sent import Nobody
    from tests.support.trainers import by_strategy, setup

    if not (folder / "records.json").exists():
        packed_set.pack(by_strategy("tensorflow")(setup()), source, jobs.packing("tfrecord", folder), Nobody())
    return RecordSource(str(folder))


# --- plain ------------------------------------------------------------------------------------------


def plain_arrays(arrays, batch, readers):
    """tf.data's guide, "Consuming NumPy arrays"."""
    import tensorflow as tf

    images, labels = arrays
    samples = tf.data.Dataset.from_tensor_slices((images.transpose(0, 2, 3, 1), labels))
    return threads(samples.shuffle(len(labels)).repeat().batch(batch).prefetch(PREFETCH * readers), readers)


def plain_files(files, batch, readers):
    """tf.data's guide, "Decoding image data"."""
    import tensorflow as tf

    samples = tf.data.Dataset.from_tensor_slices(([path for path, _ in files], [label for _, label in files]))

    def load(path, label):
        return preprocessed(tf.io.read_file(path)), label

    return ended(samples.shuffle(len(files)).repeat().map(load, num_parallel_calls=readers), batch, readers)


def plain_records(path, batch, readers):
    """The guide to TFRecord, and that to performance: the order of what is shuffled anyway may change."""
    import tensorflow as tf

    features = {
        "image/encoded": tf.io.FixedLenFeature([], tf.string),
        "image/class/label": tf.io.FixedLenFeature([], tf.int64),
    }

    def load(record):
        found = tf.io.parse_single_example(record, features)
        return preprocessed(found["image/encoded"]), found["image/class/label"]

    samples = tf.data.TFRecordDataset([str(path)]).shuffle(1024).repeat()
    return ended(samples.map(load, num_parallel_calls=readers, deterministic=False), batch, readers)


def preprocessed(encoded):
    """The centre crop, as the official models' classification example cuts it."""
    import tensorflow as tf

    shape = tf.image.extract_jpeg_shape(encoded)
    side = tf.cast(224 / 256 * tf.cast(tf.minimum(shape[0], shape[1]), tf.float32), tf.int32)
    window = tf.stack([(shape[0] - side) // 2, (shape[1] - side) // 2, side, side])
    image = tf.image.decode_and_crop_jpeg(encoded, window, channels=3, dct_method="INTEGER_ACCURATE")
    image = tf.image.resize(image, [224, 224], antialias=True)
    return (image - tf.constant(MEAN)) / tf.constant(DEVIATION)


def ended(samples, batch, readers):
    return threads(samples.batch(batch, drop_remainder=True).prefetch(PREFETCH * readers), readers)


def threads(samples, readers):
    import tensorflow as tf

    options = tf.data.Options()
    options.threading.private_threadpool_size = readers
    options.threading.max_intra_op_parallelism = 1
    return samples.with_options(options)


if __name__ == "__main__":
    sys.exit(main())
