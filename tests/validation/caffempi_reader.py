"""Are caffempi's reading threads as fast as a plain pool of threads over an LMDB written by hand?

    python tests/validation/caffempi_reader.py --data imagenet-like --readers 2

Both readers live in one process, have as many threads and read as far ahead; see `reading`. Each side reads an
environment that it has packed itself.
"""

import random
import struct
import sys
import tempfile
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import lmdb
import numpy as np
from PIL import Image
from reading import SETS, arguments, compared, cropped, listed, report

from stagebench.suite.worker.job import DataSet
from stagebench.suite.worker.packed_set import RecordSource, record
from stagebench.suite.worker.sources import open_source
from stagebench.suite.worker.view import View
from tests.support.jobs import READ_ONCE, mark
from tests.support.trainers import by_strategy, setup

caffempi = by_strategy("caffempi")

PREFETCH = 2


class Plain:
    """Packs, and reads with threads that load a batch each."""

    def __init__(self, data, path, readers, batch, folder):
        self.photographs = data != "digits"
        samples = self.samples(path)
        with lmdb.open(folder, map_size=1 << 30) as environment, environment.begin(write=True) as transaction:
            for index, (label, content) in enumerate(samples):
                transaction.put(b"%08d" % index, struct.pack("<i", label) + content)
        self.environment = lmdb.open(folder, readonly=True, lock=False, readahead=False)
        self.count, self.batch = len(samples), batch
        self.keys = self.shuffled()
        self.pool = ThreadPoolExecutor(readers)
        self.ahead = deque(self.submitted() for _ in range(readers * PREFETCH))

    def samples(self, path):
        if self.photographs:
            return [(label, Path(file).read_bytes()) for file, label in listed(path)]
        with np.load(path) as content:
            images, labels = content["images"], content["labels"].tolist()
        scaled = images.astype(np.float32) / 255
        self.mean, self.deviation, self.shape = scaled.mean(), scaled.std(), (1, *images.shape[1:])
        return [(label, image.tobytes()) for label, image in zip(labels, images, strict=True)]

    def shuffled(self):
        while True:
            yield from random.sample(range(self.count), self.count)

    def submitted(self):
        return self.pool.submit(self.load, [b"%08d" % next(self.keys) for _ in range(self.batch)])

    def load(self, keys):
        images, labels = [], []
        with self.environment.begin(buffers=True) as transaction:
            for key in keys:
                value = transaction.get(key)
                labels.append(struct.unpack_from("<i", value)[0])
                images.append(self.decoded(value[4:]))
        return np.stack(images), np.array(labels)

    def decoded(self, content):
        if self.photographs:
            return cropped(Image.open(BytesIO(content)))
        pixels = np.frombuffer(content, np.uint8).astype(np.float32).reshape(self.shape)
        return (pixels / 255 - self.mean) / self.deviation

    def next_batch(self):
        self.ahead.append(self.submitted())
        return self.ahead.popleft().result()

    def close(self):
        for future in self.ahead:
            future.cancel()
        self.pool.shutdown()
        self.environment.close()


def ours(path, readers, batch, shape, folder):
    """A trainer that reads what it has packed."""
    trainer = caffempi(setup(batch=batch, tuning="tuned", readers=readers, prefetch=PREFETCH))
    trainer.start()
    kind = "arrays" if path.endswith(".npz") else "folder"
    source = open_source(DataSet(kind, path), shape, 10)
    part = Path(folder) / "part-00000"
    part.mkdir()
    trainer.pack("lmdb", (record(source, index) for index in range(len(source))), str(part))
    mark(folder, "lmdb", kind, 10, len(source), [part.name])
    records = RecordSource(folder)
    records.check(shape, 10)
    asked = READ_ONCE
    trainer.open_input(View(trainer.open_records(records), asked, 1, ""))
    return trainer


def measured(data, path, readers, rounds):
    _, batch, shape = SETS[data]
    with tempfile.TemporaryDirectory() as theirs, tempfile.TemporaryDirectory() as own:
        plain, trainer = Plain(data, path, readers, batch, theirs), ours(path, readers, batch, shape, own)
        ways = {"plain": plain.next_batch, "ours": trainer.next_batch}
        found = compared(ways, batch, readers * PREFETCH + readers, rounds)
        plain.close()
        trainer.close()
    return found


def main():
    asked = arguments(__doc__)
    return report(asked, lambda data, path, readers: measured(data, path, readers, asked.rounds))


if __name__ == "__main__":
    sys.exit(main())
